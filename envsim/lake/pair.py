"""Two agents, exactly: makespan, sum of costs, both without waits, and the cheapest plan of a given makespan.

All of it is read off the same layers of joint states. Both agents move until one has arrived for good; what the other
then has to go is its distance around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envsim.lake.grid import Board, flood
from envsim.lake.joint import BOTH, FIRST, NOBODY, SECOND, Layers, plane_of
from envsim.lake.search import UNREACHABLE, LimitReached, Objective, Result, Solved, Unsolvable

State = tuple[int, int, int]
"""(the first agent's cell, the second's, who has been at the intermediate goal)."""


class _Arrival(NamedTuple):
    """An agent arrives for good; the other finishes from any of ``cells`` in ``left`` steps."""

    time: int
    parked: int
    been: int
    left: int
    cells: int


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
        self._free_of_first = 0
        self._ends: dict[tuple[int, bool], list[int]] = {}

    def cheapest(
        self,
        objective: Objective,
        *,
        limit: int,
        waits: bool = True,
        most: int | None = None,
        horizon: int | None = None,
        least: int = 0,
    ) -> Result:
        """The cheapest plan by makespan or sum of costs, of cost at most ``most`` and makespan at most ``horizon``.

        ``limit`` is the most joint states to look at, ``least`` a cost below which there is known to be no plan.

        Both agents move until one has arrived for good; the other then goes its shortest way around it. Among plans of
        one cost the one that comes to this soonest is taken, which of the shortest plans is a cheapest.
        """
        weight = 1 if objective == "makespan" else 2
        ceiling = UNREACHABLE if most is None else most + 1
        latest = UNREACHABLE if horizon is None else horizon
        layers = self._layers.get(waits)
        if layers is None:
            layers = self._layers[waits] = Layers(self._board, self._starts, waits=waits, via=self._via)
        self._free_of_first = layers.free_of_first
        arrivals = self._arrivals()
        best: _Arrival | None = None
        time = expanded = 0
        while weight * time < ceiling > least and time <= latest and (layer := layers.at(time)) is not None:
            if expanded > limit:
                return LimitReached(weight * time, expanded)
            for parked, been, states_there, shift in arrivals:
                arrived = layer[been] & states_there
                if not arrived:
                    continue
                cells = arrived >> shift
                for left, end in enumerate(self._ends_of(1 - parked, been)):
                    if weight * time + left >= ceiling or time + left > latest:
                        break
                    if cells & end:
                        ceiling = weight * time + left
                        best = _Arrival(time, parked, been, left, cells & end)
                        break
            expanded += sum([states.bit_count() for states in layer])
            time += 1
        if best is None:
            return Unsolvable(expanded)
        return Solved(ceiling, self._plan(layers, best), expanded)

    def _arrivals(self) -> list[tuple[int, int, int, int]]:
        """(the agent that has arrived for good, who has been at the intermediate goal, all states with that agent at
        its goal, how far to shift those to have the other's cells: bits v, or v * n for the first agent)."""
        n, (first, second) = self._board.n, self._goals
        one = ((1 << n) - 1) << first * n, first * n
        other = plane_of(self._board.lattice).repeat << second, second
        if self._via is None:
            return [(0, NOBODY, *one), (1, NOBODY, *other)]
        return [(0, FIRST, *one), (0, BOTH, *one), (1, SECOND, *other), (1, BOTH, *other)]

    def _ends_of(self, agent: int, been: int) -> list[int]:
        """By steps left, the cells from which an agent finishes in so many around the other, which is at its goal."""
        done = self._via is None or bool(been >> agent & 1)
        found = self._ends.get((agent, done))
        if found is None:
            found = self._ends[agent, done] = self._new_ends(agent, done)
        return found

    def _new_ends(self, agent: int, done: bool) -> list[int]:
        unit = self._unit(agent)
        blocked = 1 << self._goals[1 - agent] * unit
        to_goal = self._flood(agent, self._goals[agent], blocked)
        if done or self._via is None:
            return to_goal
        here = 1 << self._via[agent] * unit
        rest = next((d for d, cells in enumerate(to_goal) if cells & here), None)
        if rest is None or here & blocked:
            return []
        return [0] * rest + self._flood(agent, self._via[agent], blocked)

    def _flood(self, agent: int, origin: int, blocked: int) -> list[int]:
        lattice = self._board.lattice
        if agent == 1:
            return flood(lattice.axes, self._board.free, 1 << origin, blocked)
        return flood(plane_of(lattice).alone, self._free_of_first, 1 << origin * self._board.n, blocked)

    def _unit(self, agent: int) -> int:
        """The first agent's cell v is bit v * n."""
        return 1 if agent else self._board.n

    def _plan(self, layers: Layers, end: _Arrival) -> list[list[int]]:
        parked, walker = end.parked, 1 - end.parked
        other = ((end.cells & -end.cells).bit_length() - 1) // self._unit(walker)
        state = (self._goals[0], other, end.been) if parked == 0 else (other, self._goals[1], end.been)
        plan = self._way_to(layers, end.time, state)
        rest = self._way_home(walker, end.been, other, end.left)
        plan[walker] += rest
        plan[parked] += [self._goals[parked]] * len(rest)
        return plan

    def _way_home(self, walker: int, been: int, here: int, left: int) -> list[int]:
        """The cells of the last agent's way after ``here``."""
        unit, neighbours = self._unit(walker), self._board.lattice.neighbours
        ends = self._ends_of(walker, been)
        rest: list[int] = []
        while left:
            left -= 1
            if not ends[left]:
                ends = self._ends_of(walker, BOTH)
            here = next(there for there in neighbours[here] if ends[left] >> there * unit & 1)
            rest.append(here)
        return rest

    def _way_to(self, layers: Layers, time: int, state: State) -> list[list[int]]:
        """Both paths from the starts to a joint state of a layer."""
        paths = [[state[0]], [state[1]]]
        while time:
            time -= 1
            state = self._before(layers.found[time], state, waits=layers.waits)
            paths[0].append(state[0])
            paths[1].append(state[1])
        return [path[::-1] for path in paths]

    def _before(self, layer: list[int], state: State, *, waits: bool) -> State:
        """A state of the layer before, one legal step away."""
        n, masks = self._board.n, self._board.lattice.masks
        a, b, _ = state
        near_a, near_b = (masks[a] | 1 << a, masks[b] | 1 << b) if waits else (masks[a], masks[b])
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

    def _earlier(self, state: State) -> list[int]:
        """Who may have been at the intermediate goal one step before."""
        a, b, been = state
        found = [been]
        if self._via is not None:
            if a == self._via[0]:
                found += [been & ~FIRST for been in found]
            if b == self._via[1]:
                found += [been & ~SECOND for been in found]
        return found
