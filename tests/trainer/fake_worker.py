"""Stands in for trainer.worker where only the supervision is under test; what it does is in the stage's script.txt.

One word an attempt: done, die, kill, hang, slow, refuse, memory, disk, terminate.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from trainer.attempts import RESULT, record_worker, spec_path
from trainer.files import write_atomic
from trainer.metrics import StepMetrics, append, beat
from trainer.resume import mark_complete
from trainer.spec import ModelRef, StageResult, StageSpec

MODEL_FILES = ("config.json", "model.safetensors")
MODEL_SHA256 = "69678e9850094300a0b40b32e1e98da9fb20582f3b0b01aee08491e3f7daf757"
"""trainer.checkpoint.hash_model of these files; written down, because that module takes seconds to import."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spec", type=Path)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--resume", type=Path)
    options = parser.parse_args()
    attempt: Path = options.directory
    spec = StageSpec.model_validate_json(spec_path(attempt).read_text())
    words = (attempt.parent / "script.txt").read_text().split()
    word = words[int(attempt.name.rpartition("-")[2]) - 1]
    record_worker(attempt, os.getpid())
    beat(attempt, "train")
    first = int(options.resume.name.rpartition("-")[2]) if options.resume else 0
    print(f"fake worker: {word} from step {first}", flush=True)
    if word == "refuse":
        raise SystemExit(2)
    for step in range(first + 1, spec.grpo.steps + 1):
        append(attempt, metrics(step, spec.grpo.steps))
        if step == 2:
            checkpoint = attempt / "checkpoint-2"
            checkpoint.mkdir()
            mark_complete(checkpoint)
        if step == 3 and word == "die":
            raise SystemExit("out of luck")
        if step == 3 and word in {"memory", "disk", "terminate"}:
            raise SystemExit({"memory": 5, "disk": 6, "terminate": 75}[word])
        if step == 3 and word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 3 and word == "hang":
            time.sleep(600)
        if word == "slow":
            time.sleep(0.3)
    model = attempt.parent / "model"
    model.mkdir(exist_ok=True)
    for name in MODEL_FILES:
        (model / name).write_text(name)
    result = StageResult(
        spec_hash=spec.identity(),
        stage=spec.stage,
        steps=spec.grpo.steps,
        model=ModelRef(path=str(model), sha256=MODEL_SHA256),
        weight_change=1.0,
        generated_tokens=1,
        reward_first=0.0,
        reward_last=1.0,
        zero_variance_share=0.0,
        seconds={},
        attempt=int(attempt.name.rpartition("-")[2]),
        resumed_from_step=first or None,
    )
    write_atomic(attempt.parent / RESULT, result.model_dump_json())


def metrics(step: int, steps: int) -> StepMetrics:
    return StepMetrics(
        step=step,
        steps=steps,
        reward=0.5,
        valid=0.5,
        optimal=0.0,
        zero_variance=0.0,
        entropy=1.0,
        length=4.0,
        clipped=0.0,
        tokens=10,
        gradient_norm=1.0,
        seconds=0.0,
        generation_seconds=0.0,
    )


if __name__ == "__main__":
    main()
