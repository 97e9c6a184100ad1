"""Invented evidence and the teacher's answers to it.

The evidence is drawn wide (rising, falling and ragged success curves, any configuration), so that an answer can only be
right by reading it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel

from agents import teacher
from agents.schemas import (
    CellEvidence,
    Change,
    Evidence,
    FailureExample,
    GateFinding,
    GateReport,
    HistoryEntry,
    Proposal,
)
from envsim.api import Environment

ROLES = ("failure_analyst", "config_designer", "safety_critic", "trainer")
SHARES = (0.25, 0.35, 0.25, 0.15)
"""How often each role is drawn: the designer and the critic have the most to learn."""
SAMPLES = 42
"""Validation instances a cell, as in the lake's frozen set."""


def _success(rng: np.random.Generator, n: int) -> np.ndarray:
    """Success by cell, shape (n,), in multiples of 1/SAMPLES: mostly falling with difficulty, sometimes not."""
    ranks = np.arange(n)
    kind = rng.random()
    if kind < 0.75:
        curve = rng.uniform(0.4, 1.0) / (1 + np.exp(rng.uniform(0.5, 2.5) * (ranks - rng.uniform(-1.5, n + 1))))
        curve = curve + rng.normal(0, 0.04, n)
    else:
        curve = np.where(rng.random(n) < 0.4, 0.0, rng.random(n))
    rounded: np.ndarray = np.round(np.clip(curve, 0, 1) * SAMPLES) / SAMPLES
    return rounded


def draw_config(environment: Environment, rng: np.random.Generator) -> Any:
    """A configuration with every knob somewhere within its bounds."""
    config = environment.default_config()
    knobs = environment.knobs(config)
    shares = rng.dirichlet(np.full(len(environment.cells()), rng.choice([0.7, 2.0, 30.0])))
    shares = np.maximum(shares, 0.02)
    values = {}
    for cell, share in zip(environment.cells(), shares / shares.sum(), strict=True):
        for path, knob in knobs.items():
            if path == f"{cell}.data_ratio":
                values[path] = float(share)
            elif path.startswith(f"{cell}."):
                steps = round((knob.high - knob.low) / 0.05)
                values[path] = float(np.clip(knob.low + 0.05 * rng.integers(0, steps + 1), knob.low, knob.high))
    return environment.with_values(config, values)


def draw_evidence(environment: Environment, config: Any, rng: np.random.Generator) -> Evidence:
    """Evidence that could have been measured, with no policy behind it."""
    names = environment.cells()
    faults = [o for o in environment.outcomes if o not in ("optimal", "valid_suboptimal")]
    weights = rng.dirichlet(np.full(len(faults), 0.5))
    success = _success(rng, len(names))
    knobs = environment.knobs(config)
    cells, failures = [], []
    for name, valid in zip(names, success, strict=True):
        fault = str(rng.choice(faults, p=weights)) if valid < 1 else None
        cells.append(
            CellEvidence(
                cell=name,
                n=SAMPLES,
                valid=float(valid),
                optimal=float(valid) * 0.8,
                change=None,
                top_fault=fault,
                knobs={p.rpartition(".")[2]: k.value for p, k in knobs.items() if p.rpartition(".")[0] == name},
                outcomes={},
                mean_first_fault_step=None,
            )
        )
        if fault is not None and rng.random() < 0.8:
            failures.append((name, fault, "typical"))
            if rng.random() < 0.3:
                failures.append((name, str(rng.choice(faults)), "odd"))
    first = int(rng.integers(1, 4))
    history = [
        HistoryEntry(
            stage=0,
            designer="self",
            changes=[],
            accepted=bool(rng.random() < 0.7),
            anchor_before=0.1,
            anchor_after=0.1,
        )
    ]
    return Evidence(
        stage=1,
        model_sha256="",
        macro_valid=float(success.mean()),
        macro_optimal=float(success.mean()) * 0.8,
        zero_variance_share=None if rng.random() < 0.1 else float(rng.random()),
        no_signal=bool(success.max() < 0.05),
        cells=cells,
        outcomes={},
        failures=[
            FailureExample(
                id=f"e{first + i}",
                instance="",
                cell=c,
                outcome=o,
                kind="odd" if k == "odd" else "typical",
                where="",
                answer="",
            )
            for i, (c, o, k) in enumerate(failures)
        ],
        anchor={},
        history=history if rng.random() < 0.8 else [],
    )


def _gate_report(rng: np.random.Generator, evidence: Evidence, *, failing: bool) -> GateReport:
    """A report as the gates would write it: hopeless and trivial mass name the cells that have it."""
    findings = []
    if failing:
        gate = str(rng.choice(["G1", "G2", "G3", "G4", "G4", "G4", "G5", "G6", "G7"]))
        by_success = sorted(evidence.cells, key=lambda c: c.valid, reverse=gate == "G3")
        count = int(rng.integers(1, 5))
        chosen = {c.cell for c in by_success[:count]} if gate in ("G2", "G3", "G4") else set()
        findings.append(
            GateFinding(
                gate=gate,
                passed=False,
                figure=None,
                threshold=None,
                reason="",
                cells=[c.cell for c in evidence.cells if c.cell in chosen],
            )
        )
    return GateReport(passed=not failing, findings=findings, probe={}, probe_tokens=0)


def spoil(rng: np.random.Generator, environment: Environment, proposal: Proposal) -> Proposal:
    """Flip, drop or add some data-ratio changes: what a careless designer would write."""
    changes = [c for c in proposal.changes if rng.random() < 0.8]
    for cell in environment.cells():
        if rng.random() < 0.25:
            path = f"{cell}.data_ratio"
            changes = [c for c in changes if c.path != path]
            changes.append(Change(path=path, op="up" if rng.random() < 0.5 else "down"))
    return proposal.model_copy(update={"changes": changes})


def draw_episode(environment: Environment, rng: np.random.Generator) -> tuple[str, dict[str, Any], BaseModel]:
    """One role's inputs and the teacher's answer to them."""
    role = str(rng.choice(ROLES, p=SHARES))
    config = draw_config(environment, rng)
    evidence = draw_evidence(environment, config, rng)
    knobs = environment.knobs(config)
    if role == "failure_analyst":
        return role, {"evidence": evidence}, teacher.diagnose(evidence)
    diagnosis = teacher.diagnose(evidence)
    proposal = teacher.propose(evidence, diagnosis, knobs, None, [])
    inputs: dict[str, Any]
    if role == "config_designer":
        report, conditions = None, []
        if rng.random() < 0.4:
            report = _gate_report(rng, evidence, failing=rng.random() < 0.7)
            conditions = teacher.critique(evidence, spoil(rng, environment, proposal), report).conditions
        inputs = {"evidence": evidence, "diagnosis": diagnosis, "gate_report": report, "conditions": conditions}
        return role, inputs, teacher.propose(evidence, diagnosis, knobs, report, conditions)
    if role == "safety_critic":
        if rng.random() < 0.6:
            proposal = spoil(rng, environment, proposal)
        report = _gate_report(rng, evidence, failing=rng.random() < 0.4)
        inputs = {"evidence": evidence, "proposal": proposal, "gate_report": report}
        return role, inputs, teacher.critique(evidence, proposal, report)
    low = int(rng.integers(5, 60))
    bounds = {"steps_low": low, "steps_high": low + int(rng.integers(1, 60))}
    inputs = {"evidence": evidence, "proposal": proposal, "bounds": bounds}
    return role, inputs, teacher.budget(evidence, bounds["steps_low"], bounds["steps_high"])
