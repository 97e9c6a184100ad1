"""Between two attempts of a stage: how the last one ended, what is told of it, and what the next one starts from."""

from __future__ import annotations

import signal
from pathlib import Path

from trainer.attempts import RESULT, attempts, read_result
from trainer.outcomes import EXIT_CODES, AttemptEnd, AttemptRecord, fewer_at_once, read_end, read_record, versions
from trainer.resume import ResumePoint
from trainer.spec import AnySpec, PassedOver, SftSpec

_TAIL = 30
_ADVICE = {
    "disk_full": "; make room and run it again, it goes on from its last checkpoint",
    "out_of_memory": "; one completion at a time is too much already: give it more memory or shorter answers",
}


def first_record(spec: AnySpec, stage: Path, found: ResumePoint) -> AttemptRecord:
    """What the next attempt of a stage starts from."""
    micro = micro_batch(spec, stage)
    # vLLM's draws depend on what it drew before; ours come from the seed and the step alone.
    repeats = found.step is None or isinstance(spec, SftSpec) or spec.rollouts.kind == "transformers"
    return AttemptRecord(
        spec_hash=spec.identity(),
        resumed_from=None if found.checkpoint is None else str(found.checkpoint.relative_to(stage)),
        micro_batch=micro,
        exact=found.exact and micro == spec.micro_batch and repeats,
        versions=versions(),
        passed_over=(*found.passed_over, *_damaged_result(stage)),
    )


def micro_batch(spec: AnySpec, stage: Path) -> int:
    """The spec's; after memory ran out, smaller passes than those that were too large, which divide a process's."""
    size = spec.micro_batch
    for attempt in attempts(stage):
        ended = read_end(attempt)
        if ended is not None and ended.outcome == "out_of_memory":
            size = fewer_at_once(spec.batch // spec.processes, min(size, _tried(spec, attempt))) or 1
    return size


def has_smaller_passes(spec: AnySpec, attempt: Path) -> bool:
    """Whether less can go through the model at once than did in an attempt that ran out of memory."""
    return micro_batch(spec, attempt.parent) < _tried(spec, attempt)


def ending(attempt: Path, code: int | None, stale_seconds: float | None) -> AttemptEnd:
    """What a worker wrote of its end, or what can be told from outside.

    Args:
        attempt: its directory.
        code: exit code or minus the signal; None if another process was its parent.
        stale_seconds: for how long it had given no sign of life, if it was ended for that.
    """
    if stale_seconds is not None:
        return AttemptEnd(outcome="stale_heartbeat", detail=f"no heartbeat for {stale_seconds:g} s")
    if (written := read_end(attempt)) is not None:
        return written if written.outcome != "done" else AttemptEnd(outcome="no_result", detail="its result is gone")
    if code is None:
        return AttemptEnd(outcome="killed", detail="it ended, with another process as its parent")
    if code < 0:
        return AttemptEnd(outcome="terminated" if -code == signal.SIGTERM else "killed", detail=f"signal {-code}")
    return AttemptEnd(outcome=EXIT_CODES.get(code, "failed"), detail=f"exit code {code}")


def explain(stage: int, log: Path, ended: AttemptEnd) -> str:
    """Why no other attempt follows, what to do, and the end of the worker's log."""
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:] if log.exists() else []
    return (
        f"the worker of stage {stage} ended without a result: {ended.outcome}, {ended.detail}"
        f"{_ADVICE.get(ended.outcome, '')}; the end of {log}:\n" + "\n".join(tail)
    )


def _tried(spec: AnySpec, attempt: Path) -> int:
    record = read_record(attempt)
    return spec.micro_batch if record is None else record.micro_batch


def _damaged_result(stage: Path) -> tuple[PassedOver, ...]:
    """Word of a result that lies there and cannot be read; the worker that trains again replaces it."""
    if not (stage / RESULT).exists() or read_result(stage) is not None:
        return ()
    return (PassedOver(path=RESULT, fault="damaged_result", detail="it is no result of a stage"),)
