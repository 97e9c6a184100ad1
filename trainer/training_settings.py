"""The numbers of training by kind of stage, as data: optimizer, GRPO with its loss, lengths and tripwires, supervision.

Whatever is at its default is left out of files where a stage was written before the setting was there, so that its
identity stays what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from trainer.frozen import Frozen, absent
from trainer.losses import Preset, filled


class OptimizerSettings(Frozen):
    """What every kind of stage has. ``batch`` counts rows a step: completions or demonstrations."""

    steps: int = Field(gt=0)
    batch: int = Field(128, gt=0)
    micro_batch: int | None = Field(None, gt=0)
    """Rows in one forward and backward pass; None = the whole batch."""
    learning_rate: float = Field(5e-5, gt=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    """What the learning rate does within a stage after its warm-up; every stage begins anew."""
    max_grad_norm: float = Field(1.0, ge=0)
    save_every: int = Field(10, gt=0)
    bf16: bool = False
    gradient_checkpointing: bool = False


class Tripwires(Frozen):
    """When a stage is stopped before its last step; None disarms a wire. Means are over ``window`` steps.

    The defaults lie far from what healthy stages show. Of 36 stages of the seedling the window means of ten steps came
    to: entropy 0.24 and more, length at most 1.6 times the first, 14 % cut off at most, gradient norm 0.5 at most, and
    never less than 0.28 of the best reward.
    """

    window: int = Field(10, gt=0)
    entropy_below: float | None = Field(0.05, gt=0)
    """Nats a token: answers to one prompt that are all alike teach nothing."""
    length_growth: float | None = Field(3.0, gt=1)
    """Mean length over that of the stage's first window."""
    clipped_above: float | None = Field(0.5, gt=0, lt=1)
    """Share of answers cut off at the limit."""
    kl_above: float | None = Field(None, gt=0)
    """Nats a token from the model that the stage began with; needs ``beta`` above 0. A place to start is 1."""
    gradient_norm_above: float | None = Field(10.0, gt=0)
    """Before clipping."""
    reward_share: float | None = Field(0.1, gt=0, lt=1)
    """Mean reward as a share of that of the best window that ended before this one began."""

    @model_validator(mode="after")
    def _any_armed(self) -> Self:
        if all(value is None for name, value in self if name != "window"):
            raise ValueError("every wire is disarmed; arm one, or leave tripwires out")
        return self


class SftTripwires(Frozen):
    """As `Tripwires`, for a supervised stage. `docs/training.md` has the runs that the defaults were measured by."""

    window: int = Field(10, gt=0)
    loss_growth: float | None = Field(1.5, gt=1)
    """Mean loss over that of the best window that ended before this one began, or of the first step if that is lower;
    one that is no number crosses it too."""
    gradient_norm_above: float | None = Field(100.0, gt=0)
    """Before clipping. For numbers out of hand alone: how large a healthy norm is depends on the model and on how far
    from what it says by itself it is shown something, and a stage that diverges may have a smaller one."""

    @model_validator(mode="after")
    def _any_armed(self) -> Self:
        if self.loss_growth is None and self.gradient_norm_above is None:
            raise ValueError("every wire is disarmed; arm one, or leave tripwires out")
        return self


class SftSettings(OptimizerSettings):
    """The numbers of one supervised stage. ``batch`` counts demonstrations a step.

    Tasks are shown in a new order, each with a demonstration drawn anew, as often as the steps ask for.
    """

    careless: float = Field(0.0, ge=0, le=1)
    """Probability with which the demonstrator overlooks each of the things that a task asks to heed; at 0 every
    demonstration is valid."""
    tripwires: SftTripwires | None = Field(None, exclude_if=absent)
    """None = a stage runs to its last step whatever it shows; ``{}`` arms all wires."""

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> Self:
        if self.micro_batch is not None and self.batch % self.micro_batch:
            raise ValueError(f"batch {self.batch} is no multiple of micro_batch {self.micro_batch}")
        return self


class SelectionSettings(Frozen):
    """How a stage's tasks are chosen by a probe; see `trainer.selection`."""

    samples: int = Field(8, ge=2)
    """Answers to each candidate."""
    oversampling: float = Field(3.0, ge=1, le=100)
    """Candidates drawn for each task that is needed."""
    min_share: float = Field(0.25, ge=0, le=1)
    """If the informative candidates are fewer than this share of the tasks needed, the configuration is trained on as
    it was drawn: a choice of so few would be another configuration."""
    fill: Literal["drawn", "unsolved", "solved"] = "drawn"
    """What fills up where informative candidates are too few: the others as drawn, or those never or always solved
    first."""


class Rehearsal(Frozen):
    """When a stage of GRPO is shown how roles are played, and how much that weighs beside what it earns.

    Every ``every``-th optimizer step adds the gradient of ``weight`` times the mean cross entropy over the answer
    tokens of ``batch`` role episodes, before the gradient is clipped.
    """

    every: int = Field(1, gt=0)
    """Optimizer steps."""
    batch: int = Field(4, gt=0)
    """Episodes, over all micro-batches and processes of the step."""
    weight: float = Field(0.25, gt=0)


class RehearsalSettings(Rehearsal):
    """The same in a profile: the episodes are drawn once a run, and every stage of it rehearses from them."""

    episodes: int = Field(1024, gt=0)

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.batch > self.episodes:
            raise ValueError(f"batch {self.batch} exceeds episodes {self.episodes}; a batch shows none twice")
        return self


class OverlongPenalty(Frozen):
    """DAPO's soft punishment: nothing up to ``cache`` tokens before the limit, then linearly down to -``weight``."""

    cache: int = Field(gt=0)
    weight: float = Field(0.5, gt=0)


class GrpoSettings(OptimizerSettings):
    """The numbers of one GRPO stage. ``batch`` counts completions a step, ``group`` completions a prompt."""

    group: int = Field(16, ge=2)
    loss: Preset | None = Field(None, exclude_if=absent)
    """Fills in what is left out of the settings of `trainer.losses`; None = each by its own default."""
    loss_type: Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo"] = "dapo"
    """How TRL sums the loss over tokens."""
    importance_sampling_level: Literal["token", "sequence"] = Field("token", exclude_if=lambda level: level == "token")
    scale_rewards: Literal["group", "batch", "none"] = "group"
    beta: float = Field(0.0, ge=0)
    epsilon: float | None = Field(None, gt=0, exclude_if=absent)
    """None = the preset's, or 0.2."""
    epsilon_high: float | None = Field(None, gt=0)
    mask_truncated: bool = Field(False, exclude_if=lambda masks: not masks)
    """Whether answers cut off at the limit are left out of the loss. They still count in their group's mean."""
    overlong: OverlongPenalty | None = Field(None, exclude_if=absent)
    tripwires: Tripwires | None = Field(None, exclude_if=absent)
    """None = a stage runs to its last step whatever it shows; ``{}`` arms all wires but that of KL."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, data: Any) -> Any:
        return filled(data) if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _loss_fits(self) -> Self:
        if self.importance_sampling_level == "sequence" and self.loss_type not in ("grpo", "sapo"):
            raise ValueError(
                f"loss_type {self.loss_type!r} counts tokens and importance_sampling_level 'sequence' whole answers; "
                "expected loss_type 'grpo', as loss 'gspo' has it"
            )
        if self.tripwires is not None and self.tripwires.kl_above is not None and self.beta == 0:
            raise ValueError(
                f"tripwires.kl_above is {self.tripwires.kl_above:g} and beta 0, with which no KL is measured; give "
                "beta a value above 0, or leave kl_above out"
            )
        return self
