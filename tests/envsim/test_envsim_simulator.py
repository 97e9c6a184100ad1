"""The simulator: every rule by itself, and the same verdict as the verifier on random play."""

from __future__ import annotations

from collections import Counter

import pytest
from envsim_cases import Layout, layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.lake.environment import ACTIONS as ENVIRONMENT_ACTIONS
from envsim.lake.grid import Cell
from envsim.lake.simulator import DOWN, LEFT, NAMES, RIGHT, STAY, UP, Simulator, steps_per_second
from envsim.lake.verifier import costs, verify

STEPS = {LEFT: (0, -1), DOWN: (1, 0), RIGHT: (0, 1), UP: (-1, 0), STAY: (0, 0)}


def test_frozen_lakes_action_order() -> None:
    assert (LEFT, DOWN, RIGHT, UP, STAY) == (0, 1, 2, 3, 4)
    assert {NAMES[action]: step for action, step in STEPS.items()} == {
        name: step for step, name in ENVIRONMENT_ACTIONS.items()
    }


def test_following_and_rotation_are_legal() -> None:
    row = Simulator(["...."], [(0, 0), (0, 1), (0, 2)], [(0, 1), (0, 2), (0, 3)])
    assert row.step([RIGHT, RIGHT, RIGHT])
    assert row.arrived
    assert row.cells() == [(0, 1), (0, 2), (0, 3)]
    ring = Simulator(["..", ".."], [(0, 0), (0, 1), (1, 1), (1, 0)], [(0, 1), (1, 1), (1, 0), (0, 0)])
    assert ring.step([RIGHT, DOWN, LEFT, UP])
    assert (ring.arrived, ring.time, ring.costs()) == (True, 1, [1, 1, 1, 1])


@pytest.mark.parametrize(
    ("rows", "starts", "actions", "expected"),
    [
        (["..@"], [(0, 0), (0, 1)], [STAY, RIGHT], ("hole", 1, (0, 2))),
        (["...", "@@@"], [(0, 0), (0, 2)], [RIGHT, LEFT], ("vertex_conflict", 0, (0, 1))),
        (["...", "@@@"], [(0, 0), (0, 1)], [LEFT, LEFT], ("vertex_conflict", 0, (0, 0))),
        (["...", "@@@"], [(0, 1), (0, 2)], [RIGHT, LEFT], ("edge_conflict", 0, (0, 2))),
        # A hole comes before a conflict of the same step, whatever the agents' numbers.
        (["...@"], [(0, 0), (0, 1), (0, 2)], [RIGHT, LEFT, RIGHT], ("hole", 2, (0, 3))),
    ],
)
def test_faults(rows: list[str], starts: list[Cell], actions: list[int], expected: tuple[str, int, Cell]) -> None:
    simulator = Simulator(rows, starts, starts)
    assert simulator.step(actions)
    failure = simulator.failure
    assert failure is not None
    assert (failure.outcome, failure.agent, failure.cell, failure.step) == (*expected, 1)
    assert not simulator.arrived
    with pytest.raises(EnvsimError, match="the episode ended at step 1; reset it first"):
        simulator.step(actions)
    simulator.reset(0)
    assert (simulator.cells(), simulator.time, simulator.failure) == (starts, 0, None)


def test_off_the_map_stays() -> None:
    simulator = Simulator(["..", ".."], [(0, 0)], [(1, 1)])
    for action in (LEFT, UP):
        assert not simulator.step([action])
        assert (simulator.cells(), simulator.executed) == ([(0, 0)], [action])


def test_an_agent_at_its_goal_may_have_to_leave_it() -> None:
    simulator = Simulator(["...", "@.@"], [(0, 0), (0, 1)], [(0, 2), (0, 1)])
    assert simulator.at_goal() == [False, True]
    assert not simulator.step([STAY, DOWN])
    assert not simulator.step([RIGHT, STAY])
    assert not simulator.step([RIGHT, STAY])
    assert simulator.at_goal() == [True, False]
    assert simulator.step([STAY, UP])
    # The first agent arrived at 3; the second was there at 0, but its last arrival counts.
    assert simulator.costs() == [3, 4]


def test_intermediate_goals() -> None:
    simulator = Simulator(["....."], [(0, 2)], [(0, 0)], via=[(0, 3)])
    for action in (LEFT, LEFT):
        assert not simulator.step([action])
    assert simulator.cells() == [(0, 0)]
    assert (simulator.at_goal(), simulator.pending(), simulator.costs()) == ([False], [True], [2])
    for action in (RIGHT, RIGHT, RIGHT, LEFT, LEFT):
        assert not simulator.step([action])
    assert simulator.pending() == [False]
    assert simulator.step([LEFT])
    assert simulator.costs() == [8]
    at_once = Simulator(["..."], [(0, 1)], [(0, 0)], via=[(0, 1)])
    assert at_once.pending() == [False]
    assert at_once.step([LEFT])


