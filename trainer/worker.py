"""`python -m trainer.worker --spec FILE --directory DIR`: trains one stage and writes its result.

DIR is the attempt's directory; the model and ``result.json`` go to its parent, the stage, the result last. One worker
at a time holds the stage's lock, so two supervisors cannot train it twice. Of several processes the first alone writes,
but for the reason for which another one ends. On SIGTERM the step is ended, a checkpoint saved and training left, by
all processes at the same step. Exit codes: 0 done, 1 failed, 2 bad input, 3 another worker holds the stage, 5 out of
memory, 6 disk full, 75 ended by SIGTERM; where it can be written, DIR/outcome.json names the reason.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from trainer.attempts import LOCK, RESULT, attempts, read_result_of, record_worker
from trainer.files import lock, publish, remove_stale, write_atomic
from trainer.imports import prepare
from trainer.launch.leash import follow_parent
from trainer.metrics import beat
from trainer.outcomes import (
    EXIT_CODES,
    AttemptRecord,
    Outcome,
    machine_fault,
    read_end,
    read_record,
    versions,
    write_end,
    write_record,
)
from trainer.reckoning import result_of
from trainer.results import JobResult, SftResult, StageResult
from trainer.resume import COMPLETE
from trainer.spec import AnySpec, SftSpec, StageSpec, read_spec
from trainer.spec_faults import explain_spec

if TYPE_CHECKING:
    from trainer.trained import Trained

EXIT_BAD_INPUT = 2
EXIT_HELD = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    started = time.time()
    parser = argparse.ArgumentParser(prog="python -m trainer.worker", description=__doc__.partition("\n")[0])
    parser.add_argument("--spec", type=Path, required=True, help="JSON file of a stage's spec")
    parser.add_argument(
        "--directory", type=_absolute, required=True, help="the attempt's directory, inside the stage's"
    )
    parser.add_argument("--resume", type=Path, help="a complete checkpoint to go on from")
    parser.add_argument("--server", metavar="URL", help="the attempt's vLLM server, for rollouts vllm_server")
    options = parser.parse_args(arguments)
    attempt: Path = options.directory
    attempt.mkdir(parents=True, exist_ok=True)
    try:
        spec = read_spec(options.spec.read_bytes())
    except ValidationError as error:
        return _end(attempt, "wrong_spec", f"--spec {options.spec} is no stage spec: {explain_spec(error)}")
    except OSError as error:
        return _end(attempt, "wrong_spec", f"--spec {options.spec} cannot be read: {error.strerror}")
    found = os.environ.get("WORLD_SIZE", "1")
    if spec.processes > 1 and found != str(spec.processes):
        return _end(
            attempt,
            "bad_input",
            f"the spec asks for {spec.processes} processes, got {found}; start the stage by python -m trainer stage",
        )
    rank = _rank(spec)
    record = read_record(attempt)
    if record is not None and record.spec_hash != spec.identity():
        return _end(
            attempt,
            "wrong_spec",
            f"{options.spec} has identity {spec.identity()[:12]}, expected {record.spec_hash[:12]} by the attempt's "
            "record: it changed after the attempt began; run the stage again",
            rank,
        )
    with _hold(attempt.parent) if rank == 0 else nullcontext():
        try:
            return _work(spec, record, options, started, rank)
        except (OSError, RuntimeError, MemoryError, ValueError, _safetensors_error()) as error:
            outcome = machine_fault(error)
            if outcome is None:
                raise
            return _end(attempt, outcome, " ".join(f"{type(error).__name__}: {error}".split()), rank)


def _absolute(text: str) -> Path:
    return Path(text).resolve()


def _rank(spec: AnySpec) -> int:
    """Which of the stage's processes this is; the first one alone writes. Another ends with whoever started it."""
    if spec.processes == 1:
        return 0
    follow_parent()
    return int(os.environ["RANK"])


def _work(spec: AnySpec, record: AttemptRecord | None, options: argparse.Namespace, started: float, rank: int) -> int:
    attempt: Path = options.directory
    stage = attempt.parent
    if rank == 0 and _is_done(stage, spec):
        # A worker whose supervisor died finished between this one's start and its getting the lock. Peers would wait
        # for this one for ever, and a success does not end them.
        return 0 if spec.processes == 1 else EXIT_HELD
    begins = record or _record(spec, stage, options.resume)
    if rank == 0:
        # Of several processes the one that started them is the worker: it lives as long as any, and ends them all.
        record_worker(attempt, os.getpid() if spec.processes == 1 else os.getppid())
        beat(attempt, "start")
        if record is None:
            write_record(attempt, begins)
        _clear(stage, attempt)
    prepare(_wanted(spec))
    # Here and not above: these take seconds to import, and read the environment; the lock must be held before.
    from trainer.checkpoint import CheckpointError  # noqa: PLC0415
    from trainer.dataset import DatasetError  # noqa: PLC0415
    from trainer.trained import TrainingInputError  # noqa: PLC0415

    staged = stage / f".model.{attempt.name}"
    try:
        trained = _train(spec.with_micro_batch(begins.micro_batch), attempt, staged, options, started)
    except TrainingInputError as error:
        if machine_fault(error) is not None:
            raise
        wrong: dict[type, Outcome] = {DatasetError: "wrong_dataset", CheckpointError: "wrong_model"}
        return _end(attempt, wrong.get(type(error.__cause__), "bad_input"), str(error), rank)
    if not trained.finished(spec.steps):
        detail = f"SIGTERM after step {trained.steps} of {spec.steps}; saved there"
        # The others end well: a failure of theirs would have the first one killed before it has said why.
        return _end(attempt, "terminated", detail) if rank == 0 else 0
    if rank == 0:
        _publish(spec, begins, trained, staged, attempt=attempt, started=started)
    return 0


