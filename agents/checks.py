"""What a schema cannot say about an answer: repeated paths, values that belong to an op, ids that exist, bounds.

Decoders do not enforce every keyword and external models may have no constraint at all, so code checks all again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from agents.changes import SHARE_KNOB, change_errors
from agents.schemas import Budget, Change, Critique, Diagnosis, Evidence, Proposal, Written
from agents.structured import NO_FAULT
from agents.teacher import eases
from envsim.api import Environment, Knob, Style


def semantic_checks(
    environment: Environment,
    config: Any,
    *,
    style: Style = "full",
    evidence: Evidence | None = None,
    bounds: Mapping[str, int] | None = None,
) -> Callable[[BaseModel], list[str]]:
    """A ``validate`` for ``ask``: the errors of a parsed Diagnosis, Proposal, Critique or Budget; a note has none.

    Without ``evidence`` the cited ids are not checked, without ``bounds`` the steps are not.
    ``validate`` raises TypeError for another output.
    """
    knobs = environment.knobs(config)
    cells = environment.cells()

    def validate(answer: BaseModel) -> list[str]:
        match answer:
            case Diagnosis():
                return _diagnosis_errors(answer, cells, environment.outcomes, evidence)
            case Proposal():
                errors = _change_errors(knobs, answer.changes, style) + _predicted_errors(answer.predicted, cells)
                return errors or _easing_errors(answer, cells, knobs, evidence)
            case Critique():
                errors = _change_errors(knobs, answer.conditions, style)
                if answer.conditions and answer.verdict != "revise":
                    errors.append(f"conditions: only with verdict 'revise', got verdict {answer.verdict!r}")
                return errors or _hope_errors(answer, cells, evidence)
            case Budget():
                return _budget_errors(answer, bounds)
            case Written():
                return []
            case _:
                raise TypeError(f"no checks are known for {type(answer).__name__}")

    return validate


def _diagnosis_errors(
    answer: Diagnosis, cells: Sequence[str], outcomes: Collection[str], evidence: Evidence | None
) -> list[str]:
    errors = _cell_errors("cells", answer.cells, cells)
    if answer.dominant_fault not in {*outcomes, NO_FAULT}:
        errors.append(f"dominant_fault: unknown {answer.dominant_fault!r}; known: {', '.join([*outcomes, NO_FAULT])}")
    if evidence is not None:
        known = {failure.id for failure in evidence.failures}
        errors.extend(f"evidence_ids: there is no {name!r}" for name in answer.evidence_ids if name not in known)
    return errors


def _predicted_errors(predicted: Mapping[str, int], cells: Sequence[str]) -> list[str]:
    errors = _cell_errors("predicted", predicted, cells)
    errors.extend(
        f"predicted.{cell}: {value} is outside 0..100 percent"
        for cell, value in predicted.items()
        if not 0 <= value <= 100
    )
    return errors


def _change_errors(knobs: Mapping[str, Knob], changes: Sequence[Change], style: Style) -> list[str]:
    errors = change_errors(knobs, changes)
    if style == "compact":
        errors.extend(
            f"{change.path}: op 'set' is not offered, use up, down or keep" for change in changes if change.op == "set"
        )
    return errors


def _easing_errors(
    answer: Proposal, cells: Sequence[str], knobs: Mapping[str, Knob], evidence: Evidence | None
) -> list[str]:
    """A policy that never succeeds learns nothing from harder tasks, and its failures do not say so."""
    if evidence is None or not evidence.no_signal or eases(answer, cells, knobs):
        return []
    return [
        f"changes: hardly anything is solved, so the proposal must ease: raise {cells[0]}.{SHARE_KNOB} or lower "
        "another knob, and harden none"
    ]


def _hope_errors(answer: Critique, cells: Sequence[str], evidence: Evidence | None) -> list[str]:
    path = f"{cells[0]}.{SHARE_KNOB}"
    against = evidence is not None and evidence.no_signal
    if against and any(one.path == path and one.op in ("down", "keep") for one in answer.conditions):
        return [f"conditions: hardly anything is solved, so {path} must not be held down"]
    return []


def _budget_errors(answer: Budget, bounds: Mapping[str, int] | None) -> list[str]:
    if bounds is None or bounds["steps_low"] <= answer.steps <= bounds["steps_high"]:
        return []
    return [f"steps: {answer.steps} is outside {bounds['steps_low']}..{bounds['steps_high']}"]


def _cell_errors(field: str, given: Iterable[str], cells: Sequence[str]) -> list[str]:
    names = set(given)
    errors = [f"{field}: {cell} is missing" for cell in cells if cell not in names]
    return errors + [f"{field}: unknown cell {name!r}" for name in sorted(names - set(cells))]
