"""G2: enough groups would teach something: success is neither certain nor absent.

A group of G answers to one task gives GRPO a signal only if they do not all earn the same. With success p that has
probability 1 - p^G - (1-p)^G (learnability, arXiv 2408.15099).
"""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext, mean, percents, standard_error
from agents.schemas import Frozen, GateFinding
from tools.probe_policy import ProbeTask


class G2Settings(Frozen):
    min_effective: float = Field(0.50, ge=0, le=1)
    """Expected share of groups whose answers differ."""
    min_success: float = Field(0.20, ge=0, le=1)
    max_success: float = Field(0.80, ge=0, le=1)
    standard_errors: float = Field(1.0, ge=0)
    """Where the current configuration is itself below the band, a proposal may be as weak as it, and this many standard
    errors of its probe below. Where its success is above the band, a proposal's must be so many below it."""
    group: int | None = Field(None, ge=2)
    """G of training; None = the probe's own number of samples, of which success is estimated."""


def check(context: GateContext, settings: G2Settings) -> GateFinding:
    """Figure: the expected share of effective groups."""

    def effective(task: ProbeTask) -> float:
        group = settings.group or task.samples
        return 1.0 - task.success**group - (1.0 - task.success) ** group

    values = [effective(task) for task in context.probe]
    figure, success = mean(values), mean([task.success for task in context.probe])
    least, lowest, note = settings.min_effective, settings.min_success, ""
    own = [effective(task) for task in context.current_probe]
    own_success = [task.success for task in context.current_probe]
    bound_by_current = bool(own) and (mean(own) < least or mean(own_success) < lowest)
    if bound_by_current:
        least = min(least, mean(own) - settings.standard_errors * standard_error(own))
        lowest = min(lowest, mean(own_success) - settings.standard_errors * standard_error(own_success))
    highest = max(settings.max_success, mean(own_success) - settings.standard_errors * standard_error(own_success))
    shares, successes = percents(figure, least=least), percents(success, least=lowest, most=highest)
    if bound_by_current:
        note = (
            f"; the current configuration has {shares(mean(own))} and {successes(mean(own_success))}, "
            "so being no worse within a standard error is enough"
        )
    if highest > settings.max_success:
        note += (
            f"; the current mean success is {successes(mean(own_success))}, so being a standard error lower is enough"
        )
    passed = figure >= least and lowest <= success <= highest
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
            f"{shares(figure)} of the groups would teach (at least {shares(least)}); "
            f"mean success {successes(success)} "
            f"(between {successes(lowest)} and {successes(highest)}){note}"
        ),
        cells=[] if passed else weak,
    )