def _train(spec: AnySpec, attempt: Path, staged: Path, options: argparse.Namespace, started: float) -> Trained:
    # Each kind has its own libraries, and TRL takes seconds to import.
    if isinstance(spec, SftSpec):
        from trainer.sft import train_sft  # noqa: PLC0415

        return train_sft(spec, attempt, staged, resume=options.resume, started=started)
    from trainer.grpo import train  # noqa: PLC0415

    return train(spec, attempt, staged, resume=options.resume, started=started, server=options.server)


def _is_done(stage: Path, spec: AnySpec) -> bool:
    kind: type[JobResult] = SftResult if isinstance(spec, SftSpec) else StageResult
    done = read_result_of(stage, kind)
    return done is not None and done.spec_hash == spec.identity() and done.finished(spec.steps)


def _record(spec: AnySpec, stage: Path, resume: Path | None) -> AttemptRecord:
    """What an attempt starts from that no supervisor wrote down."""
    return AttemptRecord(
        spec_hash=spec.identity(),
        resumed_from=None if resume is None else os.path.relpath(resume.resolve(), stage),
        micro_batch=spec.micro_batch,
        exact=resume is None,
        versions=versions(),
    )


def _publish(
    spec: AnySpec, record: AttemptRecord, trained: Trained, staged: Path, *, attempt: Path, started: float
) -> None:
    from trainer.checkpoint import reference  # noqa: PLC0415 - imports torch

    stage = attempt.parent
    model = stage / "model"
    # A result speaks of the model beside it: an older one goes before its model does.
    (stage / RESULT).unlink(missing_ok=True)
    publish(staged, model)
    result = result_of(spec, record, trained, model=reference(model), attempt=attempt, started=started)
    write_atomic(stage / RESULT, result.model_dump_json(indent=1))
    beat(attempt, "done", result.steps)
    write_end(attempt, "done")


def _wanted(spec: AnySpec) -> set[str]:
    wanted = {"peft"} if spec.lora is not None else set[str]()
    return wanted | {"vllm"} if isinstance(spec, StageSpec) and spec.rollouts.kind != "transformers" else wanted


def _clear(stage: Path, attempt: Path) -> None:
    """Remove what dead attempts left half written; the lock is held, so nobody writes there now."""
    remove_stale(stage)
    for staged in stage.glob(".model.*"):
        shutil.rmtree(staged)
    for other in attempts(stage):
        for checkpoint in other.glob("checkpoint-*"):
            if other != attempt and not (checkpoint / COMPLETE).exists():
                shutil.rmtree(checkpoint)


@contextmanager
def _hold(stage: Path) -> Iterator[None]:
    try:
        held = lock(stage / LOCK)
    except BlockingIOError:
        print(f"another worker holds {stage / LOCK}; attach to it or end it first", file=sys.stderr)
        raise SystemExit(EXIT_HELD) from None
    with held:
        yield


def _end(attempt: Path, outcome: Outcome, detail: str, rank: int = 0) -> int:
    """Say why the attempt ends without a result; returns the exit code.

    Any process may be the one to which it happened, and the others are killed before they could say anything: the first
    word stands.
    """
    detail = detail if rank == 0 else f"process {rank}: {detail}"
    # Where the disk is full neither the log nor the outcome can be written, and the exit code alone tells.
    with suppress(OSError):
        print(detail, file=sys.stderr, flush=True)
    if rank == 0 or read_end(attempt) is None:
        with suppress(OSError):
            write_end(attempt, outcome, detail)
    code = next((code for code, name in EXIT_CODES.items() if name == outcome), EXIT_BAD_INPUT)
    if outcome == "disk_full":
        # At its own exit Python would flush what was printed, fail, and change the exit code.
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    return code


def _safetensors_error() -> type[Exception]:
    """What safetensors raises where it cannot write; the import takes long, and nothing raises it before it is done."""
    module = sys.modules.get("safetensors")
    found: type[Exception] = OSError if module is None else module.SafetensorError
    return found


if __name__ == "__main__":
    raise SystemExit(main())
