"""`python -m trainer.bench.bare SPEC OUTPUT`: the same stage as a script that calls TRL and nothing of the trainer.

Same model, tasks, arguments and rewards. No supervision, heartbeat, metrics file, whole checkpoints or result; answers
come from TRL's own generation. Prints one JSON object: seconds after start-up, and tokens generated.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from trainer.imports import prepare

prepare()

import torch  # noqa: E402 - TRL reads what was prepared
from datasets import Dataset  # type: ignore[attr-defined]  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402
from trl import GRPOTrainer  # type: ignore[attr-defined]  # noqa: E402

from envsim.registry import get  # noqa: E402
from trainer.dataset import read_dataset  # noqa: E402
from trainer.grpo import grpo_config, training_rows  # noqa: E402
from trainer.reward import reward_functions  # noqa: E402
from trainer.spec import StageSpec  # noqa: E402


def main(spec_file: str, output: str) -> None:
    """Command line."""
    spec = StageSpec.model_validate_json(Path(spec_file).read_text(encoding="utf-8"))
    torch.set_num_threads(spec.threads)
    environment = get(spec.environment)
    rows = training_rows(spec, environment, read_dataset(environment, spec.dataset))
    rewards: list[Any] = [*reward_functions(environment)]
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(spec.init_model.path, dtype=torch.float32),
        args=grpo_config(spec, Path(output)),
        processing_class=AutoTokenizer.from_pretrained(spec.init_model.path, padding_side="left"),
        train_dataset=Dataset.from_list(rows),
        reward_funcs=rewards,
    )
    began = time.monotonic()
    trainer.train()
    trainer.save_model(str(Path(output) / "model"))
    seconds = time.monotonic() - began
    lengths = [entry["completions/mean_length"] for entry in trainer.state.log_history if "reward" in entry]
    print(json.dumps({"seconds": seconds, "tokens": round(sum(lengths) * spec.grpo.batch), "steps": len(lengths)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
