"""Every published case, and the verdict against a slow reading of the rules."""

from __future__ import annotations

from typing import Any

import pytest
from envsim_cases import Layout, layouts, oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.api import EnvsimError, Verdict
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
