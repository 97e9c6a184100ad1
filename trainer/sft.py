"""One supervised stage: a policy is shown the environment's demonstrations of its tasks. Only the worker imports it.

The rows and their loss are those of `trainer.imitation`. For that a plain transformers Trainer is enough. TRL's
SFTTrainer would render prompt and answer through the chat template as one conversation, and there templates differ from
what they give as a prompt to be answered (Qwen3's empty thought is one case); and importing TRL takes seconds.

All steps are one pass over rows that are laid out beforehand: every task once, in an order of its own, with a
demonstration drawn anew, then every task again. So a stage that goes on from a checkpoint sees what it would have seen.
"""

# ruff: noqa: ARG002 - the signatures are those of TrainerCallback.

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    PreTrainedTokenizerBase,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from envsim.api import Environment, Instance
from trainer import course
from trainer.attempts import number
from trainer.draining import Drain
from trainer.imitation import Row, answer_end, collate, row_of, summed_loss
from trainer.metrics import SftMetrics
from trainer.reporter import StepReporter
from trainer.rollouts import Clock
from trainer.spec import SftSpec, canonical_hash
from trainer.trained import (
    Trained,
    lora_config,
    optional,
    shared_arguments,
)
from trainer.tripwires import Watch


def train_sft(spec: SftSpec, attempt: Path, output: Path, *, resume: Path | None, started: float) -> Trained:
    """Train the stage and save its model to ``output`` in float32; arguments as `trainer.grpo.train` has them.

    Raises:
        TrainingInputError: the spec names a model, dataset or environment that is not as it says.
        TrainingError: fewer steps than asked for, or weights that did not move.
    """
    environment, instances = course.opened(spec)
    model, tokenizer, warnings = course.loaded(spec, environment, instances)
    trained: Any = model
    if spec.lora is not None:
        trained = optional("peft", "lora").get_peft_model(model, lora_config(spec.lora))
    clock = Clock()
    trainer = DemonstrationTrainer(
        model=trained,
        args=arguments(spec, attempt),
        train_dataset=Demonstrations(spec, environment, instances, tokenizer, answer_end(model, tokenizer)),
        data_collator=partial(collate, pad_token=tokenizer.pad_token_id),
    )
    trainer.add_callback(SftReporter(attempt, clock, started, trainer))
    step = None if resume is None else number(resume)
    watch = None if spec.sft.tripwires is None else Watch(attempt, spec.sft.tripwires, step)
    if watch is not None:
        trainer.add_callback(watch)
    # Every step is laid out beforehand, so any may be the last before a checkpoint.
    drain = Drain(window=1)
    trainer.add_callback(drain)
    return course.run(trainer, spec, output, resume=resume, watch=watch, drain=drain, clock=clock, warnings=warnings)


def arguments(spec: SftSpec, output: Path) -> TrainingArguments:
    """transformers' configuration of the stage."""
    sft = spec.sft
    micro = sft.micro_batch or sft.batch
    return TrainingArguments(
        **shared_arguments(spec, sft, output),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=sft.batch // micro,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        # Else a loss that is no number is told of as the mean of those before it.
        logging_nan_inf_filter=False,
    )


class Demonstrations(Dataset[Row]):
    """The rows of all steps, made when they are asked for; a row depends on the spec and its place alone."""

    def __init__(
        self,
        spec: SftSpec,
        environment: Environment,
        instances: Sequence[Instance],
        tokenizer: PreTrainedTokenizerBase,
        end: int,
    ) -> None:
        self._spec = spec
        self._environment = environment
        self._instances = instances
        self._tokenizer = tokenizer
        self._end = end
        self._order = self._laid_out()

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int) -> Row:
        turn, index = self._order[place]
        instance, style = self._instances[index], self._spec.style
        seed = int(canonical_hash([self._spec.seed, turn, index])[:12], 16)
        answer = self._environment.demonstration(instance, style, seed, self._spec.sft.careless)
        prompt = self._environment.prompt(instance, style)
        arguments = self._spec.generation.chat_template_kwargs
        return row_of(self._tokenizer, prompt, answer, end=self._end, template_arguments=arguments)

    def _laid_out(self) -> list[tuple[int, int]]:
        """(turn, index of the task) by place; within a step short prompts come first, so that little is padded."""
        n, batch, steps = len(self._instances), self._spec.sft.batch, self._spec.sft.steps
        length = [
            sum(len(message["content"]) for message in self._environment.prompt(instance, self._spec.style))
            for instance in self._instances
        ]
        turns = -(-steps * batch // n)
        rng = np.random.default_rng(self._spec.seed)
        places = [(turn, int(index)) for turn in range(turns) for index in rng.permutation(n)]
        return [
            one
            for start in range(0, steps * batch, batch)
            for one in sorted(places[start : start + batch], key=lambda place: length[place[1]])
        ]


class DemonstrationTrainer(Trainer):
    """Mean cross entropy over the answer tokens of a whole step."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # The loss below divides by the tokens of all micro-batches; the trainer must not divide again.
        self.model_accepts_loss_kwargs = True
        self.answer_tokens = 0

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        loss, count, outputs = summed_loss(model, inputs)
        self.answer_tokens += count
        loss = loss / (count if num_items_in_batch is None else num_items_in_batch)
        return (loss, outputs) if return_outputs else loss


class SftReporter(StepReporter):
    """Writes a metrics line and a heartbeat a step, and marks checkpoints that are whole."""

    def __init__(self, attempt: Path, clock: Clock, started: float, trainer: DemonstrationTrainer) -> None:
        super().__init__(attempt, clock, started)
        self._trainer = trainer
        self._counted = 0

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        logs: dict[str, float] = kwargs["logs"]
        # The last log of a training run is its summary.
        if "loss" not in logs:
            return
        tokens, self._counted = self._trainer.answer_tokens - self._counted, self._trainer.answer_tokens
        self.told(
            SftMetrics(
                step=state.global_step,
                steps=state.max_steps,
                time=round(time.time(), 3),
                loss=logs["loss"],
                tokens=tokens,
                gradient_norm=logs.get("grad_norm", 0.0),
                learning_rate=logs["learning_rate"],
                seconds=time.monotonic() - self._step_began,
            )
        )

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.saved(state.global_step, SftMetrics)
