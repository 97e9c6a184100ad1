"""SIGTERM while a stage trains: the step that is under way is ended, a checkpoint saved, and training left."""

# ruff: noqa: ARG002 - the signatures are those of TrainerCallback.

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer.processes import DRAIN_RANKS


class Drain(TrainerCallback):
    """Between two steps nothing of the sampler's window is open, so what was saved there goes on exactly.

    Several processes are told by `DRAIN_RANKS` instead, and agree at the end of each step, because all must save at the
    same one. Before the first step, and after a second signal, the signal ends a process at once.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._told = self._asked = False

    @property
    def asked(self) -> bool:
        """Whether training was left because of the signal."""
        return self._asked

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        signal.signal(_signal(args), self._tell)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self._window:
            return
        self._asked = self._told if args.world_size == 1 else _any_of_all(self._told, args.device)
        if self._asked:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # The model is about to be saved, which takes moments: the signal is left to that.
        if not self._asked:
            signal.signal(_signal(args), signal.SIG_IGN)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told = True
        signal.signal(number, signal.SIG_DFL)


def _signal(args: TrainingArguments) -> signal.Signals:
    return signal.SIGTERM if args.world_size == 1 else DRAIN_RANKS


def _any_of_all(told: bool, device: torch.device) -> bool:
    """Whether it is true in any process of the stage."""
    flag = torch.tensor([int(told)], device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag.item())
