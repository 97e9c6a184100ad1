"""Layers of joint states against a plain search over every state, with and without intermediate goals."""

from __future__ import annotations

import heapq
import random
from itertools import product

from envsim_cases import Layout, layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.lake.grid import Board
from envsim.lake.pair import Pair
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable, search
from envsim.lake.triple import solvable
from envsim.lake.verifier import costs, has_wait, verify

BIG = 10**7
State = tuple[int, int, int, int]
"""(first agent's cell, second's, who has been at the intermediate goals, who has finished)."""


def plain_dijkstra(
    board: Board,
    starts: list[int],
    goals: list[int],
    via: list[int] | None,
    *,
    soc: bool,
    waits: bool = True,
    horizon: int | None = None,
) -> int | None:
    """The optimal cost by the definition alone: agents finish at their goals, time costs each unfinished agent 1."""
    stops = via or starts

    def been(before: int, cells: tuple[int, ...]) -> int:
        return before | sum(1 << i for i in range(2) if cells[i] == stops[i])

    first = (starts[0], starts[1], been(0 if via else 3, (starts[0], starts[1])), 0)
    best: dict[tuple[State, int], int] = {}
    queue: list[tuple[int, int, State]] = [(0, 0, first)]
    while queue:
        cost, time, (a, b, seen, done) = heapq.heappop(queue)
        key = ((a, b, seen, done), time if horizon is not None else 0)
        if best.get(key, cost + 1) <= cost:
            continue
        best[key] = cost
        for i, (cell, goal) in enumerate(zip((a, b), goals, strict=True)):
            if cell == goal and seen >> i & 1 and not done >> i & 1:
                heapq.heappush(queue, (cost, time, (a, b, seen, done | 1 << i)))
        if done == 3:
            return cost
        options = [
            [cell] if done >> i & 1 else [*board.neighbours[cell], *([cell] if waits else [])]
            for i, cell in enumerate((a, b))
        ]
        for x, y in product(*options):
            if x == y or (x == b and y == a) or (horizon is not None and time >= horizon):
                continue
            step = 2 - done.bit_count() if soc else 1
            heapq.heappush(queue, (cost + step, time + 1, (x, y, been(seen, (x, y)), done)))
    return None


def _cost(result: Result) -> int | None:
    assert not isinstance(result, LimitReached)
    return result.cost if isinstance(result, Solved) else None


@settings(max_examples=60, deadline=None)
@given(layouts(3, 4), st.integers(0, 10**6), st.booleans())
def test_every_question_equals_the_plain_search(layout: Layout, seed: int, stops: bool) -> None:
    board, rows, starts, goals = layout
    free = [v for v in range(board.n) if board.free >> v & 1]
    via = random.Random(seed).sample(free, 2) if stops else None
    n = len(rows)
    pair = Pair(board, starts, goals, via=via)
    optimal = plain_dijkstra(board, starts, goals, via, soc=False)
    questions: list[tuple[Objective, bool, int | None]] = [
        ("makespan", True, None),
        ("makespan", False, None),
        ("soc", True, None),
        ("soc", False, None),
    ]
    if optimal is not None:
        questions.append(("soc", True, optimal))
    for objective, waits, horizon in questions:
        found = pair.cheapest(objective, limit=BIG, waits=waits, horizon=horizon)
        expected = plain_dijkstra(board, starts, goals, via, soc=objective == "soc", waits=waits, horizon=horizon)
        assert _cost(found) == expected
        if isinstance(found, Solved):
            ends = [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]
            plan = [[divmod(v, n) for v in path] for path in found.plan]
            assert verify(rows, *ends, plan).valid
            spent = costs(ends[1], plan)
            assert found.cost == (sum(spent) if objective == "soc" else max(spent))
            assert waits or not has_wait(ends[1], plan)
            assert horizon is None or max(spent) <= horizon
            assert all(stop in path for stop, path in zip(via or [], found.plan, strict=False))


@settings(max_examples=60, deadline=None)
@given(layouts(4, 6))
def test_larger_lakes_equal_joint_search(layout: Layout) -> None:
    board, _, starts, goals = layout
    pair = Pair(board, starts, goals)
    objectives: tuple[Objective, ...] = ("makespan", "soc")
    for objective in objectives:
        assert _cost(pair.cheapest(objective, limit=BIG)) == _cost(search(board, starts, goals, objective, limit=BIG))


def test_bounds_and_limits_are_answers_of_their_own() -> None:
    field = Board.of(["....."] * 5)
    pair = Pair(field, [0, 4], [4, 0])
    assert isinstance(pair.cheapest("soc", limit=BIG, most=7), Unsolvable)
    assert isinstance(pair.cheapest("makespan", limit=BIG, horizon=3), Unsolvable)
    limited = pair.cheapest("soc", limit=3)
    assert isinstance(limited, LimitReached)
    assert limited.lower_bound <= 8
    corridor = Pair(Board.of(["....."]), [0, 1], [3, 2])
    assert isinstance(corridor.cheapest("makespan", limit=BIG), Unsolvable)


@settings(max_examples=60, deadline=None)
@given(layouts(3, 4, (3, 3)))
def test_three_agents_can_get_there_if_joint_search_says_so(layout: Layout) -> None:
    board, _, starts, goals = layout
    assert solvable(board, starts, goals) == isinstance(search(board, starts, goals, "makespan", limit=BIG), Solved)
