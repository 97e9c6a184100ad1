"""Two agents at once, exactly: every joint state at a time is one bit of one integer.

A step of both agents from *all* states of a time is then some thirty integer operations, whatever the number of states,
so breadth-first search over the joint space answers every question about two agents from the same layers: optimal
makespan, optimal sum of costs, both without waits, and the cheapest plan of a given makespan. The layers are finite, so
an empty one proves that there is no plan.

The bit of state (a, b) is ``a * n + b``, n the number of cells. For agents with an intermediate goal (``via``) there is
one such integer for each of the four combinations of who has been there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np

from envsim.lake.grid import Board, Lattice
from envsim.lake.search import UNREACHABLE, LimitReached, Objective, Result, Solved, Unsolvable

NOBODY, FIRST, SECOND, BOTH = range(4)
"""Who has been at the intermediate goal."""


@dataclass(frozen=True, slots=True)
class _Plane:
    """The joint space of one lattice: for each axis the distance and the states in which an agent can move so."""

    diagonal: int
    repeat: int
    """One bit at the start of each row of n bits: a multiplication puts a set of cells into every row."""
    first: tuple[tuple[int, int, int], ...]
    second: tuple[tuple[int, int, int], ...]


def _spread_out(cells: int, n: int) -> int:
    """The cells of the first agent as states: bit v goes to bit v * n."""
    return int(format(cells, "b").replace("0", "0" * n).replace("1", "0" * (n - 1) + "1"), 2)


@lru_cache(maxsize=64)
def _plane(lattice: Lattice) -> _Plane:
    n = lattice.rows * lattice.columns
    row = (1 << n) - 1
    repeat = _spread_out(row, n)
    return _Plane(
        diagonal=sum(1 << v * n + v for v in range(n)),
        repeat=repeat,
        first=tuple(
            (d * n, _spread_out(ahead, n) * row, _spread_out(back, n) * row) for d, ahead, back in lattice.axes
        ),
        second=tuple((d, repeat * ahead, repeat * back) for d, ahead, back in lattice.axes),
    )


class Layers:
    """The states first reached at each time, computed as far as somebody asks.

    Every legal step may be turned round, so the layers from the goals are the exact costs to go.
    """

    def __init__(
        self, board: Board, states: tuple[int, int], *, waits: bool = True, via: tuple[int, int] | None = None
    ) -> None:
        n = board.n
        plane = _plane(board.lattice)
        self._plane, self.waits = plane, waits
        free = _spread_out(board.free, n) * board.free & ~plane.diagonal
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

    def at(self, time: int) -> list[int] | None:
        """The layer of a time, by who has been at the intermediate goal; None once all are found."""
        while len(self.found) <= time:
            if not any(self.found[-1]):
                return None
            self.found.append(self._next(self.found[-1]))
        return self.found[time] if any(self.found[time]) else None

    def _next(self, layer: list[int]) -> list[int]:
        reached = [step(self._plane, states, self.waits) if states else 0 for states in layer]
        for source, target, cells in self._promotions:
            promoted = reached[source] & cells
            reached[target] |= promoted
            reached[source] ^= promoted
        for k, states in enumerate(reached):
            reached[k] = states & self._unseen[k]
            self._unseen[k] ^= reached[k]
        return reached


def costs_to_go(board: Board, goals: tuple[int, int], objective: Objective) -> list[int]:
    """The optimal cost of two agents from every joint state (a, b) to their goals, at index a * n + b."""
    levels = _makespan_levels(board, goals) if objective == "makespan" else _soc_levels(board, goals)
    states = board.n**2
    table = np.full(states, UNREACHABLE, dtype=np.int32)
    for cost, level in levels:
        bits = np.frombuffer(level.to_bytes(-(-states // 8), "little"), dtype=np.uint8)
        table[np.unpackbits(bits, count=states, bitorder="little").view(bool)] = cost
    found: list[int] = table.tolist()
    return found


def _makespan_levels(board: Board, goals: tuple[int, int]) -> Iterator[tuple[int, int]]:
    layers = Layers(board, goals)
    for time in count():
        layer = layers.at(time)
        if layer is None:
            return
        yield time, layer[NOBODY]


def _soc_levels(board: Board, goals: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """(cost, the states with that cost to go); states in which one agent is at its goal begin them."""
    n, plane = board.n, _plane(board.lattice)
    unseen = _spread_out(board.free, n) * board.free & ~plane.diagonal
    parked = [cells << goals[0] * n for cells in board.layers(goals[1], 1 << goals[0])]
    levels: dict[int, int] = dict(enumerate(parked))
    for cost, cells in enumerate(board.layers(goals[0], 1 << goals[1])):
        levels[cost] = levels.get(cost, 0) | _spread_out(cells, n) << goals[1]
    cost = 0
    while levels:
        level = levels.pop(cost, 0) & unseen
        if level:
            unseen ^= level
            yield cost, level
            levels[cost + 2] = levels.get(cost + 2, 0) | step(plane, level, True)
        cost += 1


def step(plane: _Plane, states: int, waits: bool) -> int:
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
    apart = moved & ~plane.diagonal
    reached = (
        ((apart | ahead | along) & b_ahead) << s
        | ((apart | back | along) & b_back) >> s
        | ((apart | below | across) & b_below) << t
        | ((apart | above | across) & b_above) >> t
    )
    return reached | apart if waits else reached


class Pair:
    """Every question about two agents that stay at their goals; layers are shared between the questions.

    Parameters
    ----------
    via
        A cell for each agent that it must have been in before its last arrival.
    """

    def __init__(
        self, board: Board, starts: Sequence[int], goals: Sequence[int], *, via: Sequence[int] | None = None
    ) -> None:
        self._board = board
        self._starts, self._goals = (starts[0], starts[1]), (goals[0], goals[1])
        self._via = None if via is None else (via[0], via[1])
        self._layers: dict[bool, Layers] = {}
        self._own: dict[tuple[int, bool], list[int]] = {}
        self._ends: dict[tuple[int, bool], list[int]] = {}

    def cheapest(
        self,
        objective: Objective,
        *,
        limit: int,
        waits: bool = True,
        most: int | None = None,
        horizon: int | None = None,
    ) -> Result:
        """The cheapest plan by makespan or sum of costs, of cost at most ``most`` and makespan at most ``horizon``.

        ``limit`` is the most joint states to look at.

        Both agents move until one has arrived for good; the other then goes its shortest way around it. Among plans of
        one cost the one that comes to this soonest is taken, which of the shortest plans is a cheapest.
        """
        weight = 1 if objective == "makespan" else 2
        ceiling = UNREACHABLE if most is None else most + 1
        latest = UNREACHABLE if horizon is None else horizon
        layers = self._layers.get(waits)
        if layers is None:
            layers = self._layers[waits] = Layers(self._board, self._starts, waits=waits, via=self._via)
        best: tuple[int, int, int, int, int] | None = None
        time = expanded = 0
        while weight * time < ceiling and time <= latest and (layer := layers.at(time)) is not None:
            if expanded > limit:
                return LimitReached(weight * time, expanded)
            for parked, been in self._arrivals():
                states = layer[been]
                if not states:
                    continue
                cells = self._others(states, parked)
                if not cells:
                    continue
                for left, end in enumerate(self._ends_of(1 - parked, been)):
                    if weight * time + left >= ceiling or time + left > latest:
                        break
                    if cells & end:
                        ceiling = weight * time + left
                        best = (time, parked, been, left, cells & end)
                        break
            expanded += sum([states.bit_count() for states in layer])
            time += 1
        if best is None:
            return Unsolvable(expanded)
        return Solved(ceiling, self._plan(layers, *best), expanded)

    def _arrivals(self) -> tuple[tuple[int, int], ...]:
        """(the agent that has arrived for good, who has been at the intermediate goal)."""
        if self._via is None:
            return ((0, NOBODY), (1, NOBODY))
        return ((0, FIRST), (0, BOTH), (1, SECOND), (1, BOTH))

    def _others(self, states: int, parked: int) -> int:
        """Where the other agent is in those states in which one is at its goal: bits v, or v * n for the first agent."""
        n = self._board.n
        if parked == 0:
            return states >> self._goals[0] * n & ((1 << n) - 1)
        return states >> self._goals[1] & _plane(self._board.lattice).repeat

    def _ends_of(self, agent: int, been: int) -> list[int]:
        """The same as states: for the first agent spread out."""
        done = self._via is None or bool(been >> agent & 1)
        found = self._ends.get((agent, done))
        if found is None:
            found = self._own_layers(agent, done)
            if agent == 0:
                found = [_spread_out(cells, self._board.n) for cells in found]
            self._ends[agent, done] = found
        return found

    def _own_layers(self, agent: int, done: bool) -> list[int]:
        """By steps left, the cells from which an agent finishes on its own around the other's goal."""
        found = self._own.get((agent, done))
        if found is None:
            found = self._own[agent, done] = self._new_layers(agent, done)
        return found

    def _new_layers(self, agent: int, done: bool) -> list[int]:
        blocked = 1 << self._goals[1 - agent]
        to_goal = self._board.layers(self._goals[agent], blocked)
        if done or self._via is None:
            return to_goal
        here = 1 << self._via[agent]
        rest = next((d for d, cells in enumerate(to_goal) if cells & here), None)
        if rest is None or here & blocked:
            return []
        return [0] * rest + self._board.layers(self._via[agent], blocked)

    def _plan(self, layers: Layers, time: int, parked: int, been: int, left: int, cells: int) -> list[list[int]]:
        n = self._board.n
        other = (cells & -cells).bit_length() - 1
        state = (self._goals[0], other) if parked == 0 else (other // n, self._goals[1])
        plan = self._way_to(layers, time, state, been)
        walker = 1 - parked
        v, masks = state[walker], self._board.lattice.masks
        done = self._via is None or bool(been >> walker & 1)
        rest: list[int] = []
        while left:
            left -= 1
            ahead = masks[v] & self._own_cells(walker, done, left)
            if not ahead and self._via is not None:
                done = True
                ahead = masks[v] & self._own_cells(walker, done, left)
            v = (ahead & -ahead).bit_length() - 1
            rest.append(v)
        plan[walker] += rest
        plan[parked] += [self._goals[parked]] * len(rest)
        return plan

    def _own_cells(self, agent: int, done: bool, left: int) -> int:
        layers = self._own_layers(agent, done)
        return layers[left] if left < len(layers) else 0

    def _way_to(self, layers: Layers, time: int, state: tuple[int, int], been: int) -> list[list[int]]:
        """Both paths from the starts to a joint state of a layer."""
        n, masks = self._board.n, self._board.lattice.masks
        a, b = state
        paths = [[a], [b]]
        while time:
            time -= 1
            near_a, near_b = masks[a], masks[b]
            if layers.waits:
                near_a, near_b = near_a | 1 << a, near_b | 1 << b
            a, b, been = self._before(layers.found[time], (a, b, been), near_a, near_b, n)
            paths[0].append(a)
            paths[1].append(b)
        return [path[::-1] for path in paths]

    def _before(
        self, layer: list[int], state: tuple[int, int, int], near_a: int, near_b: int, n: int
    ) -> tuple[int, int, int]:
        """A state of the layer before, one legal step away."""
        a, b, been = state
        for earlier in self._earlier(state):
            states = layer[earlier]
            options = near_a if states else 0
            while options:
                bit = options & -options
                options ^= bit
                u = bit.bit_length() - 1
                row = states >> u * n & near_b
                if u == b:
                    row &= ~(1 << a)
                if row:
                    return u, (row & -row).bit_length() - 1, earlier
        raise AssertionError(f"state {state} was reached from nowhere")

    def _earlier(self, state: tuple[int, int, int]) -> list[int]:
        """Who may have been at the intermediate goal one step before."""
        a, b, been = state
        found = [been]
        if self._via is not None:
            if a == self._via[0]:
                found += [been & ~FIRST for been in found]
            if b == self._via[1]:
                found += [been & ~SECOND for been in found]
        return found
