"""G2: enough groups would teach something: success is neither certain nor absent.

A group of G answers to one task gives GRPO a signal only if they do not all earn the same. With success p that has
probability 1 - p^G - (1-p)^G (learnability, arXiv 2408.15099).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from agents.gates.context import GateContext, mean
from agents.schemas import Frozen, GateFinding
from tools.probe_policy import ProbeTask


class G2Settings(Frozen):
    min_effective: float = Field(0.50, ge=0, le=1)
    """Expected share of groups whose answers differ."""
    min_success: float = Field(0.20, ge=0, le=1)
    max_success: float = Field(0.80, ge=0, le=1)
    remedy: float = Field(1.10, ge=1)
    """Where the current configuration is itself below the band: at least this multiple of its effective share."""
    group: int | None = Field(None, ge=2)
    """G of training; None = the probe's own number of samples, of which success is estimated."""


def check(context: GateContext, settings: G2Settings) -> GateFinding:
    """Figure: the expected share of effective groups."""

    def effective(task: ProbeTask) -> float:
        group = settings.group or task.samples
        return 1.0 - task.success**group - (1.0 - task.success) ** group

    def figures(probe: Sequence[ProbeTask]) -> tuple[float, float]:
        return mean([effective(task) for task in probe]), mean([task.success for task in probe])

    figure, success = figures(context.probe)
    least, lowest, note = settings.min_effective, settings.min_success, ""
    if context.current_probe:
        current, its_success = figures(context.current_probe)
        if current < least or its_success < lowest:
            least, lowest = min(least, settings.remedy * current), min(lowest, settings.remedy * its_success)
            note = f"; the current configuration has {current:.0%} and {its_success:.0%}, so clearly more is enough"
    passed = figure >= least and lowest <= success <= settings.max_success
    weak = [
        cell
        for cell, tasks in context.by_cell().items()
        if mean([effective(task) for task in tasks]) < settings.min_effective
    ]
    return GateFinding(
        gate="G2",
        passed=passed,
        figure=figure,
        threshold=least,
        reason=(
            f"{figure:.0%} of the groups would teach (at least {least:.0%}); "
            f"mean success {success:.0%} (between {lowest:.0%} and {settings.max_success:.0%}){note}"
        ),
        cells=[] if passed else weak,
    )
