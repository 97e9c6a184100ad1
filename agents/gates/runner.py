"""All gates on one proposal. Thresholds are settings; their order and what they are is code."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from agents.gates import (
    g1_schema,
    g2_learnability,
    g3_trivial,
    g4_hopeless,
    g5_difficulty,
    g6_trust,
    g7_coordination,
    g8_calibration,
)
from agents.gates.context import GateContext, mean
from agents.schemas import Frozen, GateFinding, GateReport


class GateSettings(Frozen):
    """Thresholds of every gate, as a run's YAML gives them. ``gates: off`` there means ``{enabled: false}``."""

    enabled: bool = Field(True, exclude_if=lambda enabled: enabled)
    """False: nothing but what cannot be generated is refused, by gate or critic; findings are still told."""
    g1: g1_schema.G1Settings = g1_schema.G1Settings()
    g2: g2_learnability.G2Settings = g2_learnability.G2Settings()
    g3: g3_trivial.G3Settings = g3_trivial.G3Settings()
    g4: g4_hopeless.G4Settings = g4_hopeless.G4Settings()
    g5: g5_difficulty.G5Settings = g5_difficulty.G5Settings()
    g6: g6_trust.G6Settings = g6_trust.G6Settings()
    g7: g7_coordination.G7Settings = g7_coordination.G7Settings()
    g8: g8_calibration.G8Settings = g8_calibration.G8Settings()

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, data: Any) -> Any:
        # YAML reads off as false.
        if isinstance(data, bool):
            return {"enabled": data}
        return {"enabled": data == "on"} if data in ("on", "off") else data


def run_gates(context: GateContext, settings: GateSettings | None = None) -> GateReport:
    """Every gate's finding; G1's alone if nothing could be generated, for then the others have nothing to look at."""
    chosen = settings or GateSettings()
    findings = [g1_schema.check(context, chosen.g1)]
    if context.measured is not None and context.proposed is not None and not context.errors:
        findings += [
            g2_learnability.check(context, chosen.g2),
            g3_trivial.check(context, chosen.g3),
            g4_hopeless.check(context, chosen.g4),
            g5_difficulty.check(context, chosen.g5, current_hopeless=g4_hopeless.current_hopeless(context, chosen.g4)),
            g6_trust.check(context, chosen.g6),
            g7_coordination.check(context, chosen.g7),
            g8_calibration.check(context, chosen.g8),
        ]
    if not chosen.enabled and len(findings) > 1:
        findings = [finding if finding.passed else _told(finding) for finding in findings]
    return GateReport(
        passed=all(finding.passed for finding in findings),
        findings=findings,
        enforced=chosen.enabled,
        probe={cell: mean([task.success for task in tasks]) for cell, tasks in context.by_cell().items()},
        probe_tokens=context.probe_tokens,
    )


NOT_ENFORCED = "would have failed: "
"""How the reason of a finding begins that gates which are off let pass."""
RELATIVE = frozenset({"G2", "G3", "G4", "G5"})
"""Gates that judge a proposal against the current configuration's own probe, if there is one."""


def _told(finding: GateFinding) -> GateFinding:
    """A finding that stops nothing."""
    return finding.model_copy(update={"passed": True, "reason": f"{NOT_ENFORCED}{finding.reason}"})
