"""``solve``: an optimal plan by the cheapest exact means.

One or two agents are answered directly. For more: a lower bound from all pairs, solved on their own; prioritised plans,
optimal if they meet the bound; a little conflict-based search where many agents meet seldom; then deepening on exact
tables of pairs. Whether there is a plan at all is decided by what ends: for three agents by where they can get at all,
for more by joint search.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from envsim.lake import deepening, triple
from envsim.lake.cbs import cbs
from envsim.lake.grid import Board, collide
from envsim.lake.joint import costs_to_go
from envsim.lake.pair import Pair
from envsim.lake.prioritized import plans
from envsim.lake.search import UNREACHABLE, Bound, LimitReached, Objective, Result, Solved, Unsolvable, search

ORDERS = 60
ORDERS_SOC = 6
SLACK = 8
"""Steps beyond the longest distance that a prioritised plan of low sum of costs may take."""
CBS_AGENTS = 4
CBS_NODES = 30
"""Conflict-based search is tried from so many agents on, up to so many nodes: with fewer the rest is quicker."""
FLOOD_CELLS = 144
"""Flooding the joint space of three agents takes integers of the cube of this in bits."""
DEEPENINGS = 2
"""Makespans that deepening tries before it is asked whether there is a plan at all."""


class _Question(NamedTuple):
    board: Board
    starts: Sequence[int]
    goals: Sequence[int]
    limit: int
    horizon: int | None
    waits: bool


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
    if most is not None and bound > most:
        return Unsolvable(0)
    question = _Question(board, starts, goals, limit, horizon, waits)
    answer = _makespan if objective == "makespan" else _sum_of_costs
    return answer(question, bound, most)


def lower_bound(
    board: Board, starts: Sequence[int], goals: Sequence[int], objective: Objective, limit: int
) -> int | Unsolvable:
    """What all plans cost at least, from the agents two by two; Unsolvable if some two have no plan."""
    paths = [board.path(start, goal) for start, goal in zip(starts, goals, strict=True)]
    reachable = [path for path in paths if path is not None]
    if len(reachable) < len(paths):
        return Unsolvable(0)
    distance = [len(path) - 1 for path in reachable]
    weights = []
    largest = max(distance)
    for i in range(len(starts)):
        for j in range(i):
            beyond = 0
            if collide([reachable[i], reachable[j]]):
                own = distance[i] + distance[j] if objective == "soc" else max(distance[i], distance[j])
                pair = Pair(board, (starts[j], starts[i]), (goals[j], goals[i]))
                found = pair.cheapest(objective, limit=limit, least=own)
                if isinstance(found, Unsolvable):
                    return found
                cost = found.lower_bound if isinstance(found, LimitReached) else found.cost
                largest = max(largest, cost)
                beyond = max(0, cost - distance[i] - distance[j])
            weights.append(beyond)
    if objective == "makespan":
        return largest
    return sum(distance) + (deepening.smallest_cover(tuple(weights)) if any(weights) else 0)


def makespan_bound(board: Board, goals: Sequence[int]) -> Bound:
    """The largest of the exact makespans of all pairs."""
    pairs = combinations(range(len(goals)), 2)
    tables = [(i, j, costs_to_go(board, (goals[i], goals[j]), "makespan").tolist()) for i, j in pairs]

    def bound(cells: Sequence[int], _finished: int) -> int:
        largest: int = max([table[cells[i]][cells[j]] for i, j, table in tables])
        return largest

    return bound


def _makespan(question: _Question, bound: int, most: int | None) -> Result:
    board, starts, goals, limit, _, waits = question
    quick = next(plans(board, starts, goals, bound, waits=waits, orders=ORDERS), None)
    if quick is not None:
        return Solved(bound, quick, 0)
    last = bound + DEEPENINGS - 1 if most is None else min(most, bound + DEEPENINGS - 1)
    found = deepening.makespan(board, starts, goals, first=bound, last=last, limit=limit, waits=waits)
    if not isinstance(found, Unsolvable) or last == most:
        return found
    if len(starts) == 3 and waits and board.n <= FLOOD_CELLS:
        if not triple.solvable(board, starts, goals):
            return found
        final = UNREACHABLE if most is None else most
        return deepening.makespan(board, starts, goals, first=last + 1, last=final, limit=limit, waits=waits)
    pairs = makespan_bound(board, goals)
    return search(board, starts, goals, "makespan", limit=limit, most=most, waits=waits, pairs=pairs)


def _sum_of_costs(question: _Question, bound: int, most: int | None) -> Result:
    board, starts, goals, limit, horizon, waits = question
    best = _quick_plan(question, bound, most)
    if best is not None and best.cost <= bound:
        return best
    if best is None and most is None:
        any_plan = solve(board, starts, goals, "makespan", limit=limit, waits=waits)
        if not isinstance(any_plan, Solved):
            return any_plan
        best = Solved(_cost(any_plan.plan), any_plan.plan, any_plan.expanded)
    last = best.cost - 1 if best is not None else most
    assert last is not None, "without a bound on the cost there is a plan"
    if waits and len(starts) >= CBS_AGENTS:
        # No plan of at most that cost takes longer than if one agent alone paid all that is beyond the distances.
        latest = _longest_of(last, [board.distances(g)[s] for s, g in zip(starts, goals, strict=True)])
        latest = latest if horizon is None else min(latest, horizon)
        found = cbs(board, starts, goals, "soc", limit=CBS_NODES, horizon=latest, most=last)
        if isinstance(found, Solved):
            return found
        if isinstance(found, Unsolvable):
            return found if best is None else best
    found = deepening.sum_of_costs(
        board, starts, goals, first=bound, last=last, limit=limit, waits=waits, horizon=horizon
    )
    return best if best is not None and isinstance(found, Unsolvable) else found


def _longest_of(cost: int, distances: Sequence[int]) -> int:
    return cost - sum(distances) + max(distances)


def _quick_plan(question: _Question, bound: int, most: int | None) -> Solved | None:
    """The best of some prioritised plans, the first that meets the bound."""
    board, starts, goals, _, horizon, waits = question
    if horizon is None:
        horizon = SLACK + max(board.distances(goal)[start] for start, goal in zip(starts, goals, strict=True))
    best: Solved | None = None
    for plan in plans(board, starts, goals, horizon, waits=waits, orders=ORDERS_SOC):
        cost = _cost(plan)
        if (best is None or cost < best.cost) and (most is None or cost <= most):
            best = Solved(cost, plan, 0)
            if cost <= bound:
                break
    return best


def _cost(plan: Sequence[Sequence[int]]) -> int:
    """The sum of the last arrivals."""
    total = 0
    for path in plan:
        t = len(path) - 1
        while t and path[t - 1] == path[-1]:
            t -= 1
        total += t
    return total
