"""A role beside the four: it writes a note, for roles that come after it to read.

A note of a role up to the designer holds for the stage and lies in ``stages/NNN/notes/``; one of a later role belongs
to the proposal of its round and lies beside it.
"""

from __future__ import annotations

from agents.rolespec import RoleSpec
from graph.inputs import note_file, read_evidence, role_inputs
from graph.speaking import speak
from graph.state import RunState
from graph.work import Work


def note(state: RunState, work: Work, role: RoleSpec) -> RunState:
    """The note of a role. One that fails under ``skip`` is null."""
    speak(
        work,
        state,
        role,
        note_file(work, state, role),
        role_inputs(work, state, role),
        config=work.config(state["config"]),
        evidence=read_evidence(work, state["stage"]),
        rule=None,
    )
    return RunState()
