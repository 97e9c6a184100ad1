"""What a stage came to, and what befell it on the way."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from trainer.frozen import Frozen, absent, empty
from trainer.references import ModelRef

SCHEMA_VERSION: Final = 1

Fault = Literal["torn_checkpoint", "missing_file", "wrong_hash", "wrong_spec", "off_window", "damaged_result"]
"""Why a checkpoint or a result was passed over: it was not wholly written, lacks a file, has one with other bytes, is
another stage's, lies inside a window of the sampler, or does not parse."""


class PassedOver(Frozen):
    """A file or directory of the stage from which an attempt could not go on."""

    path: str
    fault: Fault
    detail: str


class EarlierAttempt(Frozen):
    """An attempt before the one that finished the stage, and how it ended."""

    attempt: int
    outcome: str


class Trip(Frozen):
    """Why a stage was stopped before its last step."""

    wire: str
    """The setting of `Tripwires` that it crossed."""
    step: int = Field(gt=0)
    figure: float | None
    """What was measured; None where it was no finite number."""
    threshold: float

    def __str__(self) -> str:
        found = "no finite number" if self.figure is None else f"{self.figure:.4g}"
        return f"{self.wire} {self.threshold:g} was crossed at step {self.step}: {found}"


class JobResult(Frozen):
    """Written last and atomically; a stage is done exactly if this file parses and says that it did all its steps, or
    which tripwire stopped it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    spec_hash: str
    stage: int
    steps: int
    model: ModelRef
    weight_change: float
    """L2 norm of the difference between the weights before and after."""
    seconds: dict[str, float]
    """start_up, generation, training, saving, total."""
    attempt: int
    resumed_from_step: int | None = None
    tripped: Trip | None = Field(None, exclude_if=absent)
    warnings: tuple[str, ...] = Field((), exclude_if=empty)
    """What an engineer should know of the stage's numbers, one line each."""
    exact: bool = Field(True, exclude_if=bool)
    """Whether the weights are those of an undisturbed stage; not after other library versions or smaller passes."""
    micro_batch: int | None = Field(None, exclude_if=absent)
    """Rows in one pass, where memory ran out at the spec's number."""
    earlier: tuple[EarlierAttempt, ...] = Field((), exclude_if=empty)
    passed_over: tuple[PassedOver, ...] = Field((), exclude_if=empty)

    def finished(self, steps: int) -> bool:
        """Whether nothing is left to do of a stage of so many steps."""
        return self.tripped is not None or self.steps == steps


class Rehearsed(Frozen):
    """How a stage's rehearsal of the roles went. Losses are nats a token, means over a fifth of the rehearsals."""

    episodes: int
    """Shown, each as often as it was."""
    loss_first: float
    loss_last: float

    def __str__(self) -> str:
        return f"{self.episodes} role episodes rehearsed, loss {self.loss_first:.3f} -> {self.loss_last:.3f}"


class StageResult(JobResult):
    """What a stage of GRPO came to."""

    generated_tokens: int
    reward_first: float
    reward_last: float
    zero_variance_share: float
    success: float | None = Field(None, exclude_if=absent)
    """Mean over the steps that had noisy tasks solved: probability of success of their valid answers."""
    progress: float | None = Field(None, exclude_if=absent)
    """Mean over the steps that had shaped tasks: progress of their answers to the first fault."""
    rehearsed: Rehearsed | None = Field(None, exclude_if=absent)
    """None where no roles were rehearsed."""


class SftResult(JobResult):
    """What a supervised stage came to. Losses are nats a token of the demonstrations, means over a fifth of the
    steps, those left out at which it was no finite number."""

    kind: Literal["sft"] = "sft"
    loss_first: float
    loss_last: float
    answer_tokens: int
    """Of all demonstrations together: what the loss was taken over."""


AnyResult = StageResult | SftResult
