"""G3: not too much of the data is already mastered. Some is wanted: it keeps what works.

Where the policy has come to master more of the current configuration than that, one stage cannot undo it within the
trust region of G6: a proposal whose tasks are clearly less mastered than the current ones may pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from pydantic import Field

from agents.gates.context import GateContext, mean, percents
from agents.schemas import Frozen, GateFinding
from tools.probe_policy import ProbeTask


class G3Settings(Frozen):
    trivial_success: float = Field(0.95, gt=0, le=1)
    """A task solved at least this often in the probe is trivial."""
    max_trivial: float = Field(0.25, ge=0, le=1)
    standard_errors: float = Field(1.0, ge=0)
    """Where the current configuration is itself over the bound, a proposal must lie this many standard errors of its
    probe below it."""


def check(context: GateContext, settings: G3Settings) -> GateFinding:
    """Figure: the share of trivial tasks."""

    def trivial_share(tasks: Sequence[ProbeTask]) -> float:
        return mean([task.success >= settings.trivial_success for task in tasks])

    figure, current = trivial_share(context.probe), trivial_share(context.current_probe)
    bound, note = settings.max_trivial, ""
    relative = current > settings.max_trivial
    if relative:
        error = sqrt(current * (1 - current) / len(context.current_probe))
        bound = max(bound, current - settings.standard_errors * error)
    passed = figure <= bound
    told = percents(figure, most=bound)
    if relative:
        note = f"; the current configuration has {told(current)}, so being a standard error better is enough"
    cells = [cell for cell, tasks in context.by_cell().items() if trivial_share(tasks) > settings.max_trivial]
    return GateFinding(
        gate="G3",
        passed=passed,
        figure=figure,
        threshold=bound,
        reason=f"{told(figure)} of the tasks are already mastered (at most {told(bound)}{note})",
        cells=[] if passed else cells,
    )
