"""The joint space of two agents, all at once: every joint state at a time is one bit of one integer.

A step of both agents from *all* states of a time is then some thirty integer operations, whatever the number of states.
The layers are finite, so an empty one proves that there is nothing more to reach.

The bit of state (a, b) is ``a * n + b``, n the number of cells. For agents with an intermediate goal (``via``) there is
one such integer for each of the four combinations of who has been there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from envsim.lake.grid import Axes, Board, Lattice
from envsim.lake.search import UNREACHABLE, Objective

NOBODY, FIRST, SECOND, BOTH = range(4)
"""Who has been at the intermediate goal."""


@dataclass(frozen=True, slots=True)
class Plane:
    """The joint space of one lattice: for each axis the distance and the states in which an agent can move so."""

    apart: int
    """States with the agents in two cells."""
    repeat: int
    """One bit at the start of each row of n bits: a multiplication puts a set of cells into every row."""
    first: tuple[tuple[int, int, int], ...]
    second: tuple[tuple[int, int, int], ...]
    alone: Axes
    """The first agent's axes while the second stands still, the second's cell taken out."""


def spread_out(cells: int, n: int) -> int:
    """The cells of the first agent as states: bit v goes to bit v * n."""
    return int(format(cells, "b").replace("0", "0" * n).replace("1", "0" * (n - 1) + "1"), 2)


def _scaled(axis: tuple[int, int, int], n: int) -> tuple[int, int, int]:
    distance, ahead, back = axis
    return distance * n, spread_out(ahead, n), spread_out(back, n)


@lru_cache(maxsize=64)
def plane_of(lattice: Lattice) -> Plane:
    n = lattice.rows * lattice.columns
    row = (1 << n) - 1
    repeat = spread_out(row, n)
    return Plane(
        apart=(1 << n * n) - 1 ^ sum(1 << v * n + v for v in range(n)),
        repeat=repeat,
        first=tuple((d * n, spread_out(ahead, n) * row, spread_out(back, n) * row) for d, ahead, back in lattice.axes),
        second=tuple((d, repeat * ahead, repeat * back) for d, ahead, back in lattice.axes),
        alone=(_scaled(lattice.axes[0], n), _scaled(lattice.axes[1], n)),
    )


class Layers:
    """The states first reached at each time, computed as far as somebody asks.

    Every legal step may be turned round, so the layers from the goals are the exact costs to go.
    """

    def __init__(
        self, board: Board, states: tuple[int, int], *, waits: bool = True, via: tuple[int, int] | None = None
    ) -> None:
        n = board.n
        plane = plane_of(board.lattice)
        self._plane, self.waits = plane, waits
        self.free_of_first = spread_out(board.free, n)
        """The free cells as states, the second agent's cell taken out."""
        free = self.free_of_first * board.free & plane.apart
        start = 1 << states[0] * n + states[1]
        self._unseen = [free] if via is None else [free] * 4
        self._promotions: list[tuple[int, int, int]] = []
        here = NOBODY
        if via is not None:
            at_first, at_second = ((1 << n) - 1) << via[0] * n, plane.repeat << via[1]
            self._promotions = [
                (NOBODY, FIRST, at_first),
                (SECOND, BOTH, at_first),
                (NOBODY, SECOND, at_second),
                (FIRST, BOTH, at_second),
            ]
            here = (FIRST if states[0] == via[0] else NOBODY) | (SECOND if states[1] == via[1] else NOBODY)
        layer = [0] * len(self._unseen)
        layer[here] = start
        self._unseen[here] &= ~start
        self.found = [layer]
        self._complete = False

    def at(self, time: int) -> list[int] | None:
        """The layer of a time, by who has been at the intermediate goal; None once all are found."""
        found = self.found
        while time >= len(found):
            if self._complete:
                return None
            layer = self._next(found[-1])
            if any(layer):
                found.append(layer)
            else:
                self._complete = True
        return found[time]

    def _next(self, layer: list[int]) -> list[int]:
        if len(layer) == 1:
            fresh_states = step(self._plane, layer[0], self.waits) & self._unseen[0]
            self._unseen[0] ^= fresh_states
            return [fresh_states]
        reached = [step(self._plane, states, self.waits) if states else 0 for states in layer]
        for source, target, cells in self._promotions:
            promoted = reached[source] & cells
            reached[target] |= promoted
            reached[source] ^= promoted
        fresh = [states & unseen for states, unseen in zip(reached, self._unseen, strict=True)]
        self._unseen = [unseen ^ states for states, unseen in zip(fresh, self._unseen, strict=True)]
        return fresh


def costs_to_go(board: Board, goals: tuple[int, int], objective: Objective) -> NDArray[np.int32]:
    """The optimal cost of two agents from every joint state to their goals: shape (n, n), UNREACHABLE if none."""
    levels = _makespan_levels(board, goals) if objective == "makespan" else _soc_levels(board, goals)
    states = board.n**2
    table = np.full(states, UNREACHABLE, dtype=np.int32)
    for cost, level in levels:
        bits = np.frombuffer(level.to_bytes(-(-states // 8), "little"), dtype=np.uint8)
        table[np.unpackbits(bits, count=states, bitorder="little").view(bool)] = cost
    return table.reshape(board.n, board.n)


def _makespan_levels(board: Board, goals: tuple[int, int]) -> Iterator[tuple[int, int]]:
    layers = Layers(board, goals)
    for time in count():
        layer = layers.at(time)
        if layer is None:
            return
        yield time, layer[NOBODY]


def _soc_levels(board: Board, goals: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """(cost, the states with that cost to go); states in which one agent is at its goal begin them."""
    n, plane = board.n, plane_of(board.lattice)
    unseen = spread_out(board.free, n) * board.free & plane.apart
    parked = [cells << goals[0] * n for cells in board.layers(goals[1], 1 << goals[0])]
    levels: dict[int, int] = dict(enumerate(parked))
    for cost, cells in enumerate(board.layers(goals[0], 1 << goals[1])):
        levels[cost] = levels.get(cost, 0) | spread_out(cells, n) << goals[1]
    cost = 0
    while levels:
        level = levels.pop(cost, 0) & unseen
        if level:
            unseen ^= level
            yield cost, level
            levels[cost + 2] = levels.get(cost + 2, 0) | step(plane, level, True)
        cost += 1


def step(plane: Plane, states: int, waits: bool) -> int:
    """All states one step away; those in holes or with both agents in one cell are left for the caller to take out.

    The first agent moves, then the second. Where the first has come into the second's cell (the diagonal), the second
    may not go where the first came from: that would be a swap.
    """
    (d, a_ahead, a_back), (e, a_below, a_above) = plane.first
    (s, b_ahead, b_back), (t, b_below, b_above) = plane.second
    ahead, back = (states & a_ahead) << d, (states & a_back) >> d
    below, above = (states & a_below) << e, (states & a_above) >> e
    across, along = ahead | back, below | above
    moved = across | along | states if waits else across | along
    apart = moved & plane.apart
    reached = (
        ((apart | ahead | along) & b_ahead) << s
        | ((apart | back | along) & b_back) >> s
        | ((apart | below | across) & b_below) << t
        | ((apart | above | across) & b_above) >> t
    )
    return reached | apart if waits else reached
