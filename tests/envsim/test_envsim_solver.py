"""The solver against published optima, against networkx, and against itself by other means."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import pytest
from envsim_cases import Layout, layouts, oracle
from hypothesis import assume, given, settings

from envsim.api import EnvsimError
from envsim.lake.grid import Board, collide, graph
from envsim.lake.instance import layout_from_json, make_instance
from envsim.lake.joint import costs_to_go
from envsim.lake.portfolio import lower_bound, makespan_bound, solve
from envsim.lake.prioritized import plans
from envsim.lake.search import UNREACHABLE, LimitReached, Objective, Result, Solved, Unsolvable, search
from envsim.lake.solver import Analysis, Limits, analyse, moves_of, path_of
from envsim.lake.verifier import costs, has_wait, verify

BIG = 1_000_000
STAYING = [case for case in oracle("instances") if "variant" not in case]
GONE = [case for case in oracle("instances") if "variant" in case]


def _analysis(case: dict[str, Any]) -> Analysis:
    starts, goals = ([(r, c) for r, c in case[ends]] for ends in ("starts", "goals"))
    return analyse(case["rows"], starts, goals)


@pytest.mark.parametrize("case", STAYING, ids=lambda case: case["name"])
def test_published_optima(case: dict[str, Any]) -> None:
    analysis = _analysis(case)
    certificate = analysis.certificate()
    assert certificate.solvable == case["solvable"]
    assert certificate.sum_of_costs == case["sum_of_costs"]
    if "makespan" in case:
        assert certificate.makespan == case["makespan"]
    if "sic_lower_bound" in case:
        assert sum(certificate.distances) == case["sic_lower_bound"]
    if "needs_wait_soc" in case:
        assert certificate.needs_wait_soc == case["needs_wait_soc"]
    if "min_sum_of_costs_given_optimal_makespan" in case:
        assert certificate.sum_of_costs_at_makespan == case["min_sum_of_costs_given_optimal_makespan"]
    if "sum_of_costs_without_waits" in case and case["solvable"]:
        without = solve(analysis.board, analysis.starts, analysis.goals, "soc", limit=BIG, waits=False)
        assert _cost(without) == case["sum_of_costs_without_waits"]


@pytest.mark.parametrize("case", STAYING, ids=lambda case: case["name"])
def test_published_layouts_load_and_certify_a_plan(case: dict[str, Any]) -> None:
    instance = layout_from_json(json.dumps(case), case["name"])
    certificate = _analysis(case).certificate()
    if certificate.plan is not None:
        plan = [path_of(start, moves) for start, moves in zip(instance.starts, certificate.plan, strict=True)]
        verdict = verify(instance.rows, instance.starts, instance.goals, plan, certificate.makespan)
        assert verdict.outcome == "optimal"
        assert sum(costs(instance.goals, plan)) == certificate.sum_of_costs_at_makespan


@pytest.mark.parametrize("case", GONE, ids=lambda case: case["name"])
def test_published_optima_when_agents_disappear_at_their_goals(case: dict[str, Any]) -> None:
    analysis = _analysis(case)
    found = search(analysis.board, analysis.starts, analysis.goals, "soc", limit=BIG, disappear=True)
    assert _cost(found) == case["sum_of_costs"]


def test_disappearing_differs_from_staying() -> None:
    analysis = _analysis(next(case for case in STAYING if case["name"] == "lmrp_simple1"))
    ends = (analysis.board, analysis.starts, analysis.goals)
    assert _cost(search(*ends, "soc", limit=BIG)) == 8
    assert _cost(search(*ends, "soc", limit=BIG, disappear=True)) == 6


def _cost(result: Result) -> int | None:
    assert not isinstance(result, LimitReached)
    return result.cost if isinstance(result, Solved) else None


def _networkx_makespan(rows: list[str], starts: list[int], goals: list[int]) -> int | None:
    lake, columns = graph(rows), len(rows[0])
    joint = nx.strong_product(lake, lake)
    joint.remove_nodes_from([(u, u) for u in lake])
    joint.remove_edges_from([((u, v), (v, u)) for u, v in lake.edges])
    source, target = ((divmod(a, columns), divmod(b, columns)) for a, b in (starts, goals))
    return int(nx.shortest_path_length(joint, source, target)) if nx.has_path(joint, source, target) else None


@settings(max_examples=150, deadline=None)
@given(layouts(3, 5))
def test_two_agents_equal_networkx_and_the_pair_tables(layout: Layout) -> None:
    board, rows, starts, goals = layout
    makespan = _cost(search(board, starts, goals, "makespan", limit=BIG))
    soc = _cost(search(board, starts, goals, "soc", limit=BIG))
    assert makespan == _networkx_makespan(rows, starts, goals)
    ends = (goals[0], goals[1])
    assert costs_to_go(board, ends, "makespan")[*starts] == (UNREACHABLE if makespan is None else makespan)
    assert costs_to_go(board, ends, "soc")[*starts] == (UNREACHABLE if soc is None else soc)


@settings(max_examples=120, deadline=None)
@given(layouts(3, 4, (3, 4)))
def test_portfolio_equals_plain_search(layout: Layout) -> None:
    board, _, starts, goals = layout
    objectives: tuple[Objective, ...] = ("makespan", "soc")
    for objective in objectives:
        for waits in (True, False):
            ends = (board, starts, goals, objective)
            plain = search(*ends, limit=BIG, waits=waits)
            clever = solve(*ends, limit=BIG, waits=waits)
            assert _cost(plain) == _cost(clever)
            bound = lower_bound(*ends, BIG)
            assert isinstance(bound, Unsolvable) or not isinstance(plain, Solved) or bound <= plain.cost


@settings(max_examples=100, deadline=None)
@given(layouts(3, 3, (3, 4)))
def test_the_bound_of_pairs_never_exceeds_the_optimum_on_the_way(layout: Layout) -> None:
    board, _, starts, goals = layout
    bound = makespan_bound(board, goals)
    found = search(board, starts, goals, "makespan", limit=BIG)
    if isinstance(found, Solved):
        for t, cells in enumerate(zip(*found.plan, strict=True)):
            assert bound(cells, 0) <= found.cost - t


@settings(max_examples=100, deadline=None)
@given(layouts(3, 5, (2, 3)))
def test_certificates_are_consistent(layout: Layout) -> None:
    board, rows, starts, goals = layout
    analysis = Analysis(board, rows, starts, goals, Limits(BIG, BIG))
    c = analysis.certificate()
    ends = (board, starts, goals)
    if not c.solvable:
        assert isinstance(search(*ends, "soc", limit=BIG), Unsolvable)
        return
    assert c.makespan is not None
    assert c.sum_of_costs is not None
    assert c.sum_of_costs_at_makespan is not None
    assert c.makespan == _cost(search(*ends, "makespan", limit=BIG))
    assert c.sum_of_costs == _cost(search(*ends, "soc", limit=BIG))
    assert c.sum_of_costs_at_makespan == _cost(search(*ends, "soc", limit=BIG, horizon=c.makespan))
    assert c.sum_of_costs_at_makespan >= c.sum_of_costs >= sum(c.distances)
    assert c.makespan >= max(c.distances)
    assert c.coordination_cost == c.sum_of_costs - sum(c.distances)
    objectives: tuple[tuple[Objective, int, bool | None], ...] = (
        ("soc", c.sum_of_costs, c.needs_wait_soc),
        ("makespan", c.makespan, c.needs_wait_makespan),
    )
    for objective, optimum, needs_wait in objectives:
        without = _cost(search(*ends, objective, limit=BIG, waits=False))
        assert needs_wait == (without is None or without > optimum)
    if c.coordination_cost % 2:
        assert c.needs_wait_soc
    paths = [board.first_path(s, board.layers(g)) or [] for s, g in zip(starts, goals, strict=True)]
    assert c.paths_collide == collide(paths)


@settings(max_examples=100, deadline=None)
@given(layouts(3, 5, (3, 5)))
def test_prioritised_plans_are_valid_and_wait_only_if_they_may(layout: Layout) -> None:
    board, rows, starts, goals = layout
    n = len(rows)
    s, g = [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]
    horizon = 2 * n
    for waits in (True, False):
        for plan in list(plans(board, starts, goals, horizon, waits=waits, orders=6)):
            cells = [[divmod(v, n) for v in path] for path in plan]
            verdict = verify(rows, s, g, cells)
            assert verdict.valid
            assert (verdict.cost or 0) <= horizon
            assert waits or not has_wait(g, cells)


def test_three_answers() -> None:
    corridor = Board.of(["....."])
    assert isinstance(search(corridor, [0, 1], [3, 2], "makespan", limit=BIG), Unsolvable)
    assert isinstance(search(corridor, [0, 1], [3, 2], "soc", limit=BIG), Unsolvable)
    field = Board.of(["....."] * 5)
    limited = search(field, [0, 4], [4, 0], "soc", limit=3)
    assert isinstance(limited, LimitReached)
    assert limited.expanded == 3
    assert limited.lower_bound <= 8
    assert isinstance(search(field, [0, 4], [4, 0], "soc", limit=BIG, most=7), Unsolvable)
    assert isinstance(search(field, [0, 4], [4, 0], "soc", limit=BIG, horizon=3), Unsolvable)


def test_search_is_repeatable() -> None:
    field = Board.of(["......"] * 6)
    first, second = (solve(field, [0, 5, 30], [35, 30, 5], "soc", limit=BIG) for _ in range(2))
    assert first == second


def test_an_open_makespan_is_an_error_and_never_a_certificate() -> None:
    rows = ["." * 6] * 6
    with pytest.raises(EnvsimError, match="raise the solver's limit"):
        analyse(rows, [(0, 0), (0, 5)], [(0, 5), (0, 0)], Limits(1, 1)).certificate()


@settings(max_examples=50, deadline=None)
@given(layouts(3, 4))
def test_moves_spell_paths(layout: Layout) -> None:
    _, rows, starts, goals = layout
    n = len(rows)
    s, g = [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]
    certificate = analyse(rows, s, g).certificate()
    assume(certificate.plan)
    assert make_instance(rows, s, g, certificate).certificate == certificate
    for start, goal, moves in zip(s, g, certificate.plan or [], strict=True):
        path = path_of(start, moves)
        assert path[-1] == goal
        assert moves_of(path) == moves
