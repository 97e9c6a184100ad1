"""G4: not too much of the data is never solved: such groups teach nothing, and rare lucky wins teach shortcuts.

Solved means valid, as in every gate. A shaped reward does pay for getting further, but no proposal makes its tasks less
hopeless by asking for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from pydantic import Field

from agents.gates.context import GateContext, mean, percents
from agents.schemas import Frozen, GateFinding
from tools.probe_policy import ProbeTask


class G4Settings(Frozen):
    max_hopeless: float = Field(0.40, ge=0, le=1)
    """Share of tasks with no success among the probe's samples."""
    standard_errors: float = Field(1.0, ge=0)
    """Where the current configuration is itself over the bound, a proposal may be as hopeless as it, and this many
    standard errors of its probe beyond."""


def hopeless_share(probe: Sequence[ProbeTask]) -> float:
    """The share of a probe's tasks that were never solved."""
    return mean([task.successes == 0 for task in probe])


def current_hopeless(context: GateContext, settings: G4Settings) -> bool:
    """Whether the current configuration itself has more hopeless mass than allowed."""
    return hopeless_share(context.current_probe) > settings.max_hopeless


def check(context: GateContext, settings: G4Settings) -> GateFinding:
    """Figure: the share of hopeless tasks."""
    figure = hopeless_share(context.probe)
    bound, note = settings.max_hopeless, ""
    relative = current_hopeless(context, settings)
    current = hopeless_share(context.current_probe)
    if relative:
        error = sqrt(current * (1 - current) / len(context.current_probe))
        bound = current + settings.standard_errors * error
    told = percents(figure, most=bound)
    if relative:
        note = f"; the current configuration has {told(current)}, so being no worse within a standard error is enough"
    passed = figure <= bound
    cells = [
        cell
        for cell, tasks in context.by_cell().items()
        if mean([task.successes == 0 for task in tasks]) > settings.max_hopeless
    ]
    return GateFinding(
        gate="G4",
        passed=passed,
        figure=figure,
        threshold=bound,
        reason=f"{told(figure)} of the tasks are never solved (at most {told(bound)}{note})",
        cells=[] if passed else cells,
    )
