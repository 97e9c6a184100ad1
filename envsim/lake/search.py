"""Exact joint-space A* with operator decomposition, for any number of agents.

One search serves both objectives. A state is the agents' cells at a time, the cells already chosen for the next time
(one agent after the other: operator decomposition) and the set of agents that have finished: they park at their goals
for good, and time costs them nothing more. The state space is finite, so an empty queue proves that there is no plan.
Limits are counts of expanded states, never seconds.

References: Standley, "Finding Optimal Solutions to Cooperative Pathfinding Problems", AAAI 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from envsim.lake.grid import Board

Objective = Literal["makespan", "soc"]
UNREACHABLE = 1 << 20
"""Cost to go where there is no plan."""

GONE = -1
"""The cell of an agent that has disappeared at its goal (a variant that only some published instances use)."""


@dataclass(frozen=True, slots=True)
class Solved:
    """An optimal plan: for each agent its cells (numbers), all of one length; ``cost`` by the objective asked for."""

    cost: int
    plan: list[list[int]]
    expanded: int


@dataclass(frozen=True, slots=True)
class Unsolvable:
    """Proof that there is no plan (below the bound, if one was given)."""

    expanded: int


@dataclass(frozen=True, slots=True)
class LimitReached:
    """No answer: the search expanded its limit of states. Every plan costs at least ``lower_bound``."""

    lower_bound: int
    expanded: int


Result = Solved | Unsolvable | LimitReached
State = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""(cells, cells chosen for the next time, finished agents as bits, time if there is a horizon, else 0)."""
Bound = Callable[[Sequence[int], int], int]
"""Admissible and consistent cost to go of the agents' cells at a whole time, given the finished agents."""


class _Moves(dict[int, list[int]]):
    """An agent's next cells by cell, the ones nearest to its goal last: the search takes the last first."""

    def __init__(self, board: Board, distance: Sequence[int], waits: bool) -> None:
        super().__init__()
        self._neighbours, self._distance, self._waits = board.neighbours, distance, waits

    def __missing__(self, here: int) -> list[int]:
        cells = [*self._neighbours[here], here] if self._waits else list(self._neighbours[here])
        self[here] = found = sorted(cells, key=self._distance.__getitem__, reverse=True)
        return found


def search(  # noqa: D417, PLR0912, PLR0915 - one loop without calls: this is the hot path of the solver
    board: Board,
    starts: Sequence[int],
    goals: Sequence[int],
    objective: Objective,
    *,
    limit: int,
    most: int | None = None,
    horizon: int | None = None,
    waits: bool = True,
    disappear: bool = False,
    pairs: Bound | None = None,
) -> Result:
    """The cheapest plan by makespan or by sum of costs.

    Parameters
    ----------
    limit
        Most states to expand.
    most
        Ask only for plans that cost at most this; ``Unsolvable`` then means that there is none.
    horizon
        Ask only for plans whose makespan is at most this.
    waits
        False forbids an agent to stay in a cell before it has finished.
    disappear
        Agents leave the map at their last arrival instead of staying.
    pairs
        A bound that raises h at whole times, e.g. from exact tables of pairs.

    Notes
    -----
    A* with the agents' own distances as h. Within a step the parent's f is a floor, which keeps h consistent. Ties go
    to the state generated last, so every run gives the same plan.
    """
    agents = len(starts)
    target = tuple(goals)
    makespan = objective == "makespan"
    parking = not makespan or not waits or disappear
    everyone = (1 << agents) - 1
    ceiling = UNREACHABLE if most is None else most + 1
    distance = [board.distances(goal) for goal in goals]
    own = [distance[i][start] for i, start in enumerate(starts)]
    if min(own) < 0 or (horizon is not None and max(own) > horizon):
        return Unsolvable(0)
    moves = [_Moves(board, row, waits) for row in distance]
    start: State = (tuple(starts), (), 0, 0)
    f = max(max(own) if makespan else sum(own), pairs(starts, 0) if pairs else 0)
    if f >= ceiling:
        return Unsolvable(0)
    parent: dict[State, State | None] = {start: None}
    best: dict[State, int] = {start: 0}
    closed: set[State] = set()
    buckets: dict[int, list[tuple[int, State]]] = {f: [(0, start)]}
    expanded = 0
    while buckets:
        bucket = buckets.get(f)
        if not bucket:
            buckets.pop(f, None)
            f += 1
            continue
        g, state = bucket.pop()
        if state in closed:
            continue
        cells, chosen, finished, time = state
        if not chosen:
            done = finished == everyone
            if makespan:
                done = all(cell in (GONE, goal) for cell, goal in zip(cells, target, strict=True))
            if done:
                return Solved(g, _plan(parent, state, goals), expanded)
        if expanded >= limit:
            return LimitReached(f, expanded)
        closed.add(state)
        expanded += 1
        i = len(chosen)
        here, goal = cells[i], goals[i]
        parked = GONE if disappear else goal
        if finished >> i & 1:
            options = [(parked, finished, 0)]
        else:
            options = [(there, finished, 1) for there in moves[i][here]]
            if parking and here == goal:
                options.append((parked, finished | 1 << i, 0))
        for there, now_finished, cost in options:
            if there != GONE and any(chosen[j] == there or (chosen[j] == here and cells[j] == there) for j in range(i)):
                continue
            if horizon is not None and cost and time + 1 + distance[i][there] > horizon:
                continue
            moved = (*chosen, there)
            if i < agents - 1:
                successor: State = (cells, moved, now_finished, time)
            else:
                successor = (moved, (), now_finished, time if horizon is None else time + 1)
            next_g = g + (i == 0 if makespan else cost)
            if successor in closed or best.get(successor, next_g + 1) <= next_g:
                continue
            togo = [
                0 if now_finished >> j & 1 else distance[j][moved[j]] if j <= i else distance[j][cells[j]] - makespan
                for j in range(agents)
            ]
            estimate = next_g + (max(togo) if makespan else sum(togo))
            if pairs is not None and i == agents - 1:
                estimate = max(estimate, next_g + pairs(moved, now_finished))
            if estimate >= ceiling:
                continue
            best[successor] = next_g
            parent[successor] = state
            buckets.setdefault(max(f, estimate), []).append((next_g, successor))
    return Unsolvable(expanded)


def _plan(parent: dict[State, State | None], state: State | None, goals: Sequence[int]) -> list[list[int]]:
    steps: list[list[int]] = []
    while state is not None:
        if not state[1]:
            steps.append([goal if cell == GONE else cell for cell, goal in zip(state[0], goals, strict=True)])
        state = parent[state]
    steps.reverse()
    # A sum of costs is paid up before the whole steps in which the agents only finish.
    while len(steps) > 1 and steps[-1] == steps[-2]:
        steps.pop()
    return [list(path) for path in zip(*steps, strict=True)]
