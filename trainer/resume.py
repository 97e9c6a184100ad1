"""Checkpoints that a stage may go on from: whole, its own, and on the border of a sampler's window.

transformers writes a checkpoint's files one by one. Ours ends with a marker that names every file with its sha256, the
stage it belongs to, and whether the way to it was exact. A checkpoint that is not as its marker says is passed over for
the one before, and the attempt's record says why.
"""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from trainer.attempts import attempt_identity, attempts, number
from trainer.files import hash_file, sync, sync_files, write_atomic
from trainer.metrics import METRICS, Row, Step, StepMetrics, read_rows
from trainer.outcomes import read_record, versions
from trainer.spec import Fault, Frozen, PassedOver

COMPLETE = "COMPLETE"
_HASHERS = 8
"""Threads; sha256 leaves the interpreter's lock, and a large optimizer lies in several files."""


class Marker(Frozen):
    """What a whole checkpoint holds."""

    schema_version: Literal[1] = 1
    spec_hash: str
    step: int = Field(ge=0)
    exact: bool
    versions: dict[str, str]
    files: dict[str, str]


class ResumePoint(Frozen):
    """Where a new attempt begins: a checkpoint or, with None, the spec's own model; and what was passed over."""

    step: int | None = None
    checkpoint: Path | None = None
    exact: bool = True
    passed_over: tuple[PassedOver, ...] = ()


def mark_complete(checkpoint: Path, kind: type[Step] = StepMetrics) -> None:
    """Put the stage's metrics so far beside a checkpoint's files, flush all to disk, and mark the checkpoint whole."""
    attempt, step = checkpoint.parent, number(checkpoint)
    record = read_record(attempt)
    identity = attempt_identity(attempt) if record is None else record.spec_hash
    if identity is None:
        raise FileNotFoundError(errno.ENOENT, "neither attempt.json nor spec.json says whose checkpoint", str(attempt))
    rows = [row.model_dump_json() + "\n" for row in history_rows(attempt, kind) if row.step <= step]
    write_atomic(checkpoint / METRICS, "".join(rows))
    sync_files(checkpoint)
    names = sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())
    with ThreadPoolExecutor(_HASHERS) as pool:
        hashes = pool.map(hash_file, (checkpoint / name for name in names))
    marker = Marker(
        spec_hash=identity,
        step=step,
        exact=record is not None and record.exact,
        versions=versions(),
        files=dict(zip(names, hashes, strict=True)),
    )
    write_atomic(checkpoint / COMPLETE, marker.model_dump_json(indent=1))
    sync(attempt)


def history(attempt: Path) -> list[StepMetrics]:
    """The steps that led to where an attempt is: those of the checkpoint it went on from, then its own."""
    return history_rows(attempt, StepMetrics)


def history_rows(attempt: Path, kind: type[Row]) -> list[Row]:
    """As `history`, of any kind of stage."""
    record = read_record(attempt)
    resumed = None if record is None else record.resumed_from
    before = [] if resumed is None else read_rows(attempt.parent / resumed, kind)
    rows = {row.step: row for row in (*before, *read_rows(attempt, kind))}
    return [rows[step] for step in sorted(rows)]


def resume_point(stage: Path, spec_hash: str, *, window: int = 1) -> ResumePoint:
    """The furthest checkpoint of all attempts that is whole and this stage's; of equals the latest attempt's.

    Args:
        stage: its directory.
        spec_hash: the identity of its spec.
        window: steps between two fresh samplings. A checkpoint inside a window would sample early and diverge.
    """
    found = [
        (number(checkpoint), position, checkpoint)
        for position, attempt in enumerate(attempts(stage))
        for checkpoint in attempt.glob("checkpoint-*")
    ]
    passed: list[PassedOver] = []
    for step, _, checkpoint in sorted(found, reverse=True):
        read = _read_marker(checkpoint, spec_hash, window)
        if isinstance(read, Marker):
            exact = read.exact and read.versions == versions()
            return ResumePoint(step=step, checkpoint=checkpoint, exact=exact, passed_over=tuple(passed))
        fault, detail = read
        passed.append(PassedOver(path=str(checkpoint.relative_to(stage)), fault=fault, detail=detail))
    return ResumePoint(passed_over=tuple(passed))


def _read_marker(checkpoint: Path, spec_hash: str, window: int) -> Marker | tuple[Fault, str]:
    """The marker of a checkpoint that is as it says, or why there is none."""
    try:
        marker = Marker.model_validate_json((checkpoint / COMPLETE).read_bytes())
    except FileNotFoundError:
        return "torn_checkpoint", f"there is no {COMPLETE}: the process ended while the checkpoint was written"
    except ValidationError as error:
        return "torn_checkpoint", f"{COMPLETE} is no marker: {error.errors()[0]['msg']}"
    return _fault(marker, checkpoint, spec_hash, window) or marker


def _fault(marker: Marker, checkpoint: Path, spec_hash: str, window: int) -> tuple[Fault, str] | None:
    if (marker.spec_hash, marker.step) != (spec_hash, number(checkpoint)):
        found = f"step {marker.step} of spec {marker.spec_hash[:12]}"
        return "wrong_spec", f"it is of {found}, expected step {number(checkpoint)} of {spec_hash[:12]}"
    if marker.step % window:
        return "off_window", f"step {marker.step} is no multiple of the window of {window} steps"
    for name in marker.files:
        if not (checkpoint / name).is_file():
            return "missing_file", f"{name} is missing"
    with ThreadPoolExecutor(_HASHERS) as pool:
        hashes = list(pool.map(hash_file, (checkpoint / name for name in marker.files)))
    for (name, expected), actual in zip(marker.files.items(), hashes, strict=True):
        if actual != expected:
            return "wrong_hash", f"{name} has sha256 {actual[:12]}, expected {expected[:12]}"
    return None
