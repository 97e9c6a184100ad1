"""A person's word on a proposal: yes, no, or another proposal in its place, which then passes the gates as any other.

A person can overrule the critic, and no gate: what failed one is asked about again, or not asked about at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph.types import interrupt
from pydantic import Field, RootModel, StrictBool, ValidationError, field_validator

from agents.changes import describe_changes, without_effect
from agents.schemas import MOST_CHANGES, Change, Cost, Frozen, GateReport, Proposal
from envsim.documents import DocumentError, read_yaml
from graph import layout, words
from graph.rundir import RunDir
from graph.settings import SettingsError
from graph.state import PERSON, RunState
from graph.work import Work

SAID = {"yes": True, "approve": True, "true": True, "no": False, "reject": False, "false": False}
IN_ITS_PLACE = "a proposal in its place: {'changes': [{'path', 'op', 'value'}], 'rationale', 'predicted'}"
HOW = f"true, false, or {IN_ITS_PLACE}"
HOW_FAILED = f"false, or {IN_ITS_PLACE}; no word lifts the gate that this one failed"


class Edited(Frozen):
    """A proposal that a person writes; only the changes must be said."""

    changes: list[Change] = Field(
        max_length=MOST_CHANGES, description="as in proposal.json: path, op and, to set, value"
    )
    rationale: str = Field("edited by a person", max_length=240)
    predicted: dict[str, int] = Field({}, description="success expected by cell after the stage, in percent")


class Word(RootModel[StrictBool | Edited]):
    """What may be answered: true, false (or yes, approve, no, reject), or a proposal."""

    @field_validator("root", mode="before")
    @classmethod
    def _said(cls, value: Any) -> Any:
        if isinstance(value, str):
            if value.strip().lower() not in SAID:
                raise ValueError(f"the answer is {value!r}, expected {HOW}")
            return SAID[value.strip().lower()]
        if isinstance(value, dict):
            # What a proposal.json or a recorded answer has beside these is not a person's to say.
            value = value.get("parsed", value)
            return {key: found for key, found in value.items() if key != "schema_version"}
        return value


def read_word(said: str) -> bool | dict[str, Any]:
    """The word of a command line: yes, no, or a file with the proposal edited. Raises SettingsError."""
    return SAID[said.lower()] if said.lower() in SAID else read_proposal(Path(said))


def read_proposal(file: Path) -> dict[str, Any]:
    """A person's proposal from a file such as ``proposal.json``, as plain data. Raises SettingsError."""
    try:
        data = read_yaml(file)
        if not isinstance(data, dict):
            raise SettingsError(f"{file} holds {type(data).__name__}, expected a proposal: a mapping with 'changes'")
        word = Word.model_validate(data).root
    except DocumentError as error:
        raise SettingsError(f"{file}: expected yes, no or a file with a proposal: {error}") from error
    except ValidationError as error:
        raise SettingsError(f"{file} holds no proposal: {faults(error)}") from error
    assert isinstance(word, Edited)
    return word.model_dump(mode="json")


def faults(error: ValidationError) -> str:
    """What keeps a mapping from being a proposal, in one line."""
    # Every fault is told twice, for it is no truth value either.
    found = [fault for fault in error.errors() if "bool" not in fault["loc"]]
    return "; ".join(f"{'.'.join(map(str, fault['loc'][1:])) or 'it'}: {fault['msg']}" for fault in found)


def approval(state: RunState, work: Work) -> RunState:
    """A person's word, if the run or a role asks for it. Kept in a file, so that it is asked for once."""
    stage, revision = state["stage"], state["revision"]
    own = by_person(work, state)
    passed = gates_passed(work, stage, revision)
    if own and passed:
        return RunState(review="approve", why="written by a person")
    if not own and not (passed and asks_person(work, state)):
        return RunState()
    file = layout.in_round(stage, revision, layout.APPROVAL)
    given = work.run.read_if_whole(file)
    if given is None:
        word = word_on(question(work, state))
        given = {"approved": word is True}
        if isinstance(word, Edited):
            write_proposal(work, stage, revision + 1, word)
            given["edited"] = True
        work.run.write(file, given)
        work.reporter.event("answered", stage=stage, revision=revision, **given)
    if given.get("edited"):
        return RunState(review="revise", why="edited by a person", revision=revision + 1)
    if given["approved"]:
        return RunState(review="approve", why="approved by a person")
    return RunState(review="reject", why="rejected by a person")


