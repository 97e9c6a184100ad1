"""The directory of a stage: its attempts, who works on it, and its result.

A stage ``NNN/`` holds ``attempt-1/``, ``attempt-2/``..., each with ``spec.json``, ``attempt.json``, ``worker.json``,
``train.log``, ``metrics.jsonl``, ``heartbeat.json``, ``checkpoint-N/`` and, at its end, ``outcome.json``; then
``model/`` and, last, ``result.json``.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from trainer.files import write_atomic
from trainer.spec import AnySpec, Frozen, JobResult, StageResult, read_spec

Result = TypeVar("Result", bound=JobResult)
RESULT = "result.json"
LOCK = "worker.lock"
_SPEC = "spec.json"
_WORKER = "worker.json"


class WorkerRecord(Frozen):
    """A process and when it started, so that a recycled id is not mistaken for it."""

    pid: int
    started: str


def attempts(stage: Path) -> list[Path]:
    """Attempt directories in order of their numbers."""
    return sorted((path for path in stage.glob("attempt-*") if path.is_dir()), key=number)


def new_attempt(stage: Path, spec: AnySpec) -> Path:
    """A fresh attempt directory with the spec in it."""
    last = max((number(path) for path in attempts(stage)), default=0)
    attempt = stage / f"attempt-{last + 1}"
    attempt.mkdir(parents=True)
    write_atomic(attempt / _SPEC, spec.model_dump_json(indent=1))
    return attempt


def spec_path(attempt: Path) -> Path:
    return attempt / _SPEC


def attempt_identity(attempt: Path) -> str | None:
    """Identity of the attempt's spec; None if the attempt died before it was written, or it was damaged since."""
    try:
        return read_spec((attempt / _SPEC).read_bytes()).identity()
    except (FileNotFoundError, ValidationError):
        return None


def record_worker(attempt: Path, pid: int) -> None:
    """Write down who works on the attempt. A process that is gone already is not written down."""
    started = process_started(pid)
    if started is not None:
        write_atomic(attempt / _WORKER, WorkerRecord(pid=pid, started=started).model_dump_json())


def live_worker(attempt: Path) -> int | None:
    """Process id of the attempt's worker if that very process still runs; None if a damaged file does not say."""
    try:
        record = WorkerRecord.model_validate_json((attempt / _WORKER).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return record.pid if process_started(record.pid) == record.started else None


def process_started(pid: int) -> str | None:
    """When a running process started, as text to compare; None if there is none or it is a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            # The command in parentheses may hold blanks and parentheses; the fields after it do not.
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in "ZX" else fields[19]
    found = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return None if not found or found.startswith("Z") else found.partition(" ")[2].strip()


def read_result(stage: Path) -> StageResult | None:
    """The result of a stage of GRPO, its model's path as the stage lies now; None if there is none or it does not
    parse."""
    return read_result_of(stage, StageResult)


def read_result_of(stage: Path, kind: type[Result]) -> Result | None:
    """As `read_result`, of any kind of stage."""
    path = stage / RESULT
    if not path.exists():
        return None
    try:
        result = kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError):
        return None
    return result.model_copy(update={"model": result.model.model_copy(update={"path": str(stage / "model")})})


def number(path: Path) -> int:
    """N of ``attempt-N`` and ``checkpoint-N``."""
    return int(path.name.rpartition("-")[2])
