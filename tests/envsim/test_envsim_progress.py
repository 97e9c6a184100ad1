"""Progress to the first fault, and the laws of what an answer earns."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from envsim.api import Style, Verdict
from envsim.lake import text
from envsim.lake.chance import stream
from envsim.lake.environment import Lake
from envsim.lake.grid import Cell
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.progress import progress
from envsim.lake.solver import analyse
from envsim.lake.verifier import OUTCOMES, verify

LAKE = Lake()
TASKS = LAKE.generate(LAKE.default_config(), 48, 5, split="validation").instances
ROWS = ["....", ".@..", "...."]


def played(starts: list[Cell], goals: list[Cell], plan: list[list[Cell]], via: list[Cell] | None = None) -> float:
    return progress(ROWS, goals, plan, verify(ROWS, starts, goals, plan), via)


def drawn(instance: LakeInstance, seed: int) -> str:
    """Answers from nonsense to optimal: a walk, an optimal or careless plan, or one that is cut, damaged, too long."""
    rng = stream("answers", instance.id, seed)
    style: Style = "compact" if rng.random() < 0.5 else "full"
    nulls = LAKE.null_answers(instance, style, seed)
    whole = [
        *nulls.values(),
        LAKE.reference_answer(instance, style),
        LAKE.demonstration(instance, style, seed),
        LAKE.demonstration(instance, style, seed, careless=0.7),
    ]
    answer = whole[int(rng.random() * len(whole))]
    kind = int(rng.random() * 4)
    if kind == 0 and answer:
        plan = text.parse(answer, instance.agents)
        keep = 1 + int(rng.random() * max(map(len, plan)))
        return text.render([path[:keep] for path in plan], style)
    if kind == 1 and answer:
        plan = [list(path) for path in text.parse(answer, instance.agents)]
        path = plan[int(rng.random() * len(plan))]
        path[int(rng.random() * len(path))] = (int(rng.random() * 12) - 1, int(rng.random() * 12) - 1)
        return text.render(plan, style)
    return answer


@given(
    st.integers(0, len(TASKS) - 1),
    st.lists(st.integers(0, 10**6), min_size=2, max_size=8, unique=True),
    st.sampled_from([1.0, 0.99, 0.95]),
    st.sampled_from([0.0, 0.05, 0.3]),
)
@settings(max_examples=120, deadline=None)
def test_the_laws_of_credit(task: int, seeds: list[int], q: float, shaping: float) -> None:
    instance = TASKS[task].model_copy(update={"success_rate": q, "shaping": shaping})
    verdicts = [LAKE.score(instance, drawn(instance, seed)) for seed in seeds]
    for verdict in verdicts:
        assert verdict.outcome in OUTCOMES
        assert 0 <= verdict.progress <= 1
        assert (verdict.progress == 1) == verdict.valid
        assert (verdict.success is not None) == (verdict.valid and q < 1)
        assert verdict.credit == pytest.approx(verdict.valid * (verdict.success or 1) + shaping * verdict.progress)
    valid = [verdict.credit for verdict in verdicts if verdict.valid]
    invalid = [verdict for verdict in verdicts if not verdict.valid]
    assert min(valid, default=2) > max((verdict.credit for verdict in invalid), default=-1)
    for one, other in pairwise(sorted(invalid, key=lambda verdict: verdict.progress)):
        if shaping and one.progress < other.progress:
            assert one.credit < other.credit
        if not shaping:
            assert one.credit == other.credit == 0


@given(st.integers(0, len(TASKS) - 1), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_what_judges_an_answer_does_not_depend_on_noise_or_shaping(task: int, seed: int) -> None:
    instance = TASKS[task]
    answer = drawn(instance, seed)
    plain = LAKE.score(instance, answer)
    worth = LAKE.score(instance.model_copy(update={"success_rate": 0.95, "shaping": 0.2}), answer)
    kept = ("outcome", "valid", "optimal", "regret", "cost", "fault", "progress")
    assert [getattr(plain, name) for name in kept] == [getattr(worth, name) for name in kept]
    assert plain.credit == float(plain.valid)


def test_a_group_without_a_valid_answer_has_variance_under_shaping() -> None:
    instance = TASKS[-1].model_copy(update={"shaping": 0.1})
    nulls = LAKE.null_answers(instance, "compact", 0)
    plan = text.parse(LAKE.reference_answer(instance, "compact"), instance.agents)
    half = text.render([path[: len(path) // 2 + 1] for path in plan], "compact")
    credits = {LAKE.score(instance, answer).credit for answer in (nulls["empty"], half)}
    assert len(credits) == 2
    sparse = instance.model_copy(update={"shaping": 0.0})
    assert {LAKE.score(sparse, answer).credit for answer in (nulls["empty"], half)} == {0.0}


def test_progress_by_hand() -> None:
    starts: list[Cell] = [(0, 0), (2, 3)]
    goals: list[Cell] = [(0, 3), (2, 0)]
    # Distances 3 and 3. One step each, then a hole: 2 and 2 remain.
    assert played(starts, goals, [[(0, 0), (0, 1), (1, 1)], [(2, 3), (2, 2), (2, 1)]]) == pytest.approx(1 / 3)
    # The faultless end of a plan that stops early counts.
    assert played(starts, goals, [[(0, 0), (0, 1), (0, 2)], [(2, 3), (2, 2), (2, 1)]]) == pytest.approx(2 / 3)
    # Staying earns nothing, nor does going away; a wrong start is no plan.
    assert played(starts, goals, [[(0, 0)], [(2, 3)]]) == 0
    assert played(starts, goals, [[(0, 0), (1, 0)], [(2, 3), (1, 3)]]) == 0
    assert played(starts, goals, [[(0, 1), (0, 2)], [(2, 3), (2, 2)]]) == 0
    # Both arrived, then one jumped: half a step short of 1.
    arrived = [[(0, 0), (0, 1), (0, 2), (0, 3), (2, 3)], [(2, 3), (2, 2), (2, 1), (2, 0), (2, 0)]]
    assert played(starts, goals, arrived) == pytest.approx(1 - 0.5 / 6)
    assert played(starts, goals, [path[:4] for path in arrived]) == 1


def test_progress_through_a_via_cell() -> None:
    goals, via = [(0, 3)], [(2, 0)]
    invalid = Verdict(outcome="goal_not_reached", valid=False, optimal=False, regret=1.0, fault={"step": 3})
    straight: list[list[Cell]] = [[(0, 0), (0, 1), (0, 2), (0, 3)]]
    # 2 down and 5 onwards at the start; at the goal the via cell is 5 away, and the goal 5 from there.
    assert progress(ROWS, goals, straight, invalid, via) == 0
    down: list[list[Cell]] = [[(0, 0), (1, 0), (2, 0), (2, 1)]]
    assert progress(ROWS, goals, down, invalid, via) == pytest.approx(1 - 4 / 7)


def test_where_there_is_no_way_and_where_all_are_at_home() -> None:
    blocked = make_instance([".@.", ".@."], [(0, 0)], [(0, 2)])
    assert LAKE.score(blocked, "(0,0)(1,0)").progress == 0
    home = make_instance(["..."], [(0, 0)], [(0, 0)])
    assert LAKE.score(home, "(0,0)(0,2)").progress == 0
    assert LAKE.replay(home, "(0,0)").verdict.progress == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"valid": True, "progress": 0.5},
        {"valid": False, "progress": 1.0},
        {"valid": False, "success": 0.5},
        {"valid": True, "success": 0.0},
    ],
)
def test_a_verdict_that_breaks_the_laws_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Verdict.model_validate({"outcome": "x", "optimal": False, "regret": 1.0} | wrong)


def test_more_than_two_agents_have_an_interval() -> None:
    rows = ["....", "....", "...."]
    instance = make_instance(rows, [(0, 0), (1, 0), (2, 0)], [(0, 2), (1, 2), (2, 2)], success_rate=0.95, shaping=0.1)
    answer = text.render([[(r, c) for c in range(3)] for r in range(3)], "compact")
    verdict = LAKE.replay(instance, answer).verdict
    assert verdict.success is not None
    assert verdict.success_interval is not None
    low, high = verdict.success_interval
    assert 0.95**6 <= low <= verdict.success <= high < 1
    assert verdict.credit == pytest.approx(verdict.success + 0.1)
    certified = instance.model_copy(
        update={"certificate": analyse(rows, instance.starts, instance.goals).certificate()}
    )
    scored = LAKE.score(certified, answer)
    assert scored == LAKE.replay(certified, answer).verdict
    assert scored == verdict.model_copy(update={"outcome": "optimal", "optimal": True})
