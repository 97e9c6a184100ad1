"""G6: a trust region around what works: the mix of cells moves in bounded steps and no cell is given up."""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext
from agents.schemas import Frozen, GateFinding

ROUNDING = 1e-5


class G6Settings(Frozen):
    max_distance: float = Field(0.50, ge=0, le=1)
    """Total variation between the shares of the current and the proposed configuration."""
    min_share: float = Field(0.02, ge=0, le=1)
    """Every cell keeps this much, so that what is learnt is not forgotten and what is not yet may come."""


def check(context: GateContext, settings: G6Settings) -> GateFinding:
    """Figure: the total variation distance."""
    old, new = context.environment.shares(context.current), context.environment.shares(context.proposed)
    distance = sum(abs(new[cell] - old[cell]) for cell in context.environment.cells()) / 2
    starved = [cell for cell in context.environment.cells() if new[cell] < settings.min_share - ROUNDING]
    jumped = [cell for cell in context.environment.cells() if new[cell] - old[cell] > settings.max_distance / 2]
    too_far = distance > settings.max_distance + ROUNDING
    reason = f"{distance:.0%} of the data moves to other cells (at most {settings.max_distance:.0%})"
    if starved:
        reason += f"; {', '.join(starved)} below {settings.min_share:.0%} of the data"
    cells = [cell for cell in context.environment.cells() if cell in starved or (too_far and cell in jumped)]
    return GateFinding(
        gate="G6",
        passed=not too_far and not starved,
        figure=distance,
        threshold=settings.max_distance,
        reason=reason,
        cells=cells,
    )
