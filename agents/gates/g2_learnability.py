"""G2: enough groups would teach something: success is neither certain nor absent.

A group of G answers to one task gives GRPO a signal only if they do not all earn the same. With success p that has
probability 1 - p^G - (1-p)^G (learnability, arXiv 2408.15099).
"""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext, mean
from agents.schemas import Frozen, GateFinding


class G2Settings(Frozen):
    min_effective: float = Field(0.50, ge=0, le=1)
    """Expected share of groups whose answers differ."""
    min_success: float = Field(0.20, ge=0, le=1)
    max_success: float = Field(0.80, ge=0, le=1)
    group: int | None = Field(None, ge=2)
    """G of training; None = the probe's own number of samples, of which success is estimated."""


def check(context: GateContext, settings: G2Settings) -> GateFinding:
    """Figure: the expected share of effective groups."""

    def effective(success: float, samples: int) -> float:
        group = settings.group or samples
        return 1.0 - success**group - (1.0 - success) ** group

    values = [effective(task.success, task.samples) for task in context.probe]
    figure, success = mean(values), mean([task.success for task in context.probe])
    passed = figure >= settings.min_effective and settings.min_success <= success <= settings.max_success
    weak = [
        cell
        for cell, tasks in context.by_cell().items()
        if mean([effective(task.success, task.samples) for task in tasks]) < settings.min_effective
    ]
    return GateFinding(
        gate="G2",
        passed=passed,
        figure=figure,
        threshold=settings.min_effective,
        reason=(
            f"{figure:.0%} of the groups would teach (at least {settings.min_effective:.0%}); "
            f"mean success {success:.0%} (between {settings.min_success:.0%} and {settings.max_success:.0%})"
        ),
        cells=[] if passed else weak,
    )
