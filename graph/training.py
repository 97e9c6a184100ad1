"""What training a stage came to: the worker's result, or word that it could teach nothing.

Where all answers of every group earned the same GRPO has no gradient, and the worker fails because the weights did not
move. That says something of the tasks and not of the machinery: the run writes it down and goes on.
"""

from __future__ import annotations

from typing import Any

from graph import layout
from graph.rundir import RunDir
from graph.state import Pointer
from trainer.attempts import attempts, read_result
from trainer.metrics import mean_known
from trainer.resume import history
from trainer.spec import ModelRef, StageResult, StageSpec, Trip
from trainer.stage import StageError

UNMOVED = "the weights moved by 0"
"""How the worker says it."""


def stage_result(run: RunDir, stage: int) -> StageResult:
    """What a finished stage came to. The model of one without signal is the one that it started from.

    Raises StageError if the stage is not finished.
    """
    if without_signal(run, stage):
        return StageResult.model_validate(run.read(layout.in_stage(stage, layout.NO_SIGNAL)))
    result = read_result(run.path(layout.stage_dir(stage)))
    if result is None:
        raise StageError(f"stage {stage:03d} has no result in {layout.stage_dir(stage)}; resume the run to train it")
    return result


def stopped_by(run: RunDir, stage: int) -> Trip | None:
    """The tripwire that stopped the stage before its last step, if one did."""
    result = read_result(run.path(layout.stage_dir(stage)))
    return None if result is None else result.tripped


def without_signal(run: RunDir, stage: int) -> bool:
    """Whether the stage could teach nothing."""
    return run.exists(layout.in_stage(stage, layout.NO_SIGNAL))


def known_without_signal(run: RunDir, spec: StageSpec) -> bool:
    """Whether this very stage was found to teach nothing before, so that it need not be trained again."""
    return run.made(layout.in_stage(spec.stage, layout.NO_SIGNAL), spec.identity())


def interruption_line(event: dict[str, Any]) -> str:
    """What is told of an attempt that another one follows."""
    return f"{event['attempt']} ended: {event['outcome']}, {event['detail']}; another goes on from the last checkpoint"


def resumption_lines(result: StageResult) -> list[str]:
    """What is told of a stage that was not trained in one go; nothing of one that was."""
    lines = [f"passed over {each.path}: {each.fault}, {each.detail}" for each in result.passed_over]
    if result.micro_batch is not None:
        lines.append(f"memory ran out: {result.micro_batch} completions at once, the batch stayed as it was")
    if not result.exact:
        lines.append("the weights are not bit by bit those of one undisturbed attempt")
    return lines


def note_no_signal(run: RunDir, spec: StageSpec, current: Pointer, failure: StageError) -> bool:
    """Write down that the stage could teach nothing, if that is why it failed; returns whether it is.

    It is if the worker did every step, no group of any step had answers that earned differently, and the weights did
    not move. Weights that stand still beside a signal are a fault of training, and stay one.
    """
    tried = attempts(run.path(layout.stage_dir(spec.stage)))
    steps = history(tried[-1]) if tried else []
    whole = len(steps) == spec.grpo.steps
    if UNMOVED not in str(failure) or not whole or any(row.zero_variance < 1 for row in steps):
        return False
    result = StageResult(
        spec_hash=spec.identity(),
        stage=spec.stage,
        steps=spec.grpo.steps,
        model=ModelRef(path=current["path"], sha256=current["sha256"]),
        weight_change=0.0,
        generated_tokens=sum(row.tokens for row in steps),
        reward_first=steps[0].reward,
        reward_last=steps[-1].reward,
        zero_variance_share=1.0,
        success=mean_known(row.success for row in steps),
        progress=mean_known(row.progress for row in steps),
        seconds={},
        attempt=len(tried),
    )
    file = layout.in_stage(spec.stage, layout.NO_SIGNAL)
    run.write(file, result.model_dump(mode="json"))
    run.claim(file, spec.identity())
    return True
