"""`python -m trainer.worker --spec FILE --directory DIR`: trains one stage and writes its result.

DIR is the attempt's directory; the model and ``result.json`` go to its parent, the stage, the result last. One worker
at a time holds the stage's lock, so two supervisors cannot train it twice. Of several processes the first alone writes.
On SIGTERM a worker of one process ends the step, saves a checkpoint and leaves; several leave at once. Exit codes:
0 done, 1 failed, 2 bad input, 3 another worker holds the stage, 5 out of memory, 6 disk full, 75 ended by SIGTERM;
where it can be written, DIR/outcome.json names the reason.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from trainer.attempts import LOCK, RESULT, attempts, number, read_result, record_worker
from trainer.files import publish, remove_stale, write_atomic
from trainer.launch.leash import follow_parent
from trainer.metrics import beat, mean_known
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
from trainer.resume import COMPLETE, history
from trainer.spec import EarlierAttempt, ModelRef, StageResult, StageSpec

if TYPE_CHECKING:
    from trainer.grpo import Trained

EXIT_BAD_INPUT = 2
EXIT_HELD = 3
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    started = time.time()
    parser = argparse.ArgumentParser(prog="python -m trainer.worker", description=__doc__.partition("\n")[0])
    parser.add_argument("--spec", type=Path, required=True, help="JSON file of a StageSpec")
    parser.add_argument(
        "--directory", type=_absolute, required=True, help="the attempt's directory, inside the stage's"
    )
    parser.add_argument("--resume", type=Path, help="a complete checkpoint to go on from")
    parser.add_argument("--server", metavar="URL", help="the attempt's vLLM server, for rollouts vllm_server")
    options = parser.parse_args(arguments)
    attempt: Path = options.directory
    attempt.mkdir(parents=True, exist_ok=True)
    try:
        spec = StageSpec.model_validate_json(options.spec.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        return _end(attempt, "wrong_spec", f"--spec {options.spec} is no stage spec: {error}")
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


def _rank(spec: StageSpec) -> int:
    """Which of the stage's processes this is; the first one alone writes. Another ends with whoever started it."""
    if spec.processes == 1:
        return 0
    follow_parent()
    return int(os.environ["RANK"])


def _work(spec: StageSpec, record: AttemptRecord | None, options: argparse.Namespace, started: float, rank: int) -> int:
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
    prepare(uses_vllm=spec.rollouts.kind != "transformers")
    # Here and not above: these take seconds to import, and read the environment; the lock must be held before.
    from trainer.checkpoint import CheckpointError  # noqa: PLC0415
    from trainer.dataset import DatasetError  # noqa: PLC0415
    from trainer.grpo import TrainingInputError, train  # noqa: PLC0415

    staged = stage / f".model.{attempt.name}"
    at_once = spec.model_copy(update={"grpo": spec.grpo.model_copy(update={"micro_batch": begins.micro_batch})})
    try:
        trained = train(at_once, attempt, staged, resume=options.resume, started=started, server=options.server)
    except TrainingInputError as error:
        if machine_fault(error) is not None:
            raise
        wrong: dict[type, Outcome] = {DatasetError: "wrong_dataset", CheckpointError: "wrong_model"}
        return _end(attempt, wrong.get(type(error.__cause__), "bad_input"), str(error), rank)
    if trained.steps < spec.grpo.steps:
        detail = f"SIGTERM after step {trained.steps} of {spec.grpo.steps}; saved there"
        return _end(attempt, "terminated", detail, rank)
    if rank == 0:
        _publish(spec, begins, trained, staged, attempt=attempt, started=started)
    return 0


def _is_done(stage: Path, spec: StageSpec) -> bool:
    done = read_result(stage)
    return done is not None and done.spec_hash == spec.identity() and done.steps == spec.grpo.steps


def _record(spec: StageSpec, stage: Path, resume: Path | None) -> AttemptRecord:
    """What an attempt starts from that no supervisor wrote down."""
    return AttemptRecord(
        spec_hash=spec.identity(),
        resumed_from=None if resume is None else os.path.relpath(resume.resolve(), stage),
        micro_batch=spec.micro_batch,
        exact=resume is None,
        versions=versions(),
    )


