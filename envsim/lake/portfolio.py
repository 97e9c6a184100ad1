"""``solve``: an optimal plan by the cheapest exact means. Two agents go straight to the search.

For more agents: a lower bound from all pairs, solved on their own; prioritised plans, optimal if they meet the bound;
then joint search under exact tables of pairs, asked only for something better than the best plan so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from envsim.lake import deepening
from envsim.lake.grid import Board, collide
from envsim.lake.joint import Pair
from envsim.lake.pairs import makespan_bound
from envsim.lake.prioritized import plans
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable, search

DEEPENINGS = 2
"""Makespans that deepening tries; joint search then goes on, because it can prove that there is no plan at all."""
SLACK = 8
"""Steps beyond its lower bound that a prioritised plan may take."""


def solve(
    board: Board,
    starts: Sequence[int],
    goals: Sequence[int],
    objective: Objective,
    *,
    limit: int,
    most: int | None = None,
    horizon: int | None = None,
    waits: bool = True,
    least: int = 0,
) -> Result:
    """The cheapest plan by makespan or by sum of costs; the parameters are those of ``search``.

    ``least`` is a cost below which there is known to be none.
    """
    if len(starts) == 1:
        return search(board, starts, goals, objective, limit=limit, most=most, horizon=horizon, waits=waits)
    if len(starts) == 2:
        return Pair(board, starts, goals).cheapest(objective, limit=limit, most=most, horizon=horizon, waits=waits)
    bound = lower_bound(board, starts, goals, objective, limit)
    if isinstance(bound, Unsolvable):
        return bound
    bound = max(bound, least)
    best = _prioritised(board, starts, goals, objective, bound=bound, most=most, horizon=horizon, waits=waits)
    if best is not None and best.cost <= bound:
        return best
    if objective == "makespan":
        found = _makespan(board, starts, goals, bound=bound, most=most, limit=limit, waits=waits)
        return found
    if best is None and most is None:
        any_plan = solve(board, starts, goals, "makespan", limit=limit, waits=waits)
        if not isinstance(any_plan, Solved):
            return any_plan
        best = Solved(_sum_of_costs(any_plan.plan), any_plan.plan, any_plan.expanded)
    last = best.cost - 1 if best is not None else most
    assert last is not None
    found = deepening.sum_of_costs(
        board, starts, goals, first=bound, last=last, limit=limit, waits=waits, horizon=horizon
    )
    if best is not None and isinstance(found, Unsolvable):
        return Solved(best.cost, best.plan, found.expanded)
    return found


def _makespan(
    board: Board, starts: Sequence[int], goals: Sequence[int], *, bound: int, most: int | None, limit: int, waits: bool
) -> Result:
    last = bound + DEEPENINGS - 1 if most is None else min(most, bound + DEEPENINGS - 1)
    found = deepening.makespan(board, starts, goals, first=bound, last=last, limit=limit, waits=waits)
    if not isinstance(found, Unsolvable) or last == most:
        return found
    left = limit - found.expanded
    pairs = makespan_bound(board, goals)
    return search(board, starts, goals, "makespan", limit=left, most=most, waits=waits, pairs=pairs)


def lower_bound(
    board: Board, starts: Sequence[int], goals: Sequence[int], objective: Objective, limit: int
) -> int | Unsolvable:
    """What all plans cost at least, from the agents two by two; Unsolvable if some two have no plan."""
    distance = [board.distances(goal)[start] for start, goal in zip(starts, goals, strict=True)]
    if min(distance) < 0:
        return Unsolvable(0)
    paths = [board.path(s, g) or [s] for s, g in zip(starts, goals, strict=True)]
    excesses = []
    largest = max(distance)
    for i, j in combinations(range(len(starts)), 2):
        if not collide([paths[i], paths[j]]):
            continue
        found = Pair(board, (starts[i], starts[j]), (goals[i], goals[j])).cheapest(objective, limit=limit)
        if isinstance(found, Unsolvable):
            return found
        cost = found.lower_bound if isinstance(found, LimitReached) else found.cost
        largest = max(largest, cost)
        excesses.append(cost - distance[i] - distance[j])
    if objective == "makespan":
        return largest
    return sum(distance) + max([0, -(-sum(excesses) // (len(starts) - 1)), *excesses])


def _prioritised(
    board: Board,
    starts: Sequence[int],
    goals: Sequence[int],
    objective: Objective,
    *,
    bound: int,
    most: int | None,
    horizon: int | None,
    waits: bool,
) -> Solved | None:
    """The best plan of many orders, stopping at the first that meets the bound (or ``most``)."""
    enough = bound if most is None else most
    best: Solved | None = None
    longest = max(board.distances(goal)[start] for start, goal in zip(starts, goals, strict=True))
    if objective == "soc":
        horizons = [horizon if horizon is not None else longest + SLACK]
    else:
        horizons = [enough]
    for steps in horizons:
        for plan in plans(board, starts, goals, steps, waits=waits):
            cost = len(plan[0]) - 1 if objective == "makespan" else _sum_of_costs(plan)
            if (best is None or cost < best.cost) and (most is None or cost <= most):
                best = Solved(cost, plan, 0)
                if cost <= enough:
                    return best
        if best is not None:
            break
    return best


def _sum_of_costs(plan: Sequence[Sequence[int]]) -> int:
    total = 0
    for path in plan:
        t = len(path) - 1
        while t and path[t - 1] == path[-1]:
            t -= 1
        total += t
    return total
