"""Example inputs for any prompt of any environment: what a role may be given early in a run, and later.

They exist to render templates before a run begins. Mappings that are keyed by an environment's own names (cells, knobs,
outcomes) answer to every name, so that a prompt may speak of its environment; fields of the protocol do not.
"""

from __future__ import annotations

from typing import Any

from agents.schemas import (
    CellEvidence,
    CellStatistics,
    Change,
    Critique,
    Diagnosis,
    Evidence,
    FailureCluster,
    FailureExample,
    GateFinding,
    GateReport,
    HistoryEntry,
    Proposal,
    TrainingEvidence,
)

CELLS = tuple(f"cell{number}" for number in range(1, 9))
CHANGES = [Change(path="cell1.data_ratio", op="up"), Change(path="cell2.data_ratio", op="set", value=0.2)]


class Keyed(dict[str, Any]):
    """A mapping in which every name has the first one's value."""

    def __missing__(self, key: str) -> Any:
        for value in self.values():
            return value
        raise KeyError(key)


def example_inputs(*, looks_back: bool, later: bool) -> dict[str, Any]:
    """Every input by name, as plain data, for a role that looks back at the last round's gates, or at this one's.

    Early there is no history, no failure and no proposal, and what may be null is null; ``later`` all of it is there.
    """
    knob = {"value": 0.5, "low": 0.0, "high": 1.0, "up": 0.6, "down": 0.4}
    critique = Critique(reason="too hard", verdict="revise", conditions=CHANGES)
    return {
        "evidence": _evidence(later=later),
        "knobs": Keyed({f"{cell}.data_ratio": knob for cell in CELLS}),
        "bounds": {"steps_low": 10, "steps_high": 20},
        "diagnosis": _diagnosis(),
        "proposal": _proposal(later=later),
        "gate_report": _gate_report() if later or not looks_back else None,
        "critique": critique.model_dump(mode="json") if later else None,
        "conditions": [change.model_dump(mode="json") for change in CHANGES] if later else [],
    }


def _evidence(*, later: bool) -> dict[str, Any]:
    cells = [
        CellEvidence(
            cell=cell,
            n=40,
            valid=0.5,
            optimal=0.4,
            change=0.1 if later else None,
            top_fault="fault" if later else None,
            knobs={"data_ratio": 0.5},
            outcomes={"fault": 20},
            mean_first_fault_step=2.0 if later else None,
        )
        for cell in CELLS
    ]
    failure = FailureExample(
        id="e1", instance="task", cell="cell1", outcome="fault", kind="typical", where="step 1", answer="answer"
    )
    past = HistoryEntry(
        stage=1,
        designer="self",
        changes=["cell1.data_ratio up"],
        accepted=True,
        anchor_before=0.4,
        anchor_after=0.5,
        predicted=dict.fromkeys(CELLS, 50),
        measured=dict.fromkeys(CELLS, 0.5),
    )
    training = TrainingEvidence(
        stage=1, n=96, knobs={"kind.one": 0.5, "kind.two": 0.5, "noise": 0.1}, success=0.9, progress=0.4
    )
    whole = Evidence(
        stage=2 if later else 1,
        model_sha256="0" * 64,
        macro_valid=0.5,
        macro_optimal=0.4,
        zero_variance_share=0.5 if later else None,
        no_signal=not later,
        cells=cells,
        outcomes={"fault": 160},
        failures=[failure] * 8 if later else [],
        anchor=dict.fromkeys(CELLS, 0.5),
        history=[past] if later else [],
        open_knobs={"kind.one": 0.5, "kind.two": 0.5, "noise": 0.1} if later else {},
        training=training if later else None,
        statistics=[_statistics(cell) for cell in CELLS] if later else [],
        clusters=[_cluster(failure)] if later else [],
    )
    data = whole.model_dump(mode="json")
    data |= {name: Keyed(data[name]) for name in ("outcomes", "anchor")}
    data["cells"] = [cell | {name: Keyed(cell[name]) for name in ("knobs", "outcomes")} for cell in data["cells"]]
    return data


def _statistics(cell: str) -> CellStatistics:
    return CellStatistics(
        cell=cell,
        agents=2,
        n=40,
        valid=0.5,
        optimal=0.4,
        regret=0.5,
        tokens=20.0,
        fault_step={"early": 20},
        conflicts=0.1,
        actions={"action": 1.0},
        waits_needed=None,
        waits_used=None,
        waits_idle=None,
        zero_variance=0.5,
    )


def _cluster(failure: FailureExample) -> FailureCluster:
    return FailureCluster(
        id="c1", outcome="fault", phase="early", n=20, share=1.0, cells={"cell1": 20}, typical=failure, odd=None
    )


def _diagnosis() -> dict[str, Any]:
    whole = Diagnosis(
        cells=dict.fromkeys(CELLS, "learnable"), summary="summary", dominant_fault="fault", evidence_ids=["e1"]
    )
    data = whole.model_dump(mode="json")
    return data | {"cells": Keyed(data["cells"])}


def _proposal(*, later: bool) -> dict[str, Any]:
    predicted = dict.fromkeys(CELLS, 50) if later else {}
    data = Proposal(rationale="rationale", changes=CHANGES if later else [], predicted=predicted).model_dump(
        mode="json"
    )
    return data | {"predicted": Keyed(data["predicted"])}


def _gate_report() -> dict[str, Any]:
    failed = GateFinding(gate="G4", passed=False, figure=0.7, threshold=0.4, reason="too hard", cells=["cell8"])
    silent = GateFinding(gate="G8", passed=True, figure=None, threshold=None, reason="nothing measured")
    data = GateReport(
        passed=False, findings=[failed, silent], probe=dict.fromkeys(CELLS, 0.5), probe_tokens=1
    ).model_dump(mode="json")
    return data | {"probe": Keyed(data["probe"])}
