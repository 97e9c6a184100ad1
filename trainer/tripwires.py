"""Tripwires: figures of a running stage that say it is going wrong, before its evaluation does.

A stage that crosses one is stopped at the end of that step, with its checkpoint, and its result names the wire. What is
judged are the metrics of all steps that led to where it is, so that one that goes on from a checkpoint is stopped where
it would have been in one go.
"""

# ruff: noqa: ARG002 - the signatures are those of TrainerCallback.

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainer.metrics import SftMetrics, Step, StepMetrics, read_rows
from trainer.resume import history_rows
from trainer.spec import Trip
from trainer.training_settings import SftTripwires, Tripwires

AnyWires = Tripwires | SftTripwires
LEAST_LOSS = 0.01
"""Nats a token: below it a stage has learnt its tasks by heart, and its loss moves by noise alone."""


def judge(rows: Sequence[Step], wires: AnyWires) -> Trip | None:
    """The wire that the last of the steps crossed, if any; the first in the order of the settings.

    ``rows`` are all steps of the stage up to now, of the kind that the wires are for. A figure that is no finite number
    crosses its wire at once, others as means once there are steps enough.
    """
    figures = _supervised(rows, wires) if isinstance(wires, SftTripwires) else _reinforced(rows, wires)
    for wire, figure, crossed in figures:
        threshold = getattr(wires, wire)
        if threshold is not None and crossed:
            known = figure if math.isfinite(figure) else None
            return Trip(wire=wire, step=rows[-1].step, figure=known, threshold=threshold)
    return None


def extremes(rows: Sequence[SftMetrics], wires: SftTripwires) -> dict[str, float]:
    """The largest figure that each armed wire of a supervised stage was judged by; infinity for one that is no number.

    A wire that was never judged, because the stage is shorter than its windows, is left out.
    """
    largest: dict[str, float] = {}
    for end in range(1, len(rows) + 1):
        for wire, figure, _ in _supervised(rows[:end], wires):
            largest[wire] = max(largest.get(wire, 0.0), figure if math.isfinite(figure) else math.inf)
    return largest


Figure = tuple[str, float, bool]
"""Wire, figure, and whether it is crossed; comparisons are written so that one with NaN counts as crossed."""


def _reinforced(rows: Sequence[Any], wires: Tripwires) -> Iterator[Figure]:
    """Of a stage of GRPO."""
    window = wires.window
    if (entropy := _recent(rows, "entropy", window)) is not None and wires.entropy_below is not None:
        yield "entropy_below", entropy, not entropy >= wires.entropy_below
    if len(rows) > window and wires.length_growth is not None:
        growth = _mean([row.length for row in rows[-window:]]) / max(_mean([row.length for row in rows[:window]]), 1.0)
        yield "length_growth", growth, not growth <= wires.length_growth
    for wire, name in (("clipped_above", "clipped"), ("kl_above", "kl"), ("gradient_norm_above", "gradient_norm")):
        yield from _above(rows, wire, name, getattr(wires, wire), window)
    if wires.reward_share is not None and len(rows) >= 2 * window:
        best = max(_earlier([row.reward for row in rows], window))
        # Where nothing was ever earned there is nothing to lose.
        if best > 0:
            share = _mean([row.reward for row in rows[-window:]]) / best
            yield "reward_share", share, not share >= wires.reward_share


def _supervised(rows: Sequence[Any], wires: SftTripwires) -> Iterator[Figure]:
    """Of a supervised stage."""
    if wires.loss_growth is not None:
        losses, window = [row.loss for row in rows], wires.window
        if not math.isfinite(losses[-1]):
            yield "loss_growth", losses[-1], True
        elif len(losses) > window:
            # The first step's is that of the model that the stage began with: a window may be spoilt from its start.
            growth = _mean(losses[-window:]) / max(min([losses[0], *_earlier(losses, window)]), LEAST_LOSS)
            yield "loss_growth", growth, not growth <= wires.loss_growth
    yield from _above(rows, "gradient_norm_above", "gradient_norm", wires.gradient_norm_above, wires.window)


def _above(rows: Sequence[Any], wire: str, name: str, bound: float | None, window: int) -> Iterator[Figure]:
    if bound is not None and (figure := _recent(rows, name, window)) is not None:
        yield wire, figure, not figure <= bound


def _recent(rows: Sequence[Any], name: str, window: int) -> float | None:
    """The mean over the last window; None while the stage is shorter than that and all is finite."""
    values = [value for row in rows[-window:] if (value := getattr(row, name)) is not None]
    return _mean(values) if values and (len(rows) >= window or not math.isfinite(values[-1])) else None


def _earlier(values: Sequence[float], window: int) -> list[float]:
    """Means of all windows that ended before the last one began."""
    return [_mean(values[end - window : end]) for end in range(window, len(values) - window + 1)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class Watch(TrainerCallback):
    """Stops the stage at the end of the step that crosses a wire, and has that step's checkpoint saved.

    Must stand behind the callback that writes the metrics.
    """

    def __init__(self, attempt: Path, wires: AnyWires, resumed_from_step: int | None) -> None:
        self._attempt = attempt
        self._wires = wires
        self._kind: type[Step] = SftMetrics if isinstance(wires, SftTripwires) else StepMetrics
        first = resumed_from_step or 0
        self._rows = [row for row in history_rows(attempt, self._kind) if row.step <= first]
        self._read = len(read_rows(attempt, self._kind))
        self.trip = judge(self._rows, wires) if self._rows else None
        """Set at once if the checkpoint to go on from is the one at which the stage was stopped."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        new = read_rows(self._attempt, self._kind, skip=self._read)
        self._read += len(new)
        self._rows += new
        if new:
            self.trip = judge(self._rows, self._wires)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # One process writes the metrics; all must stop at the same step, or those that go on wait for ever.
            told = [self.trip]
            torch.distributed.broadcast_object_list(told, src=0)
            self.trip = told[0]
        if self.trip is not None:
            control.should_training_stop = control.should_save = True
        return control
