"""The nodes of a designed stage: evidence, the four roles, and the gates between them.

A critic may add conditions and may reject; it can never lift a gate. Whatever is sent back more often than the run
allows leaves the stage on the last accepted configuration.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from agents import teacher
from agents.rolespec import RoleSpec
from agents.schemas import Budget, Critique, Diagnosis, Evidence, GateReport, Proposal
from graph import layout, words
from graph.evidence import evidence_of
from graph.gating import gate_report
from graph.proposing import propose_with
from graph.speaking import parsed, speak
from graph.state import Review, RunState
from graph.work import Work


def evidence(state: RunState, work: Work) -> RunState:
    """What the current checkpoint does on the validation set, beside what its last stage was given."""
    stage = state["stage"]
    work.reporter.heading(f"stage {stage:03d}")
    found = evidence_of(work, state)
    work.run.write(layout.in_stage(stage, "evidence.json"), found.model_dump(mode="json"))
    work.reporter.event("evidence", stage=stage, valid=found.macro_valid)
    return RunState()


def diagnose(state: RunState, work: Work, role: RoleSpec) -> RunState:
    """Failure analyst."""
    seen = read_evidence(work, state["stage"])
    answer = speak(
        work,
        state,
        role,
        layout.in_stage(state["stage"], f"answers/{role.name}.json"),
        role_inputs(work, state, role),
        config=work.config(state["config"]),
        evidence=seen,
        rule=partial(teacher.diagnose, seen),
    )
    work.run.write(layout.in_stage(state["stage"], "diagnosis.json"), answer["parsed"])
    return RunState()


def propose(state: RunState, work: Work, role: RoleSpec) -> RunState:
    """Config designer, or whoever designs in its place in this run."""
    stage, revision = state["stage"], state["revision"]
    answer = propose_with(work, state, role, role_inputs(work, state, role))
    if answer["parsed"] is not None:
        work.run.write(layout.in_stage(stage, "proposal.json"), answer["parsed"])
    work.reporter.event("proposed", stage=stage, revision=revision)
    return RunState()


def gates(state: RunState, work: Work) -> RunState:
    """Code on the proposal: what it would really give, how the current policy does on it, and every gate's word."""
    stage, revision = state["stage"], state["revision"]
    report = gate_report(work, state)
    work.run.write(layout.in_stage(stage, "gates.json"), report.model_dump(mode="json"))
    work.reporter.say("gates", words.gates(report.model_dump(mode="json")), stage=stage, revision=revision)
    return RunState()


def criticise(state: RunState, work: Work, role: RoleSpec) -> RunState:
    """Safety critic, and what gates, critic and the conditions of the last round come to."""
    stage, revision = state["stage"], state["revision"]
    inputs = role_inputs(work, state, role)
    seen, report = read_evidence(work, state["stage"]), inputs["gate_report"]
    answer = speak(
        work,
        state,
        role,
        layout.in_round(stage, revision, "critique.json"),
        inputs,
        config=work.config(state["config"]),
        evidence=seen,
        rule=partial(teacher.critique, seen, inputs["proposal"], report),
    )
    critique = parsed(answer, Critique)
    work.run.write(layout.in_stage(stage, "critique.json"), answer["parsed"])
    review, why = reviewed(report.passed, critique, revision, work.settings.max_revisions)
    if review == "reject" and not report.passed:
        why = f"{why}; {words.gates(report.model_dump(mode='json'))}"
    work.reporter.event("reviewed", stage=stage, revision=revision, review=review, why=why)
    return RunState(review=review, why=why, revision=revision + (review == "revise"))


def reviewed(gates_passed: bool, critique: Critique, revision: int, max_revisions: int) -> tuple[Review, str]:
    """What becomes of a proposal. A failed gate is never overruled; the revisions are counted here and nowhere else."""
    if critique.verdict == "reject":
        return "reject", f"the critic rejected the proposal: {critique.reason}"
    if gates_passed and critique.verdict == "approve":
        return "approve", critique.reason
    if gates_passed and not critique.conditions:
        return "approve", f"the critic asks for a revision but for nothing that code could check: {critique.reason}"
    if revision < max_revisions:
        return "revise", "a gate failed" if not gates_passed else f"the critic asks: {critique.reason}"
    return "reject", f"no proposal passed within {max_revisions} revisions"


def budget(state: RunState, work: Work, role: RoleSpec) -> RunState:
    """Trainer: length and learning rate of the stage, inside the profile's bounds. A pinned budget asks nobody."""
    stage = state["stage"]
    if work.settings.budget == "profile":
        return RunState()
    seen = read_evidence(work, state["stage"])
    inputs = role_inputs(work, state, role)
    bounds = inputs["bounds"]
    answer = speak(
        work,
        state,
        role,
        layout.in_stage(stage, f"answers/{role.name}.json"),
        inputs,
        config=work.config(state["config"]),
        evidence=seen,
        rule=partial(teacher.budget, seen, bounds["steps_low"], bounds["steps_high"]),
        bounds=bounds,
    )
    work.run.write(
        layout.in_stage(stage, "budget.json"), Budget.model_validate(answer["parsed"]).model_dump(mode="json")
    )
    return RunState()


def role_inputs(work: Work, state: RunState, role: RoleSpec) -> dict[str, Any]:
    """What a role may read at its place, and nothing of a later one: a node that runs again must see the same.

    Designer and analyst look back at the previous round's gates and critique, critic and trainer at this round's gates.
    """
    stage, revision = state["stage"], state["revision"]
    looks_back = role.writes in ("diagnosis", "proposal")
    critique = read_critique(work, stage, revision - 1)
    return {
        "evidence": read_evidence(work, stage),
        "knobs": work.environment.knobs(work.config(state["config"])),
        "bounds": {"steps_low": work.profile.bounds.min_steps, "steps_high": work.profile.bounds.max_steps},
        "diagnosis": None if role.writes == "diagnosis" else read_diagnosis(work, stage),
        "proposal": None if looks_back else reviewed_proposal(work, state),
        "gate_report": read_gates(work, stage, revision - 1 if looks_back else revision),
        "critique": critique,
        "conditions": list(critique.conditions) if critique else [],
    }


def reviewed_proposal(work: Work, state: RunState) -> Proposal:
    """This round's proposal; one without changes if there is none or it was rejected."""
    answer = work.run.read_if_there(layout.in_round(state["stage"], state["revision"], "proposal.json"))
    if state["review"] == "reject" or answer is None or answer["parsed"] is None:
        return Proposal(
            rationale="no proposal; the last accepted configuration is used again", changes=[], predicted={}
        )
    return Proposal.model_validate(answer["parsed"])


def read_evidence(work: Work, stage: int) -> Evidence:
    return Evidence.model_validate(work.run.read(layout.in_stage(stage, "evidence.json")))


def read_diagnosis(work: Work, stage: int) -> Diagnosis | None:
    found = work.run.read_if_there(layout.in_stage(stage, "diagnosis.json"))
    return None if found is None else Diagnosis.model_validate(found)


def read_gates(work: Work, stage: int, revision: int) -> GateReport | None:
    found = work.run.read_if_there(layout.in_round(stage, revision, "gates.json"))
    return None if found is None else GateReport.model_validate(found)


def read_critique(work: Work, stage: int, revision: int) -> Critique | None:
    found = work.run.read_if_there(layout.in_round(stage, revision, "critique.json"))
    return None if found is None else Critique.model_validate(found["parsed"])
