"""``solve``: an optimal plan by the cheapest exact means. Two agents go straight to the search.

For more agents: a lower bound from all pairs, solved on their own; prioritised plans, optimal if they meet the bound;
then joint search under exact tables of pairs, asked only for something better than the best plan so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from envsim.lake.grid import Board, collide
from envsim.lake.pairs import makespan_bound, soc_bound
from envsim.lake.prioritized import plans
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable, search

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
) -> Result:
    """The cheapest plan by makespan or by sum of costs; the parameters are those of ``search``."""
    if len(starts) < 3:
        return search(board, starts, goals, objective, limit=limit, most=most, horizon=horizon, waits=waits)
    bound = lower_bound(board, starts, goals, objective, limit)
    if isinstance(bound, Unsolvable):
        return bound
    best = _prioritised(board, starts, goals, objective, bound=bound, most=most, horizon=horizon, waits=waits)
    if best is not None and best.cost <= bound:
        return best
    pairs = (makespan_bound if objective == "makespan" else soc_bound)(board, goals)
    ceiling = most if best is None else best.cost - 1
    found = search(
        board, starts, goals, objective, limit=limit, most=ceiling, horizon=horizon, waits=waits, pairs=pairs
    )
    if best is not None and isinstance(found, Unsolvable):
        return Solved(best.cost, best.plan, found.expanded)
    return found


def lower_bound(
    board: Board, starts: Sequence[int], goals: Sequence[int], objective: Objective, limit: int
) -> int | Unsolvable:
    """What all plans cost at least, from the agents two by two; Unsolvable if some two have no plan."""
    distance = [board.distances(goal)[start] for start, goal in zip(starts, goals, strict=True)]
    if min(distance) < 0:
        return Unsolvable(0)
    paths = [board.first_path(s, board.layers(g)) or [s] for s, g in zip(starts, goals, strict=True)]
    excesses = []
    largest = max(distance)
    for i, j in combinations(range(len(starts)), 2):
        if not collide([paths[i], paths[j]]):
            continue
        found = search(board, [starts[i], starts[j]], [goals[i], goals[j]], objective, limit=limit)
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
        horizons = [enough] if most is not None else list(range(bound, bound + SLACK))
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
