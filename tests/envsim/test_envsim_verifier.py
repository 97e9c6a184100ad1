"""Every published case, and the verdict against a slow reading of the rules."""

from __future__ import annotations

from typing import Any

import networkx as nx
import pytest
from envsim_cases import Layout, layouts, oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.api import EnvsimError, Verdict
from envsim.lake.grid import graph
from envsim.lake.verifier import OUTCOMES, costs, has_wait, verify

Cell = tuple[int, int]
ERRORS = {"missing_agents": "wrong_agent_count"}


def _cells(cells: list[list[int]]) -> list[Cell]:
    return [(r, c) for r, c in cells]


@pytest.mark.parametrize("case", oracle("validator_cases"), ids=lambda case: case["name"])
def test_published_cases(case: dict[str, Any]) -> None:
    starts, goals, plan = _cells(case["starts"]), _cells(case["goals"]), [_cells(path) for path in case["plan"]]
    verdict = verify(case["rows"], starts, goals, plan)
    assert verdict.valid == case["valid"]
    if case["valid"]:
        assert verdict.cost == case["makespan"]
        assert sum(costs(goals, plan)) == case["sum_of_costs"]
        assert verify(case["rows"], starts, goals, plan, case["makespan"]).outcome == "optimal"
    else:
        assert verdict.outcome == ERRORS.get(case["error"], case["error"])
        assert verdict.regret == 1.0


def slow_verdict(rows: list[str], starts: list[Cell], goals: list[Cell], plan: list[list[Cell]]) -> tuple[Any, ...]:
    """(outcome, step, agent) by looking at every time, every kind and every agent in order."""
    steps = max(len(path) for path in plan)
    at = [[path[min(t, len(path) - 1)] for path in plan] for t in range(steps)]
    agents = range(len(starts))
    for i in agents:
        if at[0][i] != starts[i]:
            return "wrong_start", 0, i

    def inside(cell: Cell) -> bool:
        return 0 <= cell[0] < len(rows) and 0 <= cell[1] < len(rows[0])

    for t in range(1, steps):
        now, then = at[t], at[t - 1]
        kinds = {
            "out_of_bounds": [i for i in agents if not inside(now[i])],
            "illegal_move": [
                i for i in agents if abs(now[i][0] - then[i][0]) + abs(now[i][1] - then[i][1]) not in (0, 1)
            ],
            "hole": [i for i in agents if inside(now[i]) and rows[now[i][0]][now[i][1]] == "@"],
            "vertex_conflict": [i for i in agents if any(i != j and now[i] == now[j] for j in agents)],
            "edge_conflict": [
                i for i in agents if any(i != j and (now[i], then[i]) == (then[j], now[j]) for j in agents)
            ],
        }
        for kind, at_fault in kinds.items():
            if at_fault:
                return kind, t, at_fault[0]
    for i in agents:
        if at[-1][i] != goals[i]:
            return "goal_not_reached", steps - 1, i
    return ("valid", None, None)


@settings(max_examples=400)
@given(layouts(3, 3, (2, 4)), st.data())
def test_first_fault_is_that_of_a_slow_reading(layout: Layout, data: st.DataObject) -> None:
    _, rows, starts, goals = layout
    n = len(rows)
    s, g = [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]
    moves = st.sampled_from([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)] * 3 + [(1, 1), (0, 2)])
    plan = []
    for start in s:
        path = [start]
        for dr, dc in data.draw(st.lists(moves, max_size=5)):
            path.append((path[-1][0] + dr, path[-1][1] + dc))
        plan.append(path)
    if data.draw(st.integers(0, 3)):
        g = [path[-1] for path in plan]
    verdict = verify(rows, s, g, plan)
    outcome, step, agent = slow_verdict(rows, s, g, plan)
    if outcome == "valid":
        assert verdict.valid
        assert verdict.cost == max(costs(g, plan))
    else:
        assert verdict.fault is not None
        assert (verdict.outcome, verdict.fault.step, verdict.fault.agent) == (outcome, step, agent)


@pytest.mark.parametrize(
    ("plan", "outcome", "location"),
    [
        ([], "wrong_agent_count", None),
        ([[(0, 0)], []], "wrong_start", None),
        ([[(0, 0)], [(0, 1)]], "wrong_start", "(0,1)"),
        ([[(0, 0), (-1, 0)], [(0, 2), (0, 0)]], "out_of_bounds", "(-1,0)"),
        ([[(0, 0), (1, 1)], [(0, 2), (0, 0)]], "illegal_move", "(1,1)"),
        ([[(0, 0), (1, 0)], [(0, 2), (1, 2)]], "hole", "(1,0)"),
        ([[(0, 0), (0, 1)], [(0, 2), (0, 1)]], "vertex_conflict", "(0,1)"),
        ([[(0, 0), (0, 1), (0, 2)], [(0, 2), (0, 2), (0, 1)]], "edge_conflict", "(0,2)"),
        ([[(0, 0)], [(0, 2), (1, 2)]], "goal_not_reached", "(0,0)"),
    ],
)
def test_each_outcome(plan: list[list[Cell]], outcome: str, location: str | None) -> None:
    verdict = verify(["...", "@.."], [(0, 0), (0, 2)], [(0, 1), (1, 2)], plan, 1)
    assert verdict.outcome == outcome
    assert verdict.fault is not None
    assert verdict.fault.location == location


