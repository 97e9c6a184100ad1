"""Conflict-Based Search against joint search, and on inputs that broke published implementations."""

from __future__ import annotations

from itertools import product

from envsim_cases import Layout, layouts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from envsim.lake.cbs import Conflict, cbs, first_conflict, split
from envsim.lake.deepening import smallest_cover
from envsim.lake.grid import Board
from envsim.lake.search import LimitReached, Objective, Solved, Unsolvable, search
from envsim.lake.verifier import costs, verify

BIG = 10**7
OBJECTIVES: tuple[Objective, ...] = ("makespan", "soc")


@settings(max_examples=60, deadline=None)
@given(layouts(3, 4, (2, 4)))
def test_equals_joint_search(layout: Layout) -> None:
    board, rows, starts, goals = layout
    n = len(rows)
    for objective in OBJECTIVES:
        expected = search(board, starts, goals, objective, limit=BIG)
        assume(isinstance(expected, Solved))
        assert isinstance(expected, Solved)
        found = cbs(board, starts, goals, objective, limit=300, horizon=len(expected.plan[0]) + 2)
        if isinstance(found, LimitReached):
            assert found.lower_bound <= expected.cost
            continue
        assert isinstance(found, Solved)
        assert found.cost == expected.cost
        ends = [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]
        plan = [[divmod(v, n) for v in path] for path in found.plan]
        assert verify(rows, *ends, plan).valid
        spent = costs(ends[1], plan)
        assert found.cost == (sum(spent) if objective == "soc" else max(spent))


def test_the_horizon_ends_the_search_where_there_is_no_plan() -> None:
    corridor = Board.of(["....."])
    for objective in OBJECTIVES:
        assert isinstance(cbs(corridor, [0, 1], [3, 2], objective, limit=BIG, horizon=6), Unsolvable)


def test_a_goal_that_another_agent_must_cross_later_is_left_again() -> None:
    board = Board.of([".....", "@@.@@"])
    for objective, cost in (("makespan", 4), ("soc", 8)):
        found = cbs(board, [0, 1], [4, 3], "makespan" if objective == "makespan" else "soc", limit=BIG, horizon=12)
        assert isinstance(found, Solved)
        assert found.cost == cost


def test_limits_and_costs_are_answers_of_their_own() -> None:
    corridor = Board.of([".....", "@@.@@"])
    assert isinstance(cbs(corridor, [0, 4], [4, 0], "soc", limit=2, horizon=20), LimitReached)
    assert isinstance(cbs(corridor, [0, 4], [4, 0], "soc", limit=BIG, horizon=20, most=8), Unsolvable)
    assert isinstance(cbs(Board.of([".@."]), [0, 2], [2, 0], "soc", limit=BIG, horizon=9), Unsolvable)


def test_conflicts_of_agents_that_wait_of_ends_and_of_the_last_step() -> None:
    assert first_conflict([[0, 1, 2], [2]]) == Conflict(2, (0, 1), (2, 2))
    assert first_conflict([[0, 1], [1, 0]]) == Conflict(1, (0, 1), (0, 1))
    assert first_conflict([[0, 1, 2], [5, 4, 3, 2]]) == Conflict(3, (0, 1), (2, 2))
    assert first_conflict([[0, 1], [1, 2], [3]]) is None
    vertex, edge = Conflict(2, (0, 1), (2, 2)), Conflict(1, (0, 1), (0, 1))
    assert [(c.agent, c.time, c.cell, c.origin) for c in split(vertex)] == [(0, 2, 2, None), (1, 2, 2, None)]
    assert [(c.agent, c.time, c.cell, c.origin) for c in split(edge)] == [(0, 1, 1, 0), (1, 1, 0, 1)]


def test_the_smallest_cover_is_the_smallest() -> None:
    assert smallest_cover((3, 3, 3)) == 5
    assert smallest_cover((1, 1, 1)) == 2
    assert smallest_cover((2, 0, 0)) == 2
    assert smallest_cover((1, 0, 0, 0, 0, 1)) == 2
    assert smallest_cover((100, 300, 120)) == 300


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_the_cover_of_four_agents_equals_trying_everything(weights: list[int]) -> None:
    pairs = [(j, i) for i in range(4) for j in range(i)]
    shares = product(range(4), repeat=4)
    best = min(sum(x) for x in shares if all(x[j] + x[i] >= w for (j, i), w in zip(pairs, weights, strict=True)))
    assert smallest_cover(tuple(weights)) == best
