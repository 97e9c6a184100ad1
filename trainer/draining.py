"""SIGTERM while a stage trains: the step that is under way is ended, a checkpoint saved, and training left."""

# ruff: noqa: ARG002 - the signatures are those of TrainerCallback.

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Drain(TrainerCallback):
    """Between two steps nothing of the sampler's window is open, so what was saved there goes on exactly.

    Before the first step, and after a second signal, SIGTERM ends the process at once; so it does in a process of
    several, where one that saves alone would wait for the others for ever.
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._asked = False

    @property
    def asked(self) -> bool:
        """Whether training was left because of the signal."""
        return self._asked

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.world_size == 1:
            signal.signal(signal.SIGTERM, self._ask)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._asked and state.global_step % self._window == 0:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # The model is about to be saved, which takes moments: the signal is left to that.
        if args.world_size == 1 and not self._asked:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
