"""G6: a trust region around what works: every mix moves in bounded steps, and no cell is given up.

The mix of cells is one; the mixtures among the knobs that a run opens to its designer (kinds of maps, numbers of
agents) are others: none of them jumps from one end to the other in a stage. A choice of theirs may be given up, step by
step.
"""

from __future__ import annotations

from pydantic import Field

from agents.changes import mixtures
from agents.gates.context import GateContext, percents
from agents.schemas import Frozen, GateFinding

ROUNDING = 1e-5


class G6Settings(Frozen):
    max_distance: float = Field(0.50, ge=0, le=1)
    """Total variation between the shares of the current and the proposed configuration, in every mix."""
    min_share: float = Field(0.02, ge=0, le=1)
    """Every cell keeps this much, so that what is learnt is not forgotten and what is not yet may come."""


def check(context: GateContext, settings: G6Settings) -> GateFinding:
    """Figure: the total variation distance of the mix that moves most."""
    old, new = context.environment.shares(context.current), context.environment.shares(context.proposed)
    distance = sum(abs(new[cell] - old[cell]) for cell in context.environment.cells()) / 2
    starved = [cell for cell in context.environment.cells() if new[cell] < settings.min_share - ROUNDING]
    jumped = [cell for cell in context.environment.cells() if new[cell] - old[cell] > settings.max_distance / 2]
    too_far = distance > settings.max_distance + ROUNDING
    reason = moving(distance, settings, "the data moves to other cells")
    moved = mixture_distances(context)
    jumps = {group: far for group, far in moved.items() if far > settings.max_distance + ROUNDING}
    for group, far in jumps.items():
        reason += f"; {moving(far, settings, f'{group} moves to other choices')}"
    if starved:
        reason += f"; {', '.join(starved)} below {settings.min_share:.0%} of the data"
    cells = [cell for cell in context.environment.cells() if cell in starved or (too_far and cell in jumped)]
    return GateFinding(
        gate="G6",
        passed=not too_far and not starved and not jumps,
        figure=max(distance, *moved.values()) if moved else distance,
        threshold=settings.max_distance,
        reason=reason,
        cells=cells,
    )


def moving(distance: float, settings: G6Settings, what: str) -> str:
    """How much moves, and how much may."""
    told = percents(distance, most=settings.max_distance + ROUNDING)
    return f"{told(distance)} of {what} (at most {told(settings.max_distance)})"


def mixture_distances(context: GateContext) -> dict[str, float]:
    """Total variation between the weights of every open mixture, by group."""
    old, new = context.environment.knobs(context.current), context.environment.knobs(context.proposed)
    return {
        group: sum(abs(new[path].value - old[path].value) for path in paths) / 2
        for group, paths in mixtures(old, context.environment.cells()).items()
    }