def _grade(*cells: Cell) -> Verdict:
    return verify(["..", ".."], [(0, 0)], [(0, 1)], [list(cells)], 1)


def test_regret_and_cost() -> None:
    assert _grade((0, 0), (0, 1)).outcome == "optimal"
    assert _grade((0, 0), (0, 1), (0, 1)).cost == 1
    late = _grade((0, 0), (1, 0), (1, 1), (0, 1))
    assert (late.outcome, late.cost, late.regret) == ("valid_suboptimal", 3, 2.0)
    away = _grade((0, 0), (0, 1), (1, 1), (0, 1))
    assert away.cost == 3


def test_a_plan_below_the_certified_optimum_is_an_error() -> None:
    with pytest.raises(EnvsimError, match="certificate is wrong"):
        verify([".."], [(0, 0)], [(0, 1)], [[(0, 0), (0, 1)]], 2)


def test_waits_after_the_last_arrival_are_none() -> None:
    goals = [(0, 1)]
    assert not has_wait(goals, [[(0, 0), (0, 1), (0, 1)]])
    assert has_wait(goals, [[(0, 0), (0, 0), (0, 1)]])
    assert has_wait(goals, [[(0, 1), (0, 1), (0, 2), (0, 1)]])


def test_outcomes_are_in_the_order_of_ties() -> None:
    assert OUTCOMES[0] == "parse_error"
    assert OUTCOMES[-1] == "optimal"
    assert len(set(OUTCOMES)) == 11


VIA_ROWS = ["...", "...", "..."]
VIA_STARTS, VIA_GOALS = [(0, 0), (2, 2)], [(0, 2), (2, 0)]
VIA_PLAN = [[(0, 0), (0, 1), (0, 2)], [(2, 2), (1, 2), (1, 1), (1, 0), (2, 0)]]


@pytest.mark.parametrize(
    ("via", "outcome", "agent"),
    [
        ([(0, 1), (1, 1)], "optimal", None),
        ([(0, 0), (2, 0)], "optimal", None),
        ([(1, 1), (1, 1)], "goal_not_reached", 0),
        ([(0, 2), (2, 1)], "goal_not_reached", 1),
        ([(1, 1), (2, 1)], "goal_not_reached", 0),
    ],
)
def test_a_via_cell_must_be_visited(via: list[Cell], outcome: str, agent: int | None) -> None:
    verdict = verify(VIA_ROWS, VIA_STARTS, VIA_GOALS, VIA_PLAN, 4, via=via)
    assert verdict.outcome == outcome
    if verdict.fault is None:
        assert verdict.cost == 4
    else:
        assert (verdict.fault.step, verdict.fault.agent) == (4, agent)


def test_going_back_for_a_via_cell_costs_until_the_last_arrival() -> None:
    plan = [[(0, 0), (0, 1), (0, 2), (1, 2), (0, 2)], [(2, 2)]]
    goals = [(0, 2), (2, 2)]
    verdict = verify(VIA_ROWS, VIA_STARTS, goals, plan, via=[(1, 2), (2, 2)])
    assert (verdict.valid, verdict.cost) == (True, 4)
    assert costs(goals, plan) == [4, 0]


@settings(max_examples=150)
@given(layouts(3, 4, (2, 3)), st.data())
def test_via_adds_one_condition_and_turns_with_map_and_agents(layout: Layout, data: st.DataObject) -> None:
    _, rows, s, g = layout
    n, agents = len(rows), len(s)
    starts, goals = ([divmod(v, n) for v in cells] for cells in (s, g))
    lake = graph(rows)
    plan = []
    for start, goal in zip(starts, goals, strict=True):
        walk = [start]
        for _ in range(data.draw(st.integers(0, 3))):
            walk.append(data.draw(st.sampled_from([walk[-1], *sorted(lake.adj[walk[-1]])])))
        plan.append([*walk, *nx.shortest_path(lake, walk[-1], goal)[1:]])
    cells = [cell for path in plan for cell in path]
    via = [data.draw(st.sampled_from(cells)) for _ in range(agents)]

    bare = verify(rows, starts, goals, plan)
    verdict = verify(rows, starts, goals, plan, via=via)
    visited = all(cell in path for cell, path in zip(via, plan, strict=True))
    if bare.valid and not visited:
        assert verdict.outcome == "goal_not_reached"
    else:
        assert verdict == bare

    flips = data.draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    order = data.draw(st.permutations(range(agents)))

    def image(cell: Cell) -> Cell:
        r, c = (n - 1 - cell[0] if flips[0] else cell[0]), (n - 1 - cell[1] if flips[1] else cell[1])
        return (c, r) if flips[2] else (r, c)

    marks = {image((r, c)): rows[r][c] for r in range(n) for c in range(n)}
    turned = ["".join(marks[r, c] for c in range(n)) for r in range(n)]
    ends = [[image(cells[i]) for i in order] for cells in (starts, goals, via)]
    moved = [[image(cell) for cell in plan[i]] for i in order]
    other = verify(turned, ends[0], ends[1], moved, via=ends[2])
    assert (other.outcome, other.valid, other.cost) == (verdict.outcome, verdict.valid, verdict.cost)
    if verdict.fault is not None and other.fault is not None:
        assert other.fault.step == verdict.fault.step
