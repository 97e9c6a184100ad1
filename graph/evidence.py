"""Evidence of a stage from the run's files: the current checkpoint's failures, and what became of earlier stages."""

from __future__ import annotations

from agents.evidence import build_evidence, silent_shares, training_evidence, without
from agents.schemas import Evidence, HistoryEntry
from graph import layout
from graph.gating import given, prediction
from graph.state import Pointer, RunState
from graph.training import stage_result
from graph.work import Work
from trainer.dataset import DatasetError, read_dataset
from trainer.evaluate import failures_path, rollouts_path
from trainer.spec import DataRef, EvalReport

MEASURED = "evidence.measured.json"
"""What was really measured, where the roles are shown something else."""


def evidence_of(work: Work, state: RunState) -> Evidence:
    """What the roles are shown: the measured evidence, as the designer and the run's settings have it seen."""
    found = measured_evidence(work, state)
    stage = state["stage"]
    shown = without(work.designer().see(found, work.seed(stage, "shown")), work.settings.evidence.omit)
    if shown != found:
        work.run.write(layout.in_stage(stage, MEASURED), found.model_dump(mode="json"))
    return shown


def measured_evidence(work: Work, state: RunState) -> Evidence:
    """The current checkpoint on the validation set, and the history with every regression that was rolled back."""
    stage, current = state["stage"], state["current"]
    directory = work.run.path(layout.eval_dir(current["stage"]))
    last = stage_result(work.run, stage - 1)
    return build_evidence(
        work.environment,
        stage=stage,
        config=work.config(state["config"]),
        report=work.evaluate(current, "validation"),
        rollouts=rollouts_path(directory, "validation"),
        failures=failures_path(directory, "validation"),
        previous=before_last_stage(work, current),
        anchor=work.evaluate(current, "anchor"),
        history=[history_entry(work, number) for number in range(1, stage)],
        zero_variance_share=last.zero_variance_share,
        training=training_evidence(
            work.environment,
            stage=stage - 1,
            measured=given(work, stage - 1),
            success=last.success,
            progress=last.progress,
        ),
        silent=silent_groups(work, stage - 1, last.steps),
        stopped=None if last.tripped is None else str(last.tripped),
        instances=work.frozen_set("validation"),
    )


def silent_groups(work: Work, stage: int, steps: int) -> dict[tuple[str, int], float]:
    """The share of a stage's groups without signal, by cell and number of agents; empty if its files are not whole."""
    made = work.run.read(layout.in_stage(stage, "dataset.json"))
    path = work.run.path(layout.in_stage(stage, "dataset.jsonl"))
    try:
        trained_on = read_dataset(work.environment, DataRef(path=str(path), sha256=made["sha256"], n=made["n"]))
    except DatasetError:
        return {}
    return silent_shares(work.environment, trained_on, work.run.path(layout.stage_dir(stage)), steps)


def before_last_stage(work: Work, current: Pointer) -> EvalReport | None:
    """The validation report of the checkpoint that the current one was trained from; None for the starting one."""
    if current["stage"] < 0:
        return None
    trained_from: Pointer = work.run.read(layout.in_stage(current["stage"], "decision.json"))["trained_from"]
    return work.evaluate(trained_from, "validation")


def history_entry(work: Work, stage: int) -> HistoryEntry:
    """One designed stage in a line."""
    plan = work.run.read(layout.in_stage(stage, "plan.json"))
    decision = work.run.read(layout.in_stage(stage, "decision.json"))
    guess = prediction(work, stage)
    return HistoryEntry(
        stage=stage,
        designer=plan["source"],
        changes=plan["changes"],
        accepted=decision["accepted"],
        anchor_before=decision["before"]["macro_valid"],
        anchor_after=decision["after"]["macro_valid"],
        stopped=decision.get("stopped"),
        predicted=dict(guess.predicted) if guess else {},
        measured=dict(guess.measured) if guess else {},
    )
