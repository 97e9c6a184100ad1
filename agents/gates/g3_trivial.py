"""G3: not too much of the data is already mastered. Some is wanted: it keeps what works."""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext, mean, percents
from agents.schemas import Frozen, GateFinding


class G3Settings(Frozen):
    trivial_success: float = Field(0.95, gt=0, le=1)
    """A task solved at least this often in the probe is trivial."""
    max_trivial: float = Field(0.25, ge=0, le=1)


def check(context: GateContext, settings: G3Settings) -> GateFinding:
    """Figure: the share of trivial tasks."""

    def trivial(success: float) -> bool:
        return success >= settings.trivial_success

    figure = mean([trivial(task.success) for task in context.probe])
    passed = figure <= settings.max_trivial
    told = percents(figure, most=settings.max_trivial)
    cells = [
        cell
        for cell, tasks in context.by_cell().items()
        if mean([trivial(task.success) for task in tasks]) > settings.max_trivial
    ]
    return GateFinding(
        gate="G3",
        passed=passed,
        figure=figure,
        threshold=settings.max_trivial,
        reason=f"{told(figure)} of the tasks are already mastered (at most {told(settings.max_trivial)})",
        cells=[] if passed else cells,
    )
