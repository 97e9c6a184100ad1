"""How training ends: with a model and figures, with bad input, or in failure. What all kinds of stages share."""

from __future__ import annotations

import importlib
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import weight_distance
from trainer.rollouts import Clock
from trainer.spec import AnySpec, LoraSettings, Trip
from trainer.training_settings import OptimizerSettings

_TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab*",
    "merges.txt",
    "generation_config.json",
)


class TrainingInputError(ValueError):
    """A spec that cannot be trained, found before the first step."""


class TrainingError(RuntimeError):
    """Training ended without having trained."""


def shared_arguments(spec: AnySpec, settings: OptimizerSettings, output: Path) -> dict[str, Any]:
    """What transformers' Trainer is told for a stage of any kind; the batch is the kind's own affair."""
    return {
        "output_dir": str(output),
        "max_steps": settings.steps,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.schedule,
        "warmup_steps": settings.warmup_steps,
        "weight_decay": 0.0,
        "optim": "adamw_torch_fused",
        "max_grad_norm": settings.max_grad_norm,
        "seed": spec.seed,
        "bf16": settings.bf16,
        "gradient_checkpointing": settings.gradient_checkpointing,
        "use_cpu": spec.device == "cpu",
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": spec.device == "cuda",
        "save_strategy": "steps",
        "save_steps": settings.save_every,
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": "none",
        "disable_tqdm": True,
    }


@dataclass(frozen=True)
class Trained:
    """What training left behind; fewer steps than asked for after a tripwire or SIGTERM."""

    steps: int
    weight_change: float | None
    """None where no model was saved: after SIGTERM, and in all processes but the first."""
    resumed_from_step: int | None
    tripped: Trip | None = None
    warnings: tuple[str, ...] = ()
    clock: Clock = field(repr=False, default_factory=Clock)

    def finished(self, steps: int) -> bool:
        """Whether nothing is left to do of a stage of so many steps."""
        return self.tripped is not None or self.steps == steps


def lora_config(lora: LoraSettings | None) -> Any:
    """peft's configuration of an adapter on all linear layers; None without one."""
    if lora is None:
        return None
    peft = optional("peft", "lora")
    return peft.LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM")


def optional(package: str, setting: str) -> Any:
    """A package that only some settings need. Raises TrainingInputError."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TrainingInputError(
            f"the spec's {setting} needs {package}: {error}; pip install 'envwright[gpu]'"
        ) from error


def save_model(model: Any, source: Path, output: Path) -> None:
    """Weights from training, adapters merged; everything else as the initial checkpoint has it."""
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    shutil.rmtree(output, ignore_errors=True)
    model.to(torch.float32).save_pretrained(output)
    for pattern in _TOKENIZER_FILES:
        for path in source.glob(pattern):
            shutil.copy2(path, output / path.name)


def save_moved(model: Any, source: Path, output: Path, *, steps: int, tripped: Trip | None) -> float:
    """Save what training made of ``source`` and return how far the weights moved.

    A stage that a tripwire stopped may have lost its weights to numbers that are not finite; its model is then the one
    that it began with. Raises TrainingError for weights that did not move, or not to finite numbers, in any other.
    """
    save_model(model, source, output)
    change = weight_distance(source, output)
    if math.isfinite(change) and (change > 0 or tripped is not None):
        return change
    if tripped is not None:
        shutil.rmtree(output)
        shutil.copytree(source, output)
        return 0.0
    raise TrainingError(
        f"the weights moved by {change} after {steps} steps, expected a positive finite distance; if "
        "every group's answers earned the same there was nothing to learn: train on tasks that are sometimes solved"
    )
