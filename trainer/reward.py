"""The verifier's verdict as TRL reward functions: validity and optimality, each 0 or 1, weighted by the spec.

There is no reward for format, length or effort: whatever the verifier does not accept earns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from envsim.api import Environment, Verdict
from trainer.spec import RewardWeights

INSTANCE_COLUMN = "instance"
"""Dataset column that carries the instance as a JSON string; nested columns would be None-filled by Arrow."""


class RewardFunction(Protocol):
    """TRL's contract: one float a completion; every dataset column arrives as a keyword of the same length."""

    __name__: str

    def __call__(
        self, *, completions: Sequence[list[dict[str, str]]], instance: Sequence[str], **columns: Any
    ) -> list[float]: ...


def reward_functions(environment: Environment) -> list[RewardFunction]:
    """``[valid, optimal]``, in the order of `reward_weights`; each completion is verified once for both."""
    batch: tuple[list[str], list[str]] = ([], [])
    verdicts: list[Verdict] = []

    def verify(completions: Sequence[list[dict[str, str]]], instance: Sequence[str]) -> list[Verdict]:
        nonlocal batch, verdicts
        wanted = (list(instance), [completion[-1]["content"] for completion in completions])
        if wanted != batch:
            parsed = {text: environment.instance_model.model_validate_json(text) for text in set(wanted[0])}
            batch = wanted
            verdicts = [environment.score(parsed[text], answer) for text, answer in zip(*wanted, strict=True)]
        return verdicts

    def valid(*, completions: Sequence[list[dict[str, str]]], instance: Sequence[str], **_: Any) -> list[float]:
        return [float(verdict.valid) for verdict in verify(completions, instance)]

    def optimal(*, completions: Sequence[list[dict[str, str]]], instance: Sequence[str], **_: Any) -> list[float]:
        return [float(verdict.optimal) for verdict in verify(completions, instance)]

    return [valid, optimal]


def reward_weights(weights: RewardWeights) -> list[float]:
    """Weights in the order of `reward_functions`."""
    return [weights.valid, weights.optimal]
