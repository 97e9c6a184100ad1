"""Evidence from a real evaluation of the lake: the right statistics, few and telling failures, the same bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agents_fakes import SkillPolicy

from agents.evidence import build_evidence, choose_failures, read_failures
from agents.schemas import CellEvidence, Evidence
from envsim import registry
from envsim.api import Fault
from trainer.evaluate import Rollout, evaluate, failures_path, rollouts_path
from trainer.spec import EvalReport, GenerationSettings

LAKE = registry.get("lake")
RATES = dict(zip(LAKE.cells(), (1.0, 0.5, 0.2, 0, 0, 0, 0, 0), strict=True))
INSTANCES = LAKE.generate(LAKE.default_config(), 96, 2, split="validation").instances


class Walker(SkillPolicy):
    """Fails by walking out of the map or by saying nothing, in turn."""

    def generate(self, prompts: Any, **arguments: Any) -> Any:
        answers = super().generate(prompts, **arguments)
        for number, (prompt, completions) in enumerate(zip(prompts, answers, strict=True)):
            task = self.tasks[prompt[-1]["content"]]
            for index, completion in enumerate(completions):
                if not LAKE.score(task, completion.text).valid:
                    null = LAKE.null_answers(task, "compact", number)
                    text = null["random_legal"] if number % 3 else ""
                    completions[index] = completion.model_copy(update={"text": text})
        return answers


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EvalReport]:
    policy = Walker(LAKE, lambda task: RATES[LAKE.cell(task)])
    policy.know(INSTANCES)
    directory = tmp_path_factory.mktemp("evaluation")
    report = evaluate(
        policy,
        LAKE,
        INSTANCES,
        set_name="validation",
        model_sha256="0" * 64,
        style="compact",
        generation=GenerationSettings(temperature=0.0),
        directory=directory,
        keep_failures=True,
    )
    return directory, report


def evidence(evaluation: tuple[Path, EvalReport], **changes: Any) -> Evidence:
    directory, report = evaluation
    values: dict[str, Any] = {
        "stage": 1,
        "config": LAKE.default_config(),
        "report": report,
        "rollouts": rollouts_path(directory, "validation"),
        "failures": failures_path(directory, "validation"),
        "previous": None,
        "anchor": report,
        "history": [],
        "zero_variance_share": 0.4,
        "instances": INSTANCES,
    }
    return build_evidence(LAKE, **{**values, **changes})


def test_statistics_are_the_reports(evaluation: tuple[Path, EvalReport]) -> None:
    _, report = evaluation
    seen = evidence(evaluation)
    assert [cell.cell for cell in seen.cells] == LAKE.cells()
    for cell in seen.cells:
        assert (cell.n, cell.valid) == (report.cells[cell.cell].n, report.cells[cell.cell].valid)
        assert cell.knobs == {"data_ratio": 0.125, "hole_ratio": 0.2, "wait_ratio": 0.2}
    assert seen.cells[0].top_fault is None
    assert seen.cells[0].mean_first_fault_step is None
    hardest = seen.cells[-1]
    invalid = {name: count for name, count in hardest.outcomes.items() if name not in ("optimal", "valid_suboptimal")}
    assert hardest.top_fault is not None
    assert invalid[hardest.top_fault] == max(invalid.values())
    assert not seen.no_signal
    assert seen.anchor == {name: cell.valid for name, cell in report.cells.items()}


def test_the_change_is_against_the_previous_report(evaluation: tuple[Path, EvalReport]) -> None:
    _, report = evaluation
    worse = report.cells["4x4"].model_copy(update={"valid": 0.0})
    previous = report.model_copy(update={"cells": {**report.cells, "4x4": worse}})
    changes = {cell.cell: cell.change for cell in evidence(evaluation, previous=previous).cells}
    assert changes["4x4"] == report.cells["4x4"].valid
    assert changes["3x3"] == 0
    assert evidence(evaluation).cells[0].change is None


def test_failures_are_few_real_and_the_same_every_time(evaluation: tuple[Path, EvalReport]) -> None:
    directory, _ = evaluation
    seen = evidence(evaluation, examples=6)
    assert seen == evidence(evaluation, examples=6)
    assert [failure.id for failure in seen.failures] == ["e1", "e2", "e3", "e4", "e5", "e6"]
    real = {(row.cell, row.outcome) for row in read_failures(failures_path(directory, "validation"))}
    prompts = {LAKE.prompt(task, "compact")[-1]["content"] for task in INSTANCES}
    for failure in seen.failures:
        assert (failure.cell, failure.outcome) in real
        assert failure.instance in prompts
        assert failure.where
    assert {"4x4", "5x5"} <= {failure.cell for failure in seen.failures}


def test_nothing_solved_is_no_signal(evaluation: tuple[Path, EvalReport]) -> None:
    _, report = evaluation
    nothing = {name: cell.model_copy(update={"valid": 0.02}) for name, cell in report.cells.items()}
    assert evidence(evaluation, report=report.model_copy(update={"cells": nothing})).no_signal


def test_a_cell_that_was_not_evaluated_is_named(evaluation: tuple[Path, EvalReport]) -> None:
    _, report = evaluation
    cells = {name: cell for name, cell in report.cells.items() if name != "7x7"}
    with pytest.raises(ValueError, match="no instance of 7x7"):
        evidence(evaluation, report=report.model_copy(update={"cells": cells}))


def rollout(number: int, cell: str, outcome: str, step: int | None) -> Rollout:
    return Rollout(
        id=f"i{number:03}",
        cell=cell,
        sample=0,
        answer="",
        tokens=1,
        outcome=outcome,
        valid=False,
        optimal=False,
        regret=1.0,
        fault=None if step is None else Fault(step=step),
    )


def cell_evidence(cell: str, valid: float) -> CellEvidence:
    return CellEvidence(
        cell=cell,
        n=10,
        valid=valid,
        optimal=0,
        change=None,
        top_fault="hole",
        knobs={},
        outcomes={},
        mean_first_fault_step=None,
    )


def test_typical_is_the_median_step_and_odd_the_rarest_place() -> None:
    steps = [2, 2, 2, 3, 3, 9]
    rows = [rollout(number, "3x3", "hole", step) for number, step in enumerate(steps)]
    chosen = choose_failures(rows, [cell_evidence("3x3", 0.5)], LAKE.outcomes, 8)
    assert [(row.fault.step if row.fault else None, kind) for row, kind in chosen] == [(2, "typical"), (9, "odd")]


def test_cells_where_most_can_be_learnt_come_first() -> None:
    names = ("3x3", "4x4", "5x5")
    rows = [rollout(i, names[i % 3], "hole" if i % 2 else "edge_conflict", i % 5) for i in range(60)]
    cells = [cell_evidence(name, valid) for name, valid in zip(names, (0.95, 0.5, 0.0), strict=True)]
    few = choose_failures(rows, cells, LAKE.outcomes, 2)
    assert [(row.cell, kind) for row, kind in few] == [("4x4", "typical"), ("4x4", "odd")]
    many = choose_failures(rows, cells, LAKE.outcomes, 100)
    assert [row.cell for row, _ in many] == sorted(row.cell for row, _ in many)
    assert max(Counter((row.cell, row.outcome, kind) for row, kind in many).values()) == 1
    assert len({row.id for row, _ in many}) == len(many)


def test_a_cluster_of_one_has_no_odd_failure() -> None:
    chosen = choose_failures([rollout(0, "3x3", "parse_error", None)], [cell_evidence("3x3", 0.5)], LAKE.outcomes, 8)
    assert [kind for _, kind in chosen] == ["typical"]
