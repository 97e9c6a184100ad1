"""Evaluation streams, resumes without repeating and refuses another evaluation's files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from toy import Toy, ToyInstance

from envsim.api import Verdict
from trainer.evaluate import (
    CHUNK,
    EvaluationError,
    evaluate,
    failures_path,
    read_rollouts,
    report_path,
    rollouts_path,
)
from trainer.policy import Completion
from trainer.spec import EvalReport, GenerationSettings

GREEDY = GenerationSettings(max_new_tokens=8, temperature=0)


class Scripted:
    """Answers by the number in the prompt and the seed; counts and can die."""

    def __init__(self, dies_at_call: int | None = None) -> None:
        self.calls: list[int] = []
        self._dies_at = dies_at_call

    def generate(self, prompts: Sequence[Any], *, samples: int = 1, seed: int = 0, **_: Any) -> list[list[Completion]]:
        if len(self.calls) == self._dies_at:
            raise KeyboardInterrupt
        self.calls.append(len(prompts))
        numbers = [int(prompt[0]["content"].split()[1]) for prompt in prompts]
        return [
            [
                Completion(
                    text="b" * (number % 3) + chr(98 + (number + sample + seed) % 2),
                    prompt_tokens=9,
                    tokens=2,
                    finish_reason="stop",
                )
                for sample in range(samples)
            ]
            for number in numbers
        ]


def run(directory: Path, policy: Scripted, n: int = 300, **changes: Any) -> EvalReport:
    toy = Toy()
    values: dict[str, Any] = {
        "set_name": "anchor", "model_sha256": "m", "style": "compact", "generation": GREEDY, "directory": directory
    }  # fmt: skip
    return evaluate(policy, toy, toy.instances(n), **(values | changes))


def same(report: EvalReport) -> dict[str, Any]:
    return report.model_dump(exclude={"seconds"})


class Noisy(Toy):
    """Moves slip in every other task: a valid answer there succeeds half of the time."""

    def score(self, instance: ToyInstance, answer: str) -> Verdict:
        verdict = super().score(instance, answer)
        worth = {"success": 0.5, "success_interval": (0.4, 0.6)} if verdict.valid and instance.number % 2 else {}
        return verdict.model_copy(update=worth)


def test_rollouts_and_report_carry_success_where_tasks_are_noisy(tmp_path: Path) -> None:
    toy = Noisy()
    report = evaluate(
        Scripted(), toy, toy.instances(40), set_name="anchor", model_sha256="m", style="compact", generation=GREEDY,
        directory=tmp_path,
    )  # fmt: skip
    rows = read_rollouts(rollouts_path(tmp_path, "anchor"))
    assert {row.success for row in rows if row.cell == "odd" and row.valid} == {0.5}
    assert {row.success_interval for row in rows if row.cell == "odd" and row.valid} == {(0.4, 0.6)}
    assert {row.success for row in rows if row.cell == "even" or not row.valid} == {None}
    assert report.cells["odd"].success == 0.5
    assert report.cells["even"].success is None
    assert EvalReport.model_validate_json(report_path(tmp_path, "anchor").read_bytes()) == report


def test_without_noise_files_read_as_ever(tmp_path: Path) -> None:
    run(tmp_path, Scripted())
    written = [path.read_text() for path in (rollouts_path(tmp_path, "anchor"), report_path(tmp_path, "anchor"))]
    assert not any("success" in text for text in written)


def test_the_report_is_the_mean_over_cells(tmp_path: Path) -> None:
    report = run(tmp_path, Scripted())
    rows = read_rollouts(rollouts_path(tmp_path, "anchor"))
    assert len(rows) == report.n == 300
    for cell, stats in report.cells.items():
        mine = [row for row in rows if row.cell == cell]
        assert stats.n == len(mine)
        assert stats.valid == pytest.approx(sum(row.valid for row in mine) / len(mine))
    assert report.macro_valid == pytest.approx(sum(cell.valid for cell in report.cells.values()) / len(report.cells))
    assert sum(report.outcomes.values()) == 300
    assert EvalReport.model_validate_json(report_path(tmp_path, "anchor").read_text()) == report


def test_a_finished_evaluation_is_not_repeated(tmp_path: Path) -> None:
    first, policy = run(tmp_path, Scripted()), Scripted()
    assert run(tmp_path, policy) == first
    assert policy.calls == []


def test_cut_off_evaluations_go_on_to_the_same_rows(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", Scripted(), samples=2, seed=3)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", Scripted(dies_at_call=1), samples=2, seed=3)
    path = rollouts_path(tmp_path / "cut", "anchor")
    with path.open("a") as file:
        file.write('{"id": "toy-128", "torn')
    policy = Scripted()
    resumed = run(tmp_path / "cut", policy, samples=2, seed=3)
    assert sum(policy.calls) == 300 - CHUNK
    assert same(resumed) == same(whole)
    assert path.read_text() == rollouts_path(tmp_path / "whole", "anchor").read_text()


@pytest.mark.parametrize(
    "change", [{"model_sha256": "other"}, {"seed": 9}, {"n": 299}, {"generation": GenerationSettings(temperature=1.0)}]
)
def test_another_evaluations_files_are_refused_and_kept(tmp_path: Path, change: dict[str, Any]) -> None:
    run(tmp_path, Scripted())
    before = rollouts_path(tmp_path, "anchor").read_text()
    with pytest.raises(EvaluationError, match="another evaluation"):
        run(tmp_path, Scripted(), **change)
    assert rollouts_path(tmp_path, "anchor").read_text() == before


def test_two_evaluations_do_not_write_the_same_files(tmp_path: Path) -> None:
    class Meanwhile(Scripted):
        def generate(self, prompts: Sequence[Any], **arguments: Any) -> list[list[Completion]]:
            with pytest.raises(EvaluationError, match=r"another evaluation holds .*/anchor\.lock"):
                run(tmp_path, Scripted())
            run(tmp_path, Scripted(), set_name="test")
            return super().generate(prompts, **arguments)

    assert run(tmp_path, Meanwhile()).n == len(read_rollouts(rollouts_path(tmp_path, "anchor"))) == 300


@pytest.mark.parametrize("change", [{}, {"id": "toy-300"}, {"sample": 1}])
def test_surplus_rows_are_named_and_kept(tmp_path: Path, change: dict[str, Any]) -> None:
    run(tmp_path, Scripted())
    path = rollouts_path(tmp_path, "anchor")
    row = read_rollouts(path)[7].model_copy(update=change)
    with path.open("a", encoding="utf-8") as file:
        file.write(row.model_dump_json() + "\n")
    before = path.read_bytes()
    with pytest.raises(EvaluationError, match=f"line 302 is sample {row.sample} of '{row.id}'.*expected each once"):
        run(tmp_path, Scripted())
    assert path.read_bytes() == before


def test_a_set_may_hold_a_task_twice(tmp_path: Path) -> None:
    toy, policy = Toy(), Scripted()
    tasks = [*toy.instances(5), toy.instances(1)[0]]
    values: dict[str, Any] = {"set_name": "anchor", "model_sha256": "m", "style": "compact", "generation": GREEDY}
    report = evaluate(policy, toy, tasks, directory=tmp_path, **values)
    assert evaluate(policy, toy, tasks, directory=tmp_path, **values) == report
    assert (report.n, policy.calls) == (6, [6])


@pytest.mark.parametrize("stale", [{"n": 400}, {"model_sha256": "other"}])
def test_a_report_of_other_rows_is_written_again(tmp_path: Path, stale: dict[str, Any]) -> None:
    report, policy = run(tmp_path, Scripted()), Scripted()
    path = report_path(tmp_path, "anchor")
    path.write_text(report.model_copy(update=stale).model_dump_json())
    assert same(run(tmp_path, policy)) == same(report) == same(EvalReport.model_validate_json(path.read_bytes()))
    assert policy.calls == []


def test_failures_are_kept_with_their_trajectories(tmp_path: Path) -> None:
    report = run(tmp_path, Scripted(), keep_failures=True)
    rows = [json.loads(line) for line in failures_path(tmp_path, "anchor").read_text().splitlines()]
    assert len(rows) == sum(count for outcome, count in report.outcomes.items() if outcome in ("odd", "empty"))
    assert all(len(row["states"]) == len(row["actions"]) + 1 and row["fault"] for row in rows)


def test_answers_may_hold_every_kind_of_line_end(tmp_path: Path) -> None:
    ends = "".join(map(chr, (0x0A, 0x0D, 0x0B, 0x0C, 0x1C, 0x85, 0x2028, 0x2029)))

    class Odd(Scripted):
        def generate(self, prompts: Sequence[Any], **arguments: Any) -> list[list[Completion]]:
            answers = super().generate(prompts, **arguments)
            return [[one.model_copy(update={"text": one.text + ends}) for one in group] for group in answers]

    whole = run(tmp_path / "whole", Odd(), keep_failures=True)
    rows = read_rollouts(rollouts_path(tmp_path / "whole", "anchor"))
    assert len(rows) == 300
    assert all(row.answer.endswith(ends) for row in rows)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", Odd(dies_at_call=2))
    path = rollouts_path(tmp_path / "cut", "anchor")
    with path.open("ab") as file:
        file.write('{"id": "toy-256", "answer": "\u2028'.encode()[:-1])
    policy = Odd()
    assert same(run(tmp_path / "cut", policy)) == same(whole)
    assert sum(policy.calls) == 300 - 2 * CHUNK
    assert path.read_bytes() == rollouts_path(tmp_path / "whole", "anchor").read_bytes()


def test_an_empty_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="empty"):
        run(tmp_path, Scripted(), n=0)
