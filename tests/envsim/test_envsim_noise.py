"""Action noise N1: exact and sampled success of a plan, and the laws that both must keep."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.lake.environment import Lake
from envsim.lake.grid import Cell
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.noise import ROLLOUTS, success_probability
from envsim.lake.slip_sampled import wilson
from envsim.lake.slips import CAUSES, DIRECTIONS
from envsim.lake.text import render
from envsim.lake.verifier import verify

OPEN = ["....", "....", "....", "...."]
HOLES = ["....", ".@..", "....", "..@."]


def walks(rows: Sequence[str], agents: int, steps: int, seed: int) -> list[list[Cell]]:
    """Plans inside the map that heed neither holes nor one another, and end in distinct free cells."""
    rng = random.Random(seed)
    while True:
        plan = _walks(rows, agents, steps, rng)
        ends = [path[-1] for path in plan]
        if len(set(ends)) == agents and all(rows[r][c] == "." for r, c in ends):
            return plan


def _walks(rows: Sequence[str], agents: int, steps: int, rng: random.Random) -> list[list[Cell]]:
    free = [(r, c) for r, row in enumerate(rows) for c, mark in enumerate(row) if mark == "."]
    plan = []
    for start in rng.sample(free, agents):
        path = [start]
        for _ in range(steps):
            r, c = path[-1]
            near = [(r + y, c + x) for y, x in (*DIRECTIONS, (0, 0))]
            path.append(rng.choice([(y, x) for y, x in near if 0 <= y < len(rows) and 0 <= x < len(rows[0])]))
        plan.append(path)
    return plan


def by_hand(rows: Sequence[str], goals: Sequence[Cell], plan: Sequence[Sequence[Cell]], q: float) -> float:
    """The definition itself: every combination of slips, executed one by one."""
    height, width = len(rows), len(rows[0])
    moves = [(t, i) for t in range(len(plan[0]) - 1) for i in range(len(plan)) if plan[i][t] != plan[i][t + 1]]
    total = 0.0
    for slips in product((0, 1, -1), repeat=len(moves)):
        turn = dict(zip(moves, slips, strict=True))
        at = [path[0] for path in plan]
        sound = True
        for t in range(len(plan[0]) - 1):
            new = []
            for i, path in enumerate(plan):
                (r, c), (y, x) = path[t], path[t + 1]
                step = (y - r, x - c)
                if (t, i) in turn:
                    step = DIRECTIONS[(DIRECTIONS.index(step) + turn[t, i]) % 4]
                y, x = at[i][0] + step[0], at[i][1] + step[1]
                new.append((y, x) if 0 <= y < height and 0 <= x < width else at[i])
            sound &= all(rows[r][c] == "." for r, c in new) and len(set(new)) == len(new)
            sound &= all(new[i] != at[j] or new[j] != at[i] for i in range(len(new)) for j in range(i))
            at = new
        if sound and at == list(goals):
            total += math.prod(q if slip == 0 else (1 - q) / 2 for slip in slips)
    return total


@given(st.integers(0, 10**6), st.sampled_from([OPEN, HOLES, ["...", "@..", "..."]]), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_the_exact_value_is_the_definitions(seed: int, rows: list[str], agents: int) -> None:
    plan = walks(rows, agents, 4, seed)
    goals = [path[-1] for path in plan]
    found = success_probability(rows, [path[0] for path in plan], goals, plan, 0.8)
    assert found.probability == pytest.approx(by_hand(rows, goals, plan, 0.8), abs=1e-12)
    assert found.probability + sum(found.failures.values()) == pytest.approx(1, abs=1e-12)
    assert found.interval is None


@given(st.integers(0, 10**6), st.integers(2, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_without_noise_success_is_the_verifiers_verdict(seed: int, agents: int, towards: bool) -> None:
    plan = walks(HOLES, agents, 6, seed)
    starts = [path[0] for path in plan]
    goals = [path[-1] for path in (plan if towards else walks(HOLES, agents, 0, seed + 1))]
    verdict = verify(HOLES, starts, goals, plan)
    for exact in {agents <= 2, False}:
        found = success_probability(HOLES, starts, goals, plan, 1.0, exact=exact)
        assert found.probability == float(verdict.valid)
        if not verdict.valid:
            assert found.failures[verdict.outcome] == 1


@pytest.mark.parametrize("with_via", [False, True])
@pytest.mark.parametrize("q", [0.7, 0.95, 0.99])
def test_sampling_agrees_with_the_exact_value(q: float, with_via: bool) -> None:
    """Four standard deviations; seeds are fixed, because among many enough some value lies outside."""
    for seed in range(25):
        plan = walks(HOLES, 2, 7, seed)
        starts, goals = [path[0] for path in plan], [path[-1] for path in plan]
        via = [path[3] for path in plan] if with_via else None
        if via and any(HOLES[r][c] == "@" for r, c in via):
            continue
        exact = success_probability(HOLES, starts, goals, plan, q, via)
        drawn = success_probability(HOLES, starts, goals, plan, q, via, key=f"task {seed}", exact=False)
        pairs = [(drawn.failures[cause], exact.failures[cause]) for cause in CAUSES]
        for sampled, p in [(drawn.probability, exact.probability), *pairs]:
            assert abs(sampled - p) <= 4 * math.sqrt(p * (1 - p) / ROLLOUTS) + 1e-9


def test_the_interval_holds_the_exact_value_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(60):
        plan = walks(OPEN, 2, 6, seed)
        arguments = (OPEN, [path[0] for path in plan], [path[-1] for path in plan], plan, 0.85)
        drawn = success_probability(*arguments, key=str(seed), exact=False, rollouts=400)
        exact = success_probability(*arguments).probability
        assert drawn.interval is not None
        low, high = drawn.interval
        assert 0 <= low <= drawn.probability <= high <= 1
        hits += low - 1e-9 <= exact <= high + 1e-9
    assert 52 <= hits <= 60
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def test_a_task_without_walls_in_reach_gets_harder_as_q_falls() -> None:
    """A slip on open ice can only be made good by another one, so every q below is worse."""
    rows = ["." * 9] * 9
    plan = [[(4, c) for c in range(3, 6)], [(r, 4) for r in range(7, 4, -1)]]
    values = [
        success_probability(rows, [p[0] for p in plan], [p[-1] for p in plan], plan, q).probability
        for q in (1.0, 0.999, 0.99, 0.97, 0.95, 0.9, 0.8, 0.6, 0.4)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1
    assert values[4] == pytest.approx(0.95**4, abs=5e-3)


def test_together_is_never_likelier_than_each_alone() -> None:
    for seed in range(80):
        plan = walks(HOLES, 2, 5, seed)
        starts, goals = [path[0] for path in plan], [path[-1] for path in plan]
        both = success_probability(HOLES, starts, goals, plan, 0.9).probability
        for i in range(2):
            alone = success_probability(HOLES, [starts[i]], [goals[i]], [plan[i]], 0.9).probability
            assert both <= alone + 1e-12


def test_the_figure_depends_on_the_key_alone() -> None:
    plan = [[(0, 0), (0, 1), (0, 2)], [(3, 3), (2, 3), (1, 3)], [(2, 0), (2, 1), (2, 2)]]
    arguments = (OPEN, [p[0] for p in plan], [p[-1] for p in plan], plan, 0.9)
    first = success_probability(*arguments, key="a")
    random.seed(1)
    assert success_probability(*arguments, key="a", rollouts=ROLLOUTS) == first
    assert success_probability(*arguments, key="b") != first
    assert first.interval is not None


def test_who_stays_never_slips_and_walls_hold() -> None:
    still = success_probability(OPEN, [(1, 1)], [(1, 1)], [[(1, 1)] * 5], 0.5)
    assert still.probability == 1
    # A wall on either side of the corridor turns both slips into a stay, so the last step must be the intended one.
    corridor = success_probability(["..."], [(0, 0)], [(0, 1)], [[(0, 0), (0, 1)]], 0.9)
    assert corridor.probability == pytest.approx(0.9)
    assert corridor.failures["goal_not_reached"] == pytest.approx(0.1)


@pytest.mark.parametrize("exact", [True, False])
def test_where_no_move_goes_as_meant(exact: bool) -> None:
    plan = [[(1, 1), (1, 2)]]
    assert success_probability(OPEN, [(1, 1)], [(1, 2)], plan, 0.0, exact=exact).probability == 0
    assert success_probability(OPEN, [(1, 1)], [(0, 1)], plan, 0.0, exact=exact).probability == pytest.approx(
        0.5, abs=0.02
    )


def test_failures_name_their_causes() -> None:
    beside_hole = success_probability([".@", ".."], [(0, 0)], [(1, 0)], [[(0, 0), (1, 0)]], 0.9)
    assert beside_hole.failures["hole"] == pytest.approx(0.05)
    assert beside_hole.failures["goal_not_reached"] == pytest.approx(0.05)
    # Down the left column beside one who stands still: a slip to the right is a collision.
    beside_agent = success_probability(
        ["..", ".."], [(0, 0), (0, 1)], [(1, 0), (0, 1)], [[(0, 0), (1, 0)], [(0, 1), (0, 1)]], 0.9
    )
    assert beside_agent.failures["vertex_conflict"] == pytest.approx(0.05)
    # Side by side, both down: both slipping towards each other swap.
    side = success_probability(
        ["..", ".."], [(0, 0), (0, 1)], [(1, 0), (1, 1)], [[(0, 0), (1, 0)], [(0, 1), (1, 1)]], 0.9
    )
    assert side.failures["edge_conflict"] == pytest.approx(0.05**2)


def test_a_via_cell_must_really_be_visited() -> None:
    rows, start, goal, via = ["...", "..."], [(0, 0)], [(0, 2)], [(0, 1)]
    plan = [[(0, 0), (0, 1), (0, 2)]]
    sure = success_probability(rows, start, goal, plan, 0.9, via).probability
    assert sure == pytest.approx(success_probability(rows, start, goal, plan, 0.9).probability)
    # Staying at the goal it starts from, an agent that never goes by its via cell fails for certain.
    never = success_probability(rows, goal, goal, [[(0, 2)]], 0.9, via)
    assert (never.probability, never.failures["goal_not_reached"]) == (0, 1)
    assert success_probability(rows, goal, goal, [[(0, 2)]], 0.9, goal).probability == 1


def test_a_very_long_plan_still_has_a_chance() -> None:
    there_and_back: list[Cell] = [(1, 1), (1, 2)] * 120
    plan = [[*there_and_back, (1, 1)], [(3, 0), (3, 0)], [(3, 3), (3, 3)]]
    starts = [path[0] for path in plan]
    found = success_probability(OPEN, starts, starts, plan, 0.95, key="long", rollouts=100)
    assert 0.95**240 <= found.probability < 0.5


@pytest.mark.parametrize(
    ("plan", "q", "exact", "words"),
    [
        ([[(0, 0), (2, 0)]], 0.9, None, "agent 0 jumps from"),
        ([[(1, 0)]], 0.9, None, "does not begin at its start"),
        ([[(0, 0)], [(1, 1)]], 0.9, None, "2 paths for 1 agents"),
        ([[(0, 0)]], -0.1, None, "success_rate is -0.1"),
        ([[(0, 0)]], 1.01, None, "success_rate is 1.01"),
    ],
)
def test_bad_input_is_named(plan: list[list[Cell]], q: float, exact: bool | None, words: str) -> None:
    with pytest.raises(EnvsimError, match=words):
        success_probability(OPEN, [(0, 0)], [(0, 1)], plan, q, exact=exact)


def test_three_agents_are_not_computed_exactly() -> None:
    plan = [[(0, 0)], [(1, 1)], [(2, 2)]]
    starts = [path[0] for path in plan]
    with pytest.raises(EnvsimError, match="3 agents on 4x4 cannot be computed exactly"):
        success_probability(OPEN, starts, starts, plan, 0.9, exact=True)


def test_large_maps_are_sampled() -> None:
    rows = ["." * 60] * 50
    plan = [[(20, c) for c in range(20, 25)], [(30, c) for c in range(20, 25)]]
    found = success_probability(rows, [p[0] for p in plan], [p[-1] for p in plan], plan, 0.95, key="large")
    assert found.interval is not None
    assert found.interval[0] <= 0.95**8 + 0.02
    with pytest.raises(EnvsimError, match="2 agents on 50x60 cannot be computed exactly"):
        success_probability(rows, [p[0] for p in plan], [p[-1] for p in plan], plan, 0.95, exact=True)


def _paced(agents: int, steps: int, size: int = 10) -> LakeInstance:
    ends = [(r, 0) for r in range(agents)]
    return make_instance(["." * size] * size, ends, [(r, c + steps % 2) for r, c in ends], success_rate=0.97)


@pytest.mark.parametrize("agents", [1, 2, 3, 5])
@pytest.mark.parametrize("steps", [400, 20_000])
def test_no_answer_is_simulated_for_long(agents: int, steps: int) -> None:
    instance = _paced(agents, steps)
    plan = [[(r, t % 2) for t in range(steps + 1)] for r in range(agents)]
    began = time.process_time()
    found = success_probability(instance.rows, instance.starts, instance.goals, plan, 0.97, key="long")
    assert time.process_time() - began < 1  # about 0.2 s where nobody else is busy
    assert found.interval is None or found.interval[0] <= found.probability <= found.interval[1]
    assert found.probability + sum(found.failures.values()) == pytest.approx(1)
    verdict = Lake().replay(instance, render(plan, "compact")).verdict
    assert verdict.valid
    assert verdict.success is not None
    assert verdict.success > 0


def test_waiting_costs_nothing_and_sensible_plans_are_exact() -> None:
    instance = _paced(2, 1)
    short = [[(r, 0), (r, 1)] for r in range(2)]
    waits = [[(r, 0)] * 20_000 + [(r, 1)] for r in range(2)]
    ends = (instance.rows, instance.starts, instance.goals)
    assert success_probability(*ends, waits, 0.97) == success_probability(*ends, short, 0.97)
    there_and_back = [[(r, t % 2) for t in range(302)] for r in range(2)]
    found = success_probability(*ends, there_and_back, 0.97)
    assert found.interval is None
    assert found == success_probability(*ends, there_and_back, 0.97, exact=True)


def test_more_rollouts_than_can_be_drawn_leave_what_is_certain() -> None:
    instance = _paced(3, 2_000)
    plan = [[(r, t % 2) for t in range(2_001)] for r in range(3)]
    ends = (instance.rows, instance.starts, instance.goals)
    found = success_probability(*ends, plan, 0.9999)
    assert found.probability == pytest.approx(0.9999**6_000)
    assert found.interval == (found.probability, 1.0)
    assert success_probability(*ends, [*plan[:2], plan[2][:-1]], 0.9999).probability == 0
