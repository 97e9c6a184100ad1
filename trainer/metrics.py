"""What a running stage tells: one line a step, and a heartbeat.

Each attempt has its own file; a step that was trained twice because an attempt died counts once, as it went last.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, Field, ValidationError

from trainer.files import read_lines, write_atomic
from trainer.spec import AnySpec, Frozen, SftSpec, absent

METRICS = "metrics.jsonl"
HEARTBEAT = "heartbeat.json"


class Step(Frozen):
    """One optimizer step of so many. Shares are in [0, 1], lengths in tokens, times in seconds."""

    # A step that diverges is told of as well, as NaN and Infinity; pydantic's null could not be read back.
    model_config = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="constants")

    step: int
    """Number of the optimizer step in the stage, from 1."""
    steps: int
    """Steps of the whole stage."""
    time: float | None = Field(None, exclude_if=absent)
    """When the step ended, in seconds since the epoch."""


class StepMetrics(Step):
    """A step of GRPO."""

    reward: float
    """Mean reward of the completions, weighted as the spec says."""
    valid: float
    """Share of valid answers."""
    optimal: float
    """Share of answers that are valid in the fewest steps."""
    success: float | None = Field(None, exclude_if=absent)
    """Mean probability of success of the valid answers to noisy tasks; None without any."""
    progress: float | None = Field(None, exclude_if=absent)
    """Mean progress to the first fault of the answers to shaped tasks; None without any."""
    zero_variance: float
    """Share of groups whose answers all earned the same."""
    entropy: float
    """Mean entropy in nats a token, over the rows that carried a gradient."""
    length: float
    """Mean length of a completion."""
    clipped: float
    """Share of completions cut off at the limit."""
    tokens: int
    """Generated tokens of the batch."""
    gradient_norm: float
    """Norm of the gradient before it is clipped."""
    kl: float | None = Field(None, exclude_if=absent)
    """Nats a token from the model that the stage began with; None where the loss has no such term."""
    role_loss: float | None = Field(None, exclude_if=absent)
    """Nats a token of the role episodes that the step rehearsed, before its update; None in a step that did not."""
    seconds: float
    """Of the whole step."""
    generation_seconds: float
    """Of its rollouts."""


class SftMetrics(Step):
    """A step of a supervised stage."""

    loss: float
    """Nats a token of the demonstrations."""
    tokens: int
    """Of the demonstrations alone."""
    gradient_norm: float
    learning_rate: float
    seconds: float


Row = TypeVar("Row", bound=Step)


def metrics_of(spec: AnySpec) -> type[StepMetrics] | type[SftMetrics]:
    """What a step of a stage of this kind is told as."""
    return SftMetrics if isinstance(spec, SftSpec) else StepMetrics


class Heartbeat(Frozen):
    """The last sign of life: wall-clock time in seconds since the epoch, and what was going on."""

    time: float
    phase: str
    step: int


def curves(metrics: Step) -> dict[str, float]:
    """The step as trackers show it: ``train/<field>``, one curve a field that is known; the step is the axis."""
    values = metrics.model_dump(mode="python", exclude={"step", "steps", "time"})
    return {f"train/{name}": float(value) for name, value in values.items() if value is not None}


def beat(attempt: Path, phase: str, step: int = 0) -> None:
    """Write the heartbeat of an attempt."""
    write_atomic(attempt / HEARTBEAT, Heartbeat(time=time.time(), phase=phase, step=step).model_dump_json())


def read_heartbeat(attempt: Path) -> Heartbeat | None:
    """The heartbeat, or None before the first and of a damaged file, which the next one replaces."""
    try:
        return Heartbeat.model_validate_json((attempt / HEARTBEAT).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def append(attempt: Path, metrics: StepMetrics | SftMetrics) -> None:
    """Add a line to the attempt's metrics."""
    with (attempt / METRICS).open("a", encoding="utf-8") as file:
        file.write(metrics.model_dump_json() + "\n")


def read_attempt(attempt: Path, *, skip: int = 0) -> list[StepMetrics]:
    """The attempt's metrics after the first ``skip`` lines; a torn last line is left for later."""
    return read_rows(attempt, StepMetrics, skip=skip)


def read_rows(attempt: Path, kind: type[Row], *, skip: int = 0) -> list[Row]:
    """As `read_attempt`, of any kind of stage."""
    path = attempt / METRICS
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(read_lines(path)[skip:], start=skip + 1):
        try:
            rows.append(kind.model_validate_json(line))
        except ValidationError as error:
            raise ValueError(f"{path}, line {number} is no step: {error}") from error
    return rows


def read_stage(attempts: Sequence[Path]) -> list[StepMetrics]:
    """One row a step over all attempts, in order of steps; the later attempt wins."""
    return stage_rows(attempts, StepMetrics)


def stage_rows(attempts: Sequence[Path], kind: type[Row]) -> list[Row]:
    """As `read_stage`, of any kind of stage."""
    by_step = {row.step: row for attempt in attempts for row in read_rows(attempt, kind)}
    return [by_step[step] for step in sorted(by_step)]


def mean_known(values: Iterable[float | None]) -> float | None:
    """The mean of those that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
