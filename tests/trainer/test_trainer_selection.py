"""Selection by probe: what is kept, what fills up, what is recorded, and a probe that goes on where it ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from toy import Toy

from envsim.api import Message
from trainer.evaluate import CHUNK
from trainer.policy import Completion, TransformersPolicy
from trainer.selection import Selection, candidates_needed, choose, effective_share, select
from trainer.spec import GenerationSettings, ModelRef
from trainer.training_settings import SelectionSettings

HOPEFUL = SelectionSettings(min_share=0.0)
RATES = [0.0, 0.5, 1.0, 0.25, 1.0, 0.0, 0.75, 0.0]


def names(n: int) -> list[str]:
    return [str(place) for place in range(n)]


@pytest.mark.parametrize(
    ("n", "fill", "expected"),
    [
        (2, "drawn", [1, 3]),
        (3, "drawn", [1, 3, 6]),
        (5, "drawn", [0, 1, 2, 3, 6]),
        (5, "unsolved", [0, 1, 3, 5, 6]),
        (5, "solved", [1, 2, 3, 4, 6]),
        (7, "solved", [0, 1, 2, 3, 4, 5, 6]),
        (8, "unsolved", list(range(8))),
    ],
)
def test_sometimes_solved_tasks_come_first_and_the_rule_fills_up(n: int, fill: str, expected: list[int]) -> None:
    settings = HOPEFUL.model_copy(update={"fill": fill})
    assert choose(RATES, names(8), n, settings) == expected


def test_too_few_informative_tasks_are_no_choice() -> None:
    settings = SelectionSettings(min_share=0.5)
    assert choose(RATES, names(8), 6, settings) is not None
    assert choose(RATES, names(8), 7, settings) is None


def test_repeated_prompts_come_last() -> None:
    assert choose([0.5, 0.5, 0.5, 0.0], ["a", "a", "b", "c"], 2, HOPEFUL) == [0, 2]
    assert choose([0.0, 0.0, 0.5, 1.0], ["a", "a", "b", "c"], 3, HOPEFUL) == [0, 2, 3]


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=40), st.data())
def test_as_many_as_needed_are_chosen_and_no_informative_one_is_left_for_another(
    rates: list[float], data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, len(rates)))
    chosen = choose(rates, names(len(rates)), n, HOPEFUL)
    assert chosen is not None
    assert len(chosen) == len(set(chosen)) == n
    assert chosen == sorted(chosen)
    informative = sum(0 < p < 1 for p in rates)
    assert sum(0 < rates[place] < 1 for place in chosen) == min(n, informative)


def test_the_effective_share_is_the_chance_of_a_mixed_group() -> None:
    assert effective_share([0.0, 1.0], 16) == 0
    assert effective_share([0.5], 2) == 0.5
    assert effective_share([0.1, 0.1], 8) == pytest.approx(0.57, abs=0.005)


@pytest.mark.parametrize(
    "settings", [{"samples": 1}, {"oversampling": 0.5}, {"min_share": 1.5}, {"fill": "random"}, {"k": 8}]
)
def test_settings_out_of_bounds_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SelectionSettings.model_validate(settings)


class Counting(TransformersPolicy):
    """Counts the prompts that it answers."""

    asked = 0

    def generate(self, prompts: Sequence[list[Message]], **arguments: Any) -> list[list[Completion]]:
        self.asked += len(prompts)
        return super().generate(prompts, **arguments)


def test_a_probe_of_a_model_is_recorded_and_goes_on_where_it_was_cut_off(tiny: ModelRef, tmp_path: Path) -> None:
    toy, settings = Toy(), SelectionSettings(samples=2, oversampling=2)
    policy = Counting(tiny, threads=1)
    drawn = toy.instances(candidates_needed(CHUNK, settings))
    assert len(drawn) == 2 * CHUNK

    def chosen(directory: Path, seed: int = 0) -> tuple[list[Any], Selection]:
        return select(
            policy,
            toy,
            drawn,
            CHUNK,
            settings=settings,
            group=4,
            model_sha256=tiny.sha256,
            style="compact",
            generation=GenerationSettings(max_new_tokens=2),
            directory=directory,
            seed=seed,
        )

    tasks, record = chosen(tmp_path / "a")
    assert policy.asked == 2 * CHUNK
    assert record.applied
    assert len(tasks) == len({task.id for task in tasks}) == CHUNK
    # Two answers of an untrained model: right about half the time, so about half the tasks are in between.
    assert 0.25 < record.informative_before < 0.75
    assert record.informative_after == min(record.informative, CHUNK) / CHUNK
    assert record.effective_after > record.effective_before + 0.1
    assert record.unsolved + record.solved + record.informative == 2 * CHUNK
    assert 2 * CHUNK <= record.tokens <= 2 * 2 * 2 * CHUNK

    # A file cut in the second chunk: only that chunk is answered again, and the choice is the same.
    (tmp_path / "b").mkdir()
    lines = (tmp_path / "a" / "candidates.rollouts.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "b" / "candidates.rollouts.jsonl").write_text("".join(lines[: CHUNK * 2 + 40]))
    policy.asked = 0
    again, recorded = chosen(tmp_path / "b")
    assert policy.asked == CHUNK
    assert again == tasks
    assert recorded.model_copy(update={"seconds": record.seconds}) == record
    assert chosen(tmp_path / "c", seed=1)[0] != tasks


def test_fewer_candidates_than_tasks_are_an_error(tiny: ModelRef, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="3 candidates for 4 tasks"):
        select(
            TransformersPolicy(tiny, threads=1),
            Toy(),
            Toy().instances(3),
            4,
            settings=HOPEFUL,
            group=4,
            model_sha256=tiny.sha256,
            style="compact",
            generation=GenerationSettings(max_new_tokens=2),
            directory=tmp_path,
            seed=0,
        )
