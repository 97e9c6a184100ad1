"""G8: a designer whose predictions are worse than no prediction, twice running, does not understand the policy.

The Brier score of a cell that is solved with rate y and was predicted p is y (1-p)^2 + (1-y) p^2; the score of a
prediction is its mean over cells. The uniform predictor says 50 % everywhere and scores 0.25.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from pydantic import Field

from agents.gates.context import GateContext, mean, numbers
from agents.schemas import Frozen, GateFinding

UNIFORM = 0.25


class G8Settings(Frozen):
    strikes: int = Field(2, ge=1)
    """Predictions in a row that must be worse than the uniform one before the gate fails."""


def brier(predicted: Mapping[str, int], measured: Mapping[str, float]) -> float:
    """Mean Brier score over the measured cells. Raises KeyError if a cell was not predicted."""
    scores = []
    for cell, rate in measured.items():
        p = predicted[cell] / 100
        scores.append(rate * (1 - p) ** 2 + (1 - rate) * p**2)
    return mean(scores)


def check(context: GateContext, settings: G8Settings) -> GateFinding:
    """Figure: the Brier score of the last prediction; None before the first."""
    scores = [brier(record.predicted, record.measured) for record in context.predictions]
    if not scores:
        reason = "no prediction has been measured yet"
        return GateFinding(gate="G8", passed=True, figure=None, threshold=UNIFORM, reason=reason)
    last = scores[-settings.strikes :]
    failed = len(last) == settings.strikes and all(score > UNIFORM for score in last)
    told = numbers(scores[-1], most=UNIFORM if failed else inf)
    reason = f"the last prediction scored {told(scores[-1])}, saying 50 % everywhere scores {UNIFORM:.2f}"
    if failed:
        reason += f"; the last {settings.strikes} were all worse than that"
    return GateFinding(gate="G8", passed=not failed, figure=scores[-1], threshold=UNIFORM, reason=reason)
