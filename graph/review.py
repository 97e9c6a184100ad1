"""The nodes of a designed stage: evidence, the four roles, and the gates between them.

Without an analyst the rule diagnoses; without a trainer role the profile's budget holds.

A critic may add conditions and may reject; it can never lift a gate. Whatever is sent back more often than the run
allows leaves the stage on the last accepted configuration.
"""

from __future__ import annotations

from functools import partial

from agents import teacher
from agents.rolespec import RoleSpec
from agents.schemas import Budget, Critique
from graph import layout, words
from graph.evidence import evidence_of
from graph.gating import gate_report
from graph.inputs import read_evidence, role_inputs, written_by
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
    if written_by(work, "diagnosis") is None:
        ruled = teacher.diagnose(found).model_dump(mode="json")
        work.run.write(layout.in_stage(stage, "diagnosis.json"), ruled)
        work.reporter.say("rule for the failure analyst", words.answer(ruled), by="rule", tokens=0)
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
    if report.passed and not report.enforced:
        review, why = "approve", "gates are off: the critic is heard and stops nothing"
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