def test_safe_actions() -> None:
    simulator = Simulator([".@", ".."], [(0, 0), (1, 1)], [(1, 0), (1, 1)])
    assert simulator.safe_actions(0) == [False, True, False, False, True]
    assert simulator.safe_actions(1) == [True, False, False, False, True]
    simulator.step([RIGHT, STAY])
    assert simulator.safe_actions(0) == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([RIGHT], "there are 1 actions; expected 2, one for each agent"),
        ([RIGHT, 5], r"the actions are \[2, 5\]; expected each from 0 to 4"),
        ([-1, RIGHT], r"the actions are \[-1, 2\]"),
    ],
)
def test_bad_actions(actions: list[int], message: str) -> None:
    simulator = Simulator(["...."], [(0, 0), (0, 1)], [(0, 2), (0, 3)])
    with pytest.raises(EnvsimError, match=message):
        simulator.step(actions)
    assert (simulator.time, simulator.cells()) == (0, [(0, 0), (0, 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"success_rate": 1.5}, "success_rate is 1.5; expected a probability"),
        ({"via": []}, "0 via cells for 1 agents"),
        ({"via": [(0, 9)]}, r"\(0,9\), outside the 1x3 map"),
    ],
)
def test_bad_lakes(options: dict[str, object], message: str) -> None:
    with pytest.raises(EnvsimError, match=message):
        Simulator(["..."], [(0, 0)], [(0, 2)], **options)  # type: ignore[arg-type]


@settings(max_examples=300)
@given(layouts(3, 4, (1, 4)), st.data())
def test_the_verifier_agrees(layout: Layout, data: st.DataObject) -> None:
    """Of what was executed, always; of what was asked for, up to the first move off the map."""
    _, rows, starts, goals = layout
    n = len(rows)
    s, g = ([divmod(v, n) for v in cells] for cells in (starts, goals))
    free = [(r, c) for r in range(n) for c in range(n) if rows[r][c] == "."]
    via = data.draw(st.none() | st.lists(st.sampled_from(free), min_size=len(s), max_size=len(s)))
    simulator = Simulator(rows, s, g, via=via, success_rate=data.draw(st.sampled_from([1.0, 1.0, 0.5])))
    simulator.reset(data.draw(st.integers(0, 99)))
    executed: list[list[Cell]] = [[cell] for cell in s]
    asked: list[list[Cell]] = [[cell] for cell in s]
    off_map = False
    for _ in range(data.draw(st.integers(1, 8))):
        # One action in three towards what is not safe, so that plans live long enough to meet.
        actions = [
            data.draw(st.sampled_from([a for a in range(5) if simulator.safe_actions(i)[a]] * 2 + list(range(5))))
            for i in range(len(s))
        ]
        over = simulator.step(actions)
        for i, cell in enumerate(simulator.cells()):
            if not off_map:
                (r, c), (dr, dc) = asked[i][-1], STEPS[simulator.executed[i]]
                asked[i].append((r + dr, c + dc))
            executed[i].append(cell)
        off_map = off_map or asked != executed
        if over:
            break
    verdict = verify(rows, s, g, executed, via=via)
    if simulator.failure is not None:
        failure, fault = simulator.failure, verdict.fault
        assert fault is not None
        assert (verdict.outcome, fault.step, fault.agent) == (failure.outcome, failure.step, failure.agent)
        assert fault.location == f"({failure.cell[0]},{failure.cell[1]})"
    else:
        assert verdict.outcome == ("valid_suboptimal" if simulator.arrived else "goal_not_reached")
    if simulator.arrived:
        assert verdict.cost == max(simulator.costs())
        assert simulator.costs() == costs(g, executed)
    strict = verify(rows, s, g, asked, via=via)
    if off_map:
        assert strict.outcome == "out_of_bounds"
    else:
        assert strict == verdict


def test_slips_go_to_the_sides_as_often_as_said() -> None:
    simulator = Simulator(["." * 9] * 9, [(4, 4), (0, 0)], [(8, 8), (0, 1)], success_rate=0.6)
    seen: Counter[int] = Counter()
    for seed in range(4_000):
        simulator.reset(seed)
        simulator.step([UP, STAY])
        assert simulator.executed[1] == STAY
        seen[simulator.executed[0]] += 1
    # Three standard errors of a share of 4,000 are at most 0.024.
    assert set(seen) == {UP, LEFT, RIGHT}
    assert seen[UP] / 4_000 == pytest.approx(0.6, abs=0.024)
    assert seen[LEFT] / 4_000 == pytest.approx(0.2, abs=0.02)
    assert seen[RIGHT] / 4_000 == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(("action", "sides"), [(LEFT, {UP, DOWN}), (DOWN, {LEFT, RIGHT}), (RIGHT, {UP, DOWN})])
def test_a_slip_is_perpendicular(action: int, sides: set[int]) -> None:
    simulator = Simulator(["." * 3] * 3, [(1, 1)], [(0, 0)], success_rate=0.0)
    seen = set()
    for seed in range(40):
        simulator.reset(seed)
        simulator.step([action])
        seen.add(simulator.executed[0])
    assert seen == sides


def test_noise_is_that_of_the_seed() -> None:
    def play(seed: int) -> list[list[int]]:
        simulator = Simulator(["." * 9] * 9, [(4, 4)], [(8, 8)], success_rate=0.5)
        simulator.reset(seed)
        found = []
        for _ in range(4):
            simulator.step([UP])
            found.append(simulator.executed)
        return found

    assert play(3) == play(3)
    assert len({str(play(seed)) for seed in range(20)}) > 10


def test_speed_is_measured() -> None:
    # A tenth of what is promised on a quiet machine: the check is that the figure is one of steps a second.
    assert steps_per_second(0.05) > 5_000
