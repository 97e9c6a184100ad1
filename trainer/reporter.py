"""What transformers' Trainer tells of a stage while it trains: metrics, heartbeat, whole checkpoints."""

# ruff: noqa: ARG002 - the signatures are those of TrainerCallback.

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer.completions import Keeper
from trainer.metrics import SftMetrics, StepMetrics, append, beat
from trainer.resume import mark_complete
from trainer.reward import PROGRESS, SUCCESS, VALID
from trainer.role_rehearsal import ROLE_LOSS
from trainer.rollouts import Clock


class StepReporter(TrainerCallback):
    """Keeps the times of a stage of any kind and its heartbeat; who extends it writes the metrics line of a step."""

    def __init__(self, attempt: Path, clock: Clock, started: float) -> None:
        self._attempt = attempt
        self._clock = clock
        self._started = started
        self._step_began = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._clock.start_up = time.time() - self._started
        if state.is_world_process_zero:
            beat(self._attempt, "train", state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._step_began = time.monotonic()

    def told(self, row: StepMetrics | SftMetrics) -> None:
        """Write a step's line; what comes until ``saved`` is the time that saving takes."""
        append(self._attempt, row)
        beat(self._attempt, "train", row.step)
        self._clock.saving_since = time.monotonic()

    def saved(self, step: int, row: type[StepMetrics] | type[SftMetrics]) -> None:
        """Mark the step's checkpoint whole."""
        mark_complete(self._attempt / f"checkpoint-{step}", row)
        beat(self._attempt, "train", step)
        self._clock.saving += time.monotonic() - self._clock.saving_since


class Reporter(StepReporter):
    """Writes a metrics line and a heartbeat a step of GRPO, keeps completions, and marks checkpoints that are whole."""

    def __init__(self, attempt: Path, clock: Clock, started: float, keeper: Keeper) -> None:
        super().__init__(attempt, clock, started)
        self._keeper = keeper

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.is_world_process_zero:
            self._keeper.begin(state.global_step)
        super().on_train_begin(args, state, control, **kwargs)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        logs: dict[str, float] = kwargs["logs"]
        # The last log of a training run is its summary.
        if "reward" not in logs or not state.is_world_process_zero:
            return
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
        self.told(
            StepMetrics(
                step=state.global_step,
                steps=state.max_steps,
                time=round(time.time(), 3),
                reward=logs["reward"],
                valid=logs[VALID],
                optimal=logs["rewards/optimal/mean"],
                success=logs.get(SUCCESS),
                progress=logs.get(PROGRESS),
                zero_variance=logs["frac_reward_zero_std"],
                entropy=logs["entropy"],
                length=logs["completions/mean_length"],
                clipped=logs["completions/clipped_ratio"],
                tokens=round(logs["completions/mean_length"] * rows),
                gradient_norm=logs.get("grad_norm", 0.0),
                kl=logs.get("kl"),
                role_loss=logs.get(ROLE_LOSS),
                seconds=time.monotonic() - self._step_began,
                generation_seconds=self._clock.last_generation,
            )
        )

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # Before the checkpoint counts: what resumes from it has no other way to these steps.
        self._keeper.flush()
        if args.world_size > 1:
            # Every process writes the state of its own generators into the checkpoint.
            torch.distributed.barrier()
        if not state.is_world_process_zero:
            return
        self.saved(state.global_step, StepMetrics)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._keeper.flush()
