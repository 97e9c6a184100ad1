"""How good a checkpoint is on a frozen set."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from trainer.frozen import Frozen, absent

SCHEMA_VERSION: Final = 1


class CellStats(Frozen):
    n: int
    valid: float
    optimal: float
    outcomes: dict[str, int]
    mean_tokens: float
    success: float | None = Field(None, exclude_if=absent)
    """Mean probability of success of the valid answers to noisy tasks; None without any."""


class EvalReport(Frozen):
    """A checkpoint on a frozen set. ``macro_*`` is the mean over cells. Rollouts lie in a JSONL beside it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    set: str
    model_sha256: str
    temperature: float
    samples: int
    seed: int
    n: int
    macro_valid: float
    macro_optimal: float
    cells: dict[str, CellStats]
    outcomes: dict[str, int]
    generated_tokens: int
    seconds: float
    rollouts: str
    """File name of the rollouts: one row {id, cell, sample, answer, tokens, outcome, valid, optimal, regret, fault},
    with success and success_interval for a valid answer to a noisy task."""
