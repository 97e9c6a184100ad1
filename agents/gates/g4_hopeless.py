"""G4: not too much of the data is never solved: such groups teach nothing, and rare lucky wins teach shortcuts."""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext, mean
from agents.schemas import Frozen, GateFinding


class G4Settings(Frozen):
    max_hopeless: float = Field(0.40, ge=0, le=1)
    """Share of tasks with no success among the probe's samples."""


def hopeless_share(context: GateContext) -> float:
    """The share of the probe's tasks that were never solved."""
    return mean([task.successes == 0 for task in context.probe])


def check(context: GateContext, settings: G4Settings) -> GateFinding:
    """Figure: the share of hopeless tasks."""
    figure = hopeless_share(context)
    passed = figure <= settings.max_hopeless
    cells = [
        cell
        for cell, tasks in context.by_cell().items()
        if mean([task.successes == 0 for task in tasks]) > settings.max_hopeless
    ]
    return GateFinding(
        gate="G4",
        passed=passed,
        figure=figure,
        threshold=settings.max_hopeless,
        reason=f"{figure:.0%} of the tasks are never solved (at most {settings.max_hopeless:.0%})",
        cells=[] if passed else cells,
    )
