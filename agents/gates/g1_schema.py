"""G1: the proposal is well formed, inside bounds, and its instances can be had at a bearable cost.

Generation runs before the gates; its refusal (a cell with too few solvable draws, a wait share that open maps cannot
give) arrives here as an error that names the cell and the measured rate.
"""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext
from agents.schemas import Frozen, GateFinding


class G1Settings(Frozen):
    min_solvable_share: float = Field(0.30, ge=0, le=1)
    """Share of draws that must be solvable in every cell. Below it, generation hides how odd its instances are."""


def check(context: GateContext, settings: G1Settings) -> GateFinding:
    """Figure: the smallest solvable share over cells."""
    if context.errors or context.measured is None:
        reason = "; ".join(context.errors) or "nothing was generated from the proposal"
        return GateFinding(
            gate="G1",
            passed=False,
            figure=None,
            threshold=settings.min_solvable_share,
            reason=reason,
            cells=list(context.error_cells),
        )
    shares = context.measured.solvable_share
    lowest = min(shares.values(), default=1.0)
    cells = [cell for cell, share in shares.items() if share < settings.min_solvable_share]
    return GateFinding(
        gate="G1",
        passed=not cells,
        figure=lowest,
        threshold=settings.min_solvable_share,
        reason=f"at least {lowest:.0%} of the draws of every cell are solvable",
        cells=cells,
    )
