"""What a stage that was disturbed must have come to: all that an undisturbed one comes to, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer.attempts import attempts, number, read_result
from trainer.disturb import KINDS, worker_of
from trainer.metrics import StepMetrics, read_attempt
from trainer.outcomes import read_record
from trainer.results import StageResult
from trainer.resume import history
from trainer.soak_command import SoakError
from trainer.spec import StageSpec
from trainer.stage import run_stage

_TIMES = ("time", "seconds", "generation_seconds")


@dataclass(frozen=True)
class Undisturbed:
    """What every trial must end with."""

    result: StageResult
    rows: list[StepMetrics]
    seconds: float


def judge(spec: StageSpec, stage: Path, kind: str, expected: Undisturbed) -> str:
    """What the trial came to. Raises SoakError unless it is as if nothing had been."""
    result, tried = read_result(stage), attempts(stage)
    if result is None:
        raise SoakError("the supervisor said that the stage is done, and there is no result")
    want = expected.result
    if result.model.sha256 != want.model.sha256 or not result.exact:
        raise SoakError(f"the weights are {result.model.sha256[:12]}, expected {want.model.sha256[:12]}")
    rows = [row.model_dump(exclude=set(_TIMES)) for row in history(stage / f"attempt-{result.attempt}")]
    if rows != [row.model_dump(exclude=set(_TIMES)) for row in expected.rows]:
        raise SoakError(f"the metrics of {len(rows)} steps differ from the undisturbed run's")
    if run_stage(spec, stage) != result or attempts(stage) != tried:
        raise SoakError("running the stage again trained it again")
    # What was damaged cannot be read back; what came after it can.
    for attempt in tried[-1:] if kind == "damage" else tried:
        _check_beginning(attempt)
    ended = [earlier.outcome for earlier in result.earlier]
    if not set(ended) <= KINDS[kind]:
        raise SoakError(f"attempts ended as {ended}, expected {sorted(KINDS[kind])}")
    if worker_of(stage) is not None:
        raise SoakError(f"worker {worker_of(stage)} is left")
    faults = [passed.fault for passed in result.passed_over]
    word = f"attempts {len(tried)} {ended}, resumed from {result.resumed_from_step}"
    return word + (f", passed over {faults}" if faults else "")


def _check_beginning(attempt: Path) -> None:
    """The first step that an attempt trained is the one after its checkpoint."""
    record = read_record(attempt)
    if record is None:
        return
    first = 1 if record.resumed_from is None else number(Path(record.resumed_from)) + 1
    steps = [row.step for row in read_attempt(attempt)]
    if steps != list(range(first, first + len(steps))):
        raise SoakError(f"{attempt.name} trained the steps {steps}, expected them to begin with {first}")
