"""Laws of acceptance: what is kept, what is rolled back, and where the two pointers may stand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.acceptance import PairingError, compare, judge
from graph.settings import AcceptanceSettings
from graph.state import Pointer
from trainer.evaluate import Rollout

RULE = AcceptanceSettings(resamples=200)


def rollout(name: str, cell: str, valid: bool, sample: int = 0) -> Rollout:
    return Rollout(
        id=name,
        cell=cell,
        sample=sample,
        answer="",
        tokens=1,
        outcome="optimal" if valid else "hole",
        valid=valid,
        optimal=valid,
        regret=0.0 if valid else 1.0,
        fault=None,
    )


def evaluation(cells: dict[str, list[bool]]) -> list[Rollout]:
    return [rollout(f"{cell}-{i}", cell, valid) for cell, values in cells.items() for i, valid in enumerate(values)]


def pointer(stage: int, anchor: float) -> Pointer:
    return Pointer(stage=stage, path=f"stages/{stage}/model", sha256=str(stage), anchor=anchor)


def macro(cells: dict[str, list[bool]]) -> float:
    return sum(sum(values) / len(values) for values in cells.values()) / len(cells)


outcomes = st.lists(st.booleans(), min_size=20, max_size=20)
pairs = st.dictionaries(st.sampled_from(["3x3", "4x4", "5x5"]), st.tuples(outcomes, outcomes), min_size=1)


def test_no_change_is_kept_and_leaves_the_champion() -> None:
    cells = {"3x3": [True, False] * 20}
    result = compare(evaluation(cells), evaluation(cells), RULE, seed=0)
    judgement = judge(result, pointer(1, 0.5), pointer(0, 0.5), RULE)
    assert judgement.accepted
    assert judgement.current["stage"] == 1
    assert judgement.champion["stage"] == 0


def test_one_cell_that_falls_significantly_rolls_back_although_the_mean_rises() -> None:
    before = {"3x3": [True] * 60, "4x4": [False] * 60, "5x5": [False] * 60}
    after = {"3x3": [True] * 40 + [False] * 20, "4x4": [True] * 60, "5x5": [True] * 60}
    result = compare(evaluation(before), evaluation(after), RULE, seed=0)
    judgement = judge(result, pointer(1, macro(after)), pointer(0, macro(before)), RULE)
    assert result.valid.delta > 0
    assert not judgement.accepted
    assert "3x3" in judgement.reason
    assert judgement.current == judgement.champion == pointer(0, macro(before))


def test_a_small_loss_over_many_cells_is_noise_and_a_large_one_is_not() -> None:
    before = {f"{k}x{k}": [True] * 20 + [False] * 20 for k in range(3, 9)}
    slightly = {**before, "3x3": [True] * 19 + [False] * 20 + [True]}
    clearly = {cell: [True] * 13 + [False] * 27 for cell in before}
    for after, kept in ((slightly, True), (clearly, False)):
        result = compare(evaluation(before), evaluation(after), RULE, seed=0)
        assert judge(result, pointer(1, macro(after)), pointer(0, 0.5), RULE).accepted is kept


def test_evaluations_of_other_tasks_do_not_pair() -> None:
    with pytest.raises(PairingError, match="do not pair"):
        compare(evaluation({"3x3": [True]}), evaluation({"4x4": [True]}), RULE, seed=0)


def sampled(shares: list[int], of: int) -> list[Rollout]:
    return [rollout(f"3x3-{i}", "3x3", take < right, take) for i, right in enumerate(shares) for take in range(of)]


def test_sampled_answers_count_by_their_share_and_tasks_rise_or_fall() -> None:
    result = compare(sampled([4, 2, 0, 1], 4), sampled([4, 3, 1, 0], 4), RULE, seed=0)
    [cell] = result.cells
    assert (cell.n, cell.gained, cell.lost) == (4, 2, 1)
    assert (cell.before, cell.after) == (7 / 16, 8 / 16)
    assert result.valid.delta == pytest.approx(1 / 16)
    assert result.valid.n == 4


def test_what_greedy_answers_hide_sampled_ones_keep() -> None:
    # Every task is solved a little more often, none of them by the answer that is likeliest.
    before, after = sampled([1] * 30, 4), sampled([2] * 30, 4)
    judgement = judge(compare(before, after, RULE, seed=0), pointer(1, 0.5), pointer(0, 0.25), RULE)
    assert judgement.accepted
    assert judgement.champion["stage"] == 1
    back = judge(compare(after, before, RULE, seed=0), pointer(1, 0.25), pointer(0, 0.5), RULE)
    assert not back.accepted
    assert "significant fall: 3x3 50 % -> 25 %" in back.reason


def test_as_many_answers_to_a_task_are_needed_on_both_sides() -> None:
    with pytest.raises(PairingError, match="as many answers to a task"):
        compare(sampled([1], 4), sampled([1], 2), RULE, seed=0)


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_laws(cells: dict[str, tuple[list[bool], list[bool]]]) -> None:
    before = {cell: pair[0] for cell, pair in cells.items()}
    after = {cell: pair[1] for cell, pair in cells.items()}
    champion, new = pointer(0, macro(before)), pointer(1, macro(after))
    result = compare(evaluation(before), evaluation(after), RULE, seed=0)
    judgement = judge(result, new, champion, RULE)
    assert judgement.champion["anchor"] >= champion["anchor"]
    assert judgement.current["anchor"] >= new["anchor"] or judgement.accepted
    if result.valid.delta >= 0 and not any(cell.fell for cell in result.cells):
        assert judgement.accepted
    if not judgement.accepted:
        assert judgement.current == judgement.champion == champion
    shuffled = compare(evaluation(before)[::-1], evaluation(after), RULE, seed=0)
    assert shuffled.valid == result.valid
