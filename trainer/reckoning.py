"""What an attempt that finished its stage puts into the result."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.attempts import attempts, number
from trainer.metrics import SftMetrics, StepMetrics, mean_known
from trainer.outcomes import AttemptRecord, read_end
from trainer.references import ModelRef
from trainer.results import AnyResult, EarlierAttempt, Rehearsed, SftResult, StageResult
from trainer.resume import history, history_rows
from trainer.spec import AnySpec, SftSpec, StageSpec

if TYPE_CHECKING:
    from trainer.trained import Trained


def result_of(
    spec: AnySpec, record: AttemptRecord, trained: Trained, *, model: ModelRef, attempt: Path, started: float
) -> AnyResult:
    """First and last figures are means over a fifth of the steps; seconds are this attempt's."""
    total = time.time() - started
    clock = trained.clock
    common: dict[str, Any] = {
        "spec_hash": spec.identity(),
        "stage": spec.stage,
        "steps": trained.steps,
        "model": model,
        "weight_change": trained.weight_change,
        "seconds": {
            "start_up": clock.start_up,
            "generation": clock.generation,
            "training": total - clock.start_up - clock.generation - clock.saving,
            "saving": clock.saving,
            "total": total,
        },
        "attempt": number(attempt),
        "resumed_from_step": trained.resumed_from_step,
        "tripped": trained.tripped,
        "warnings": trained.warnings,
        "exact": record.exact,
        "micro_batch": None if record.micro_batch == spec.micro_batch else record.micro_batch,
        "earlier": tuple(
            EarlierAttempt(attempt=number(other), outcome="lost" if (end := read_end(other)) is None else end.outcome)
            for other in attempts(attempt.parent)
            if other != attempt
        ),
        "passed_over": record.passed_over,
    }
    if isinstance(spec, SftSpec):
        shown = history_rows(attempt, SftMetrics)
        finite = [row.loss for row in shown if math.isfinite(row.loss)]
        if not finite:
            raise ValueError("the loss of no step is a finite number; the stage's model or its tasks are at fault")
        first, last = _ends(finite)
        tokens = sum(row.tokens for row in shown)
        return SftResult(**common, loss_first=first, loss_last=last, answer_tokens=tokens)
    steps = history(attempt)
    first, last = _ends([row.reward for row in steps])
    return StageResult(
        **common,
        generated_tokens=sum(row.tokens for row in steps),
        reward_first=first,
        reward_last=last,
        zero_variance_share=sum(row.zero_variance for row in steps) / len(steps),
        success=mean_known(row.success for row in steps),
        progress=mean_known(row.progress for row in steps),
        rehearsed=_rehearsed(spec, steps),
    )


def _rehearsed(spec: StageSpec, steps: Sequence[StepMetrics]) -> Rehearsed | None:
    losses = [row.role_loss for row in steps if row.role_loss is not None]
    if spec.role_rehearsal is None or not losses:
        return None
    first, last = _ends(losses)
    return Rehearsed(episodes=len(losses) * spec.role_rehearsal.batch, loss_first=first, loss_last=last)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Means over the first and over the last fifth."""
    window = max(1, len(values) // 5)
    return sum(values[:window]) / window, sum(values[-window:]) / window
