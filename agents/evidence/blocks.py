"""Blocks of the evidence by name, and evidence without some of them: for studies of what a designer reads.

A block that is left out is left out of ``evidence.json`` and so of every prompt and every rule; gates measure for
themselves and miss nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from pydantic import Field

from agents.schemas import CellEvidence, Evidence, Frozen

Block = Literal["statistics", "faults", "failures", "history", "anchor", "training"]


class EvidenceSettings(Frozen):
    """What the roles of a run are shown."""

    omit: list[Block] = Field([], description="blocks of the evidence that are left out")
    tokens: int | None = Field(
        None, ge=64, description="most tokens of a role's prompt; none = what the model's context leaves"
    )


def _everywhere(evidence: Evidence, cell: Callable[[CellEvidence], dict[str, Any]]) -> list[CellEvidence]:
    return [one.model_copy(update=cell(one)) for one in evidence.cells]


def _statistics(evidence: Evidence) -> dict[str, Any]:
    overall = {"valid": evidence.macro_valid, "optimal": evidence.macro_optimal, "change": None}
    past = [one.model_copy(update={"predicted": {}, "measured": {}}) for one in evidence.history]
    clusters = [one.model_copy(update={"cells": {}}) for one in evidence.clusters]
    return {
        "cells": _everywhere(evidence, lambda _: overall),
        "statistics": [],
        "history": past,
        "clusters": clusters,
    }


def _faults(evidence: Evidence) -> dict[str, Any]:
    nothing: dict[str, Any] = {"top_fault": None, "outcomes": {}, "mean_first_fault_step": None}
    statistics = [one.model_copy(update={"fault_step": {}, "conflicts": 0.0}) for one in evidence.statistics]
    return {"cells": _everywhere(evidence, lambda _: nothing), "outcomes": {}, "statistics": statistics, "clusters": []}


def _training(evidence: Evidence) -> dict[str, Any]:
    statistics = [one.model_copy(update={"zero_variance": None}) for one in evidence.statistics]
    return {"training": None, "zero_variance_share": None, "statistics": statistics}


BLOCKS: dict[str, Callable[[Evidence], dict[str, Any]]] = {
    # Every cell is shown the mean over all cells; nothing by number of agents, nothing of a cell's past.
    "statistics": _statistics,
    # No verdict mix, most frequent fault or place of the first fault, no failures grouped by these.
    "faults": _faults,
    "failures": lambda _: {"failures": [], "clusters": []},
    # Stages before this one, with what they predicted and what came of it.
    "history": lambda _: {"history": []},
    "anchor": lambda _: {"anchor": {}},
    # What the last stage trained on and what it was worth.
    "training": _training,
}
"""What leaving a block out changes."""


def without(evidence: Evidence, blocks: Collection[str]) -> Evidence:
    """The evidence without these blocks, which it then names. Raises KeyError for an unknown one."""
    for name in sorted(set(blocks), key=list(BLOCKS).index):
        evidence = evidence.model_copy(update=BLOCKS[name](evidence))
    return evidence.model_copy(update={"omitted": sorted(set(blocks))}) if blocks else evidence
