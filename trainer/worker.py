"""`python -m trainer.worker --spec FILE --directory DIR`: trains one stage and writes its result.

DIR is the attempt's directory; the model and ``result.json`` go to its parent, the stage, the result last. One worker
at a time holds the stage's lock, so two supervisors cannot train it twice. Exit codes: 0 done, 1 failed, 2 bad input,
3 another worker holds the stage.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import ValidationError

from trainer.attempts import LOCK, RESULT, attempts, record_worker
from trainer.files import publish, write_atomic
from trainer.metrics import SftMetrics, beat, mean_known, read_stage, stage_rows
from trainer.spec import AnyResult, AnySpec, ModelRef, SftResult, SftSpec, StageResult, StageSpec, read_spec

if TYPE_CHECKING:
    from trainer.trained import Trained

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
    parser.add_argument("--spec", type=Path, required=True, help="JSON file of a stage's spec")
    parser.add_argument("--directory", type=Path, required=True, help="the attempt's directory, inside the stage's")
    parser.add_argument("--resume", type=Path, help="a complete checkpoint to go on from")
    options = parser.parse_args(arguments)
    try:
        spec = read_spec(options.spec.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        _refuse(f"--spec {options.spec} is no stage spec: {error}")
    attempt: Path = options.directory.resolve()
    attempt.mkdir(parents=True, exist_ok=True)
    with _hold(attempt.parent):
        record_worker(attempt, os.getpid())
        beat(attempt, "start")
        _work(spec, attempt, options.resume, started)
    return 0


def _work(spec: AnySpec, attempt: Path, resume: Path | None, started: float) -> None:
    os.environ.update(_ENVIRONMENT)
    for package, wanted in (("vllm", _generates_with_vllm(spec)), ("peft", spec.lora is not None)):
        if not wanted and find_spec(package) is not None:
            # TRL imports them whenever they are there, which costs seconds; vLLM touches the random state as well.
            sys.modules[package] = None  # type: ignore[assignment]
    # Here and not above: these take seconds to import, and read the environment; the lock must be held before.
    from trainer.checkpoint import reference  # noqa: PLC0415
    from trainer.trained import TrainingInputError  # noqa: PLC0415

    stage = attempt.parent
    staged = stage / f".model.{attempt.name}"
    try:
        trained = _train(spec, attempt, staged, resume, started)
    except TrainingInputError as error:
        _refuse(str(error))
    model = stage / "model"
    # A result speaks of the model beside it: an older one goes before its model does.
    (stage / RESULT).unlink(missing_ok=True)
    publish(staged, model)
    result = _result(spec, trained, reference(model), attempt, started)
    write_atomic(stage / RESULT, result.model_dump_json(indent=1))
    beat(attempt, "done", result.steps)


def _generates_with_vllm(spec: AnySpec) -> bool:
    return isinstance(spec, StageSpec) and spec.rollouts.kind == "vllm_colocate"


def _train(spec: AnySpec, attempt: Path, staged: Path, resume: Path | None, started: float) -> Trained:
    # Each kind has its own libraries, and TRL takes seconds to import.
    if isinstance(spec, SftSpec):
        from trainer.sft import train_sft  # noqa: PLC0415

        return train_sft(spec, attempt, staged, resume=resume, started=started)
    from trainer.grpo import train  # noqa: PLC0415

    return train(spec, attempt, staged, resume=resume, started=started)


def _result(spec: AnySpec, trained: Trained, model: ModelRef, attempt: Path, started: float) -> AnyResult:
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
        "attempt": int(attempt.name.rpartition("-")[2]),
        "resumed_from_step": trained.resumed_from_step,
        "tripped": trained.tripped,
        "warnings": trained.warnings,
    }
    tried = attempts(attempt.parent)
    if isinstance(spec, SftSpec):
        shown = [row for row in stage_rows(tried, SftMetrics) if row.step <= trained.steps]
        first, last = _ends([row.loss for row in shown])
        tokens = sum(row.tokens for row in shown)
        return SftResult(**common, loss_first=first, loss_last=last, answer_tokens=tokens)
    steps = [row for row in read_stage(tried) if row.step <= trained.steps]
    first, last = _ends([row.reward for row in steps])
    return StageResult(
        **common,
        generated_tokens=sum(row.tokens for row in steps),
        reward_first=first,
        reward_last=last,
        zero_variance_share=sum(row.zero_variance for row in steps) / len(steps),
        success=mean_known(row.success for row in steps),
        progress=mean_known(row.progress for row in steps),
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Means over the first and over the last fifth."""
    window = max(1, len(values) // 5)
    return sum(values[:window]) / window, sum(values[-window:]) / window


@contextmanager
def _hold(stage: Path) -> Iterator[None]:
    with (stage / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another worker holds {stage / LOCK}; attach to it or end it first", file=sys.stderr)
            raise SystemExit(EXIT_HELD) from None
        yield


def _refuse(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    raise SystemExit(main())
