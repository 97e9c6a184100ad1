"""G5: the environment may not be made trivial. Its solver-side difficulty has a floor and may not fall by leaps.

Difficulty is independent of any policy. Easing beyond the step is allowed as remediation, after the anchor dropped or
where the current configuration itself was hopeless; the floor holds for every change. A configuration that stays as it
is eases nothing, whatever another draw of its tasks measures.
"""

from __future__ import annotations

from pydantic import Field

from agents.gates.context import GateContext, numbers
from agents.schemas import Frozen, GateFinding


class G5Settings(Frozen):
    floor: float = Field(0.10, ge=0, le=1)
    """On the lake, 3x3 maps without holes have 0.06, 3x3 maps with the default knobs 0.18, the default mix 0.25."""
    max_fall: float = Field(0.04, ge=0)
    """Allowed fall below the current configuration in one stage, about twice the sampling error of 64 instances."""


def check(context: GateContext, settings: G5Settings, *, current_hopeless: bool = False) -> GateFinding:
    """Figure: the measured difficulty of the proposal.

    ``current_hopeless``: the current configuration itself has more hopeless mass than G4 allows.
    """
    assert context.measured is not None
    figure = context.measured.difficulty
    remediation = context.anchor_dropped or current_hopeless
    bound = settings.floor if remediation else max(settings.floor, context.current_difficulty - settings.max_fall)
    told = numbers(figure, least=bound)
    reason = f"difficulty {told(figure)} (current {told(context.current_difficulty)}, at least {told(bound)})"
    if remediation:
        reason += "; easing is allowed as remediation"
    same = context.proposed == context.current
    if same:
        reason += "; the configuration is the current one"
    return GateFinding(gate="G5", passed=same or figure >= bound, figure=figure, threshold=bound, reason=reason)