def word_on(asked: dict[str, Any]) -> bool | Edited:
    """A person's word on the question. What is none is kept by LangGraph with the question, so it is asked again, with
    what was wrong: an error would end the run and come back with every try to go on."""
    wrong = None
    while True:
        given = asked if wrong is None else {**asked, "error": wrong}
        said = interrupt(given, response_schema=Word.model_json_schema())
        try:
            word = Word.model_validate(said).root
        except ValidationError as error:
            told = f": {faults(error)}" if isinstance(said, dict) else ""
            wrong = f"the answer {words.clipped(repr(said))} is none{told}; expected {asked['answer']}"
            continue
        if word is not True or gates_let_through(asked):
            return word
        wrong = f"{asked['gates']}; answer with {asked['answer']}"


def answered(run: RunDir, asked: Mapping[str, Any]) -> bool:
    """Whether the word on what was asked is in its file: a run that was killed right after it does not ask again."""
    return run.read_if_whole(layout.in_round(asked["stage"], asked["revision"], layout.APPROVAL)) is not None


def gates_let_through(asked: Mapping[str, Any]) -> bool:
    """Whether yes may be said to what was asked."""
    return bool(asked.get("passed", True))


def asks_person(work: Work, state: RunState) -> bool:
    """Whether a person decides on a proposal that passed every gate."""
    wishes = {role.approval for role in work.roles.values()} | {work.settings.approval}
    # What passed every gate is rejected by the critic alone: at once, or by a wish that no revision is left for.
    doubted = state["review"] == "reject" or critic_was_silent(work, state)
    return "always" in wishes or ("on_doubt" in wishes and doubted)


def critic_was_silent(work: Work, state: RunState) -> bool:
    """Whether a rule spoke in the critic's place."""
    answer = work.run.read_if_there(layout.in_round(state["stage"], state["revision"], "critique.json"))
    return answer is not None and bool(answer["fallback"])


def by_person(work: Work, state: RunState) -> bool:
    """Whether this round's proposal was written by a person."""
    answer = work.run.read_if_there(layout.in_round(state["stage"], state["revision"], "proposal.json"))
    return answer is not None and answer["by"] == PERSON


def gates_passed(work: Work, stage: int, revision: int) -> bool:
    found = work.run.read_if_there(layout.in_round(stage, revision, "gates.json"))
    return found is not None and GateReport.model_validate(found).passed


def question(work: Work, state: RunState) -> dict[str, Any]:
    """What a person needs to decide, in a few hundred bytes; the files of the round say the rest."""
    stage, revision = state["stage"], state["revision"]
    answer = work.run.read(layout.in_round(stage, revision, "proposal.json"))
    critique = work.run.read_if_there(layout.in_round(stage, revision, "critique.json"))
    asked: dict[str, Any] = {
        "stage": stage,
        "revision": revision,
        "by": answer["by"],
        "proposal": answer["parsed"],
        "review": state["review"],
        "gates": words.gates(work.run.read(layout.in_round(stage, revision, "gates.json"))),
        "critic": None if critique is None else words.answer(critique["parsed"]),
        "file": layout.in_round(stage, revision, "proposal.json"),
        "passed": gates_passed(work, stage, revision),
    }
    asked["answer"] = HOW if asked["passed"] else HOW_FAILED + may_be_given_again(work, stage, revision)
    proposed = layout.in_round(stage, revision, "config.json")
    if work.run.exists(proposed):
        before, after = work.config(state["config"]), work.config(proposed)
        asked["changes"] = describe_changes(work.environment, before, after)
        idle = without_effect(work.environment, before, after, Proposal.model_validate(answer["parsed"]).changes)
        if idle:
            asked["no_effect"] = [words.change(one.model_dump()) for one in idle]
    return asked


def may_be_given_again(work: Work, stage: int, revision: int) -> str:
    """Where the stage's last proposal that passed the gates lies, before one that a person wrote and that did not."""
    for earlier in range(revision - 1, -1, -1):
        if gates_passed(work, stage, earlier):
            return f"; {layout.in_round(stage, earlier, 'proposal.json')} had passed, and may be given again"
    return ""


def write_proposal(work: Work, stage: int, revision: int, word: Edited) -> None:
    """A person's proposal in the shape of a role's answer, where gates and report look for one."""
    parsed = Proposal(rationale=word.rationale, changes=word.changes, predicted=word.predicted).model_dump(mode="json")
    answer = {
        "by": PERSON,
        "role": PERSON,
        "parsed": parsed,
        "raw": "",
        "attempts": [],
        "errors": [],
        "tokens": 0,
        "fallback": False,
        "cost": Cost().model_dump(mode="json"),
    }
    work.run.write(layout.in_round(stage, revision, "proposal.json"), answer)
    work.run.write(layout.in_stage(stage, "proposal.json"), parsed)
