"""What a stage of any kind does before its trainer is there and once it is: read, load, train, and save the model."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from envsim.api import Environment, EnvsimError, Instance
from envsim.registry import get
from trainer import checkpoint
from trainer.attempts import number
from trainer.checkpoint import CheckpointError
from trainer.dataset import DatasetError, read_dataset
from trainer.draining import Drain
from trainer.lengths import check_room
from trainer.rollouts import Clock
from trainer.spec import AnySpec
from trainer.trained import Trained, TrainingError, TrainingInputError, save_moved
from trainer.tripwires import Watch


def opened(spec: AnySpec) -> tuple[Environment, list[Instance]]:
    """The stage's environment and tasks, in a process that is set to the spec's threads and seed.

    Raises:
        TrainingInputError: the environment or the dataset is not as the spec says.
    """
    torch.set_num_threads(spec.threads)
    set_seed(spec.seed)
    try:
        environment = get(spec.environment)
        return environment, read_dataset(environment, spec.dataset)
    except (EnvsimError, DatasetError) as error:
        raise TrainingInputError(str(error)) from error


def loaded(
    spec: AnySpec, environment: Environment, instances: list[Instance]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, tuple[str, ...]]:
    """The model that the stage begins with, its tokenizer, and warnings, which are told here as well.

    Raises:
        TrainingInputError: the model is not as the spec says, or none of the tasks can be answered within its limit.
    """
    try:
        checkpoint.verify(spec.init_model)
        model, tokenizer = checkpoint.load(spec.init_model, device=spec.device)
        warnings = check_room(environment, instances, spec.style, tokenizer, spec.generation.max_new_tokens)
    except (EnvsimError, CheckpointError) as error:
        raise TrainingInputError(str(error)) from error
    for warning in warnings:
        print(f"warning: {warning}", flush=True)
    return model, tokenizer, tuple(warnings)


def run(
    trainer: Any,
    spec: AnySpec,
    output: Path,
    *,
    resume: Path | None,
    watch: Watch | None,
    drain: Drain,
    clock: Clock,
    warnings: tuple[str, ...],
) -> Trained:
    """Train to the last step, to a tripwire or to SIGTERM; in the first two cases save the model to ``output``.

    ``trainer`` is transformers' Trainer or one derived from it, with ``watch`` and ``drain`` among its callbacks.

    Raises:
        TrainingError: fewer steps than asked for, or weights that did not move.
    """
    trip = None if watch is None else watch.trip
    if trip is None:
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        trip, reached = None if watch is None else watch.trip, trainer.state.global_step
    else:
        # The last attempt was stopped at this checkpoint and died before it could say so.
        trainer._load_from_checkpoint(str(resume))
        reached = trip.step
    ended = Trained(
        steps=reached,
        weight_change=None,
        resumed_from_step=None if resume is None else number(resume),
        tripped=trip,
        warnings=warnings,
        clock=clock,
    )
    if not ended.finished(spec.steps):
        if drain.asked:
            return ended
        raise TrainingError(
            f"training ended after {reached} steps, expected {spec.steps}; the trainer was given "
            f"{len(trainer.train_dataset)} rows"
        )
    if not trainer.is_world_process_zero():
        return ended
    saving = time.monotonic()
    model = trainer.accelerator.unwrap_model(trainer.model)
    change = save_moved(model, Path(spec.init_model.path), output, steps=reached, tripped=trip)
    clock.saving += time.monotonic() - saving
    return replace(ended, weight_change=change)
