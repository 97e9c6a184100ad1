"""G7: agents still need one another: coordination does not fall below a share of what the initial configuration gave.

Cells differ in how often agents meet (small maps more, large ones less), so moving data between cells must not count
as giving up coordination. The reference is what the initial configuration's cells would give on the proposed mix of
cells; without that quantity by cell, its overall share. Both sides are samples: a fall counts only beyond the standard
error of the difference.
"""

from __future__ import annotations

from math import sqrt

from pydantic import Field

from agents.gates.context import GateContext, percents
from agents.schemas import Frozen, GateFinding
from envsim.api import Measurement


class G7Settings(Frozen):
    min_ratio: float = Field(0.80, ge=0)
    """Allowed fraction of the reference."""
    quantity: str = "conflict_share"
    """The measured quantity by cell whose mean is the environment's coordination."""
    standard_errors: float = Field(1.0, ge=0)


def reference(initial: Measurement, measured: Measurement, quantity: str) -> float:
    """The coordination of the initial configuration's cells on the measured mix of cells."""
    by_cell = {cell: values[quantity] for cell, values in initial.quantities.items() if quantity in values}
    if not by_cell or any(cell not in by_cell for cell, share in measured.share.items() if share > 0):
        return initial.coordination
    return sum(share * by_cell[cell] for cell, share in measured.share.items() if share > 0)


def check(context: GateContext, settings: G7Settings) -> GateFinding:
    """Figure: the measured coordination of the proposal; threshold: the least that passes, sampling error included."""
    assert context.measured is not None
    figure = context.measured.coordination
    wanted = reference(context.initial, context.measured, settings.quantity)
    error = sqrt(_variance(figure, context.measured.n) + settings.min_ratio**2 * _variance(wanted, context.initial.n))
    bound = settings.min_ratio * wanted - settings.standard_errors * error
    told = percents(figure, least=bound)
    return GateFinding(
        gate="G7",
        passed=figure >= bound,
        figure=figure,
        threshold=bound,
        reason=(
            f"agents meet in {told(figure)} of the instances; the initial configuration gave {told(wanted)} "
            f"on these cells, and {settings.min_ratio:.0%} of it less the sampling error is {told(bound)}"
        ),
    )


def _variance(share: float, n: int) -> float:
    """Sampling variance of a share of n, with the share kept away from 0 and 1, where a sample cannot tell."""
    inner = min(max(share, 0.5 / n), 1 - 0.5 / n)
    return inner * (1 - inner) / n
