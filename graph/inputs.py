"""What a role reads at its place in a stage: files of the run, and nothing of a later place."""

from __future__ import annotations

from typing import Any

from agents.places import part_of
from agents.rolespec import RoleSpec
from agents.schemas import Critique, Diagnosis, Evidence, GateReport, Proposal
from graph import layout
from graph.state import RunState
from graph.work import Work


def role_inputs(work: Work, state: RunState, role: RoleSpec) -> dict[str, Any]:
    """What a role may read at its place, and nothing of a later one: a node that runs again must see the same.

    Up to the gates a role looks back at the previous round's gates and critique, the critic at this round's gates, and
    whoever comes after the critic at this round's critique too.
    """
    stage, revision = state["stage"], state["revision"]
    part = part_of(work.roles, role.name)
    looks_back = part in ("design", "proposed")
    critique = read_critique(work, stage, revision - (part != "decided"))
    # Designers that are no model are given a diagnosis whatever the designer's role file reads.
    diagnosed = "diagnosis" in role.inputs or role.writes == "proposal"
    return {
        "evidence": read_evidence(work, stage),
        "knobs": work.environment.knobs(work.config(state["config"])),
        "bounds": {"steps_low": work.profile.bounds.min_steps, "steps_high": work.profile.bounds.max_steps},
        "diagnosis": read_diagnosis(work, stage) if diagnosed else None,
        "proposal": None if part == "design" else reviewed_proposal(work, state),
        "gate_report": read_gates(work, stage, revision - 1 if looks_back else revision),
        "critique": critique,
        "conditions": list(critique.conditions) if critique else [],
        **{key: read_note(work, state, writer) for key in role.inputs if (writer := note_writer(work, key))},
    }


def written_by(work: Work, key: str) -> RoleSpec | None:
    """The role of this run that writes a key."""
    return next((role for role in work.roles.values() if role.writes == key), None)


def note_writer(work: Work, key: str) -> RoleSpec | None:
    """The role of this run that writes a key as a note."""
    role = written_by(work, key)
    return role if role is not None and role.writes_note else None


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


def note_file(work: Work, state: RunState, writer: RoleSpec) -> str:
    """Where the note of this stage lies, or of this round if its role comes after the designer."""
    if part_of(work.roles, writer.name) == "design":
        return layout.in_stage(state["stage"], f"notes/{writer.writes}.json")
    return layout.in_round(state["stage"], state["revision"], f"notes/{writer.writes}.json")


def read_note(work: Work, state: RunState, writer: RoleSpec) -> dict[str, Any] | None:
    """What the role wrote; None if it failed and was skipped."""
    found = work.run.read_if_there(note_file(work, state, writer))
    return None if found is None else found["parsed"]