def _publish(
    spec: StageSpec, record: AttemptRecord, trained: Trained, staged: Path, *, attempt: Path, started: float
) -> None:
    from trainer.checkpoint import reference  # noqa: PLC0415 - imports torch

    stage = attempt.parent
    model = stage / "model"
    # A result speaks of the model beside it: an older one goes before its model does.
    (stage / RESULT).unlink(missing_ok=True)
    publish(staged, model)
    result = _result(spec, record, trained, model=reference(model), attempt=attempt, started=started)
    write_atomic(stage / RESULT, result.model_dump_json(indent=1))
    beat(attempt, "done", result.steps)
    write_end(attempt, "done")


def prepare(*, uses_vllm: bool) -> None:
    """What must be set before TRL is imported."""
    os.environ.update(_ENVIRONMENT)
    if not uses_vllm and find_spec("vllm") is not None:
        # TRL imports vLLM whenever it is there, which costs seconds and touches the process's random state.
        sys.modules["vllm"] = None  # type: ignore[assignment]
    for tracker in ("wandb", "trackio"):
        # TRL imports these too, for seconds in all; curves are drawn by the process that supervises this one.
        sys.modules[tracker] = None  # type: ignore[assignment]


def _clear(stage: Path, attempt: Path) -> None:
    """Remove what dead attempts left half written; the lock is held, so nobody writes there now."""
    remove_stale(stage)
    for staged in stage.glob(".model.*"):
        shutil.rmtree(staged)
    for other in attempts(stage):
        for checkpoint in other.glob("checkpoint-*"):
            if other != attempt and not (checkpoint / COMPLETE).exists():
                shutil.rmtree(checkpoint)


def _result(
    spec: StageSpec, record: AttemptRecord, trained: Trained, *, model: ModelRef, attempt: Path, started: float
) -> StageResult:
    """First and last reward are means over a fifth of the steps; seconds are this attempt's."""
    steps = history(attempt)
    window = max(1, len(steps) // 5)
    total = time.time() - started
    clock = trained.clock
    return StageResult(
        spec_hash=spec.identity(),
        stage=spec.stage,
        steps=trained.steps,
        model=model,
        weight_change=trained.weight_change,
        generated_tokens=sum(row.tokens for row in steps),
        reward_first=sum(row.reward for row in steps[:window]) / window,
        reward_last=sum(row.reward for row in steps[-window:]) / window,
        zero_variance_share=sum(row.zero_variance for row in steps) / len(steps),
        success=mean_known(row.success for row in steps),
        progress=mean_known(row.progress for row in steps),
        seconds={
            "start_up": clock.start_up,
            "generation": clock.generation,
            "training": total - clock.start_up - clock.generation - clock.saving,
            "saving": clock.saving,
            "total": total,
        },
        attempt=number(attempt),
        resumed_from_step=trained.resumed_from_step,
        exact=record.exact,
        micro_batch=None if record.micro_batch == spec.micro_batch else record.micro_batch,
        earlier=tuple(
            EarlierAttempt(attempt=number(other), outcome="lost" if (end := read_end(other)) is None else end.outcome)
            for other in attempts(attempt.parent)
            if other != attempt
        ),
        passed_over=record.passed_over,
    )


@contextmanager
def _hold(stage: Path) -> Iterator[None]:
    with (stage / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another worker holds {stage / LOCK}; attach to it or end it first", file=sys.stderr)
            raise SystemExit(EXIT_HELD) from None
        yield


def _end(attempt: Path, outcome: Outcome, detail: str, rank: int = 0) -> int:
    """Say why the attempt ends without a result, in the first process in writing; returns the exit code."""
    # Where the disk is full neither the log nor the outcome can be written, and the exit code alone tells.
    with suppress(OSError):
        print(detail, file=sys.stderr, flush=True)
    if rank == 0:
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
