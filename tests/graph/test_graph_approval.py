"""A person's word: yes, no, or another proposal, which passes the gates as any other; never a way around one."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from loops import LOOSE, PATIENCE, environment
from parity import ParityConfig
from pydantic import ValidationError
from rich.console import Console

from agents.rolespec import Approval
from agents.schemas import Critique, GateFinding, GateReport
from graph import approval, asking, build, drive, run
from graph.approval import Word, read_proposal, read_word
from graph.exits import Exit
from graph.prepare import prepare
from graph.review import reviewed
from graph.rundir import RunDir, dump
from graph.session import new_work
from graph.settings import RunSettings, SettingsError
from graph.state import RunState
from graph.timing import Clock
from graph.work import Work
from trainer.forking import fork

MINE = {"changes": [{"path": "short.data_ratio", "op": "up", "value": None}], "rationale": "mine", "predicted": {}}
CONFIG = ParityConfig().model_dump(mode="json")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (True, True),
        (False, False),
        ("yes", True),
        ("Approve", True),
        ("no", False),
        (" reject ", False),
        ("True", True),
        ("false", False),
    ],
)
def test_yes_and_no_in_words(said: Any, meant: bool) -> None:
    assert Word.model_validate(said).root is meant


@pytest.mark.parametrize("extra", [{}, {"schema_version": 1}])
def test_a_proposal_in_words(extra: dict[str, Any]) -> None:
    given = {"changes": MINE["changes"], **extra}
    for said in (given, {"by": "self", "parsed": given}):
        word = Word.model_validate(said).root
        assert isinstance(word, approval.Edited)
        assert word.rationale == "edited by a person"


@pytest.mark.parametrize(
    "said", ["maybe", 7, 1, 0, None, {}, {"changes": [{"op": "up"}]}, {"changes": [], "verdict": "yes"}]
)
def test_anything_else_is_no_word(said: Any) -> None:
    with pytest.raises(ValidationError):
        Word.model_validate(said)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("[]", "holds list, expected a proposal"),
        ("{", "expected yes, no or a file"),
        ('{"changes": [{"op": "up"}]}', "changes.0.path: Field required"),
        ('{"changes": [], "why": 1}', "why: Extra inputs are not permitted"),
    ],
)
def test_a_file_without_a_proposal_is_told_in_one_line(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=words) as told:
        read_word(str(file))
    assert str(file) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_proposal_comes_back_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(dump(MINE))
    assert read_proposal(tmp_path / "mine.json") == MINE
    assert [read_word("yes"), read_word("NO")] == [True, False]


@pytest.fixture
def work(tmp_path: Path, profile: Path) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile), approval="always"))
    return new_work(prepared, RunDir(tmp_path), Console(file=io.StringIO()), Clock())


def gate_report(passed: bool) -> dict[str, Any]:
    finding = GateFinding(gate="G1", passed=passed, figure=None, threshold=None, reason="because")
    return GateReport(passed=passed, findings=[finding], probe={}, probe_tokens=0).model_dump(mode="json")


def proposed(work: Work, revision: int, *, by: str = "self", passed: bool = True, fallback: bool = False) -> RunState:
    """A round as designer, gates and critic leave it."""
    place = f"stages/001/proposals/{revision}"
    work.run.write("initial_config.json", CONFIG)
    work.run.write(f"{place}/config.json", CONFIG)
    work.run.write(f"{place}/gates.json", gate_report(passed))
    if not work.run.exists(f"{place}/proposal.json"):
        work.run.write(f"{place}/proposal.json", {"by": by, "parsed": MINE})
    if by != approval.PERSON:
        parsed = {"reason": "so", "verdict": "approve", "conditions": []}
        work.run.write(f"{place}/critique.json", {"parsed": parsed, "fallback": fallback})
    return RunState(stage=1, revision=revision, review="approve" if passed else "reject", config="initial_config.json")


Asked = Callable[..., CompiledStateGraph[Any, Any, Any, Any]]


@pytest.fixture
def asked(work: Work, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """The graph from the gates to the configuration, with gates that pass what the test says."""
    verdicts: list[bool] = []

    def gates(state: RunState, work: Work) -> RunState:
        proposed(work, state["revision"], by=approval.PERSON, passed=verdicts.pop(0))
        return RunState()

    def graph(*passed: bool) -> CompiledStateGraph[Any, Any, Any, Any]:
        verdicts[:] = passed
        part: Any = StateGraph(RunState)
        part.add_node("approval", lambda state: approval.approval(state, work))
        part.add_node("gates", lambda state: gates(state, work))
        part.add_edge(START, "approval")
        part.add_conditional_edges("approval", build.after_approval, {"edited": "gates", "go on": END})
        part.add_conditional_edges(
            "gates", lambda state: build.after_gates(state, work), {"designed": END, "by a person": "approval"}
        )
        return part.compile(checkpointer=InMemorySaver())

    yield graph
    assert not verdicts, "a gate was not asked"


THREAD: Any = {"configurable": {"thread_id": "1"}}


def test_an_edited_proposal_passes_the_gates_and_is_asked_about_again_where_it_does_not(
    work: Work, asked: Asked
) -> None:
    graph = asked(False, True)
    [first] = graph.invoke(proposed(work, 0), THREAD)["__interrupt__"]
    assert first.value["proposal"] == MINE
    assert first.value["gates"] == "all 1 gates passed"
    [second] = graph.invoke(Command(resume={"changes": []}), THREAD)["__interrupt__"]
    assert (second.value["by"], second.value["revision"]) == ("person", 1)
    assert second.value["gates"] == "G1 failed: because"
    state = graph.invoke(Command(resume=MINE), THREAD)
    assert (state["review"], state["revision"], state["why"]) == ("approve", 2, "written by a person")
    assert work.run.read("stages/001/proposals/2/proposal.json")["parsed"]["rationale"] == "mine"
    assert work.run.read("stages/001/proposals/0/approval.json") == {"approved": False, "edited": True}


def test_no_word_lifts_a_gate_and_what_had_passed_may_be_given_again(work: Work, asked: Asked) -> None:
    graph = asked(False, True)
    graph.invoke(proposed(work, 0), THREAD)
    [failed] = graph.invoke(Command(resume={"changes": []}), THREAD)["__interrupt__"]
    assert failed.value["answer"].startswith("false, or a proposal")
    assert "stages/001/proposals/0/proposal.json had passed" in failed.value["answer"]
    [again] = graph.invoke(Command(resume="yes"), THREAD)["__interrupt__"]
    assert again.value["error"].startswith("G1 failed: because; answer with false, or")
    assert not work.run.exists("stages/001/proposals/1/approval.json"), "yes is no word on it, and no no either"
    state = graph.invoke(Command(resume=work.run.read("stages/001/proposals/0/proposal.json")), THREAD)
    assert (state["review"], state["why"]) == ("approve", "written by a person")


def test_the_command_line_does_not_approve_what_failed_a_gate(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def course(*_: Any) -> Any:
        part: Any = StateGraph(RunState)
        part.add_node("gates", lambda _: proposed(work, 1, by=approval.PERSON, passed=False))
        part.add_node("approval", lambda state: approval.approval(state, work))
        part.add_edge(START, "gates")
        part.add_edge("gates", "approval")
        part.add_edge("approval", END)
        return part

    monkeypatch.setattr(drive, "build", course)
    begun: list[None] = []
    with pytest.raises(drive.Waiting) as waiting:
        asyncio.run(drive.drive(work, None, lambda: None))
    with pytest.raises(SettingsError, match="--approve: G1 failed: because, which no word lifts"):
        asyncio.run(drive.drive(work, True, lambda: begun.append(None)))
    assert not begun
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\nno\n"))
    assert asking.ask_person(waiting.value.question, work.run) is False, "yes is not to be had"
    assert "[y]es" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("maybe", "the answer 'maybe' is none; expected true, false, or a proposal"),
        (42, "the answer 42 is none; expected"),
        ({"verdict": "fine"}, "is none: changes: Field required; "),
    ],
)
def test_a_word_that_is_none_leaves_the_question_open(work: Work, asked: Asked, said: Any, told: str) -> None:
    """It neither ends the run nor comes back: LangGraph keeps it, and every later try would meet it again."""
    graph = asked()
    graph.invoke(proposed(work, 0), THREAD)
    for _ in range(2):
        [question] = graph.invoke(Command(resume=said), THREAD)["__interrupt__"]
        assert told in question.value["error"]
    for tried in (None, Command(resume={})):
        [question] = graph.invoke(tried, THREAD)["__interrupt__"]
        assert told in question.value["error"]
    assert graph.get_state(THREAD).next == ("approval",)
    assert not work.run.exists("stages/001/proposals/0/approval.json")
    assert graph.invoke(Command(resume=True), THREAD)["review"] == "approve"


def test_the_question_names_changes_that_move_nothing(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shares of a whole raised alike stay as they were; nothing else would say so."""
    monkeypatch.setitem(MINE, "changes", [{"path": f"{cell}.data_ratio", "op": "up"} for cell in ("short", "long")])
    state = proposed(work, 0)
    assert approval.question(work, state)["no_effect"] == ["short.data_ratio up", "long.data_ratio up"]


@pytest.mark.parametrize(
    ("mode", "review", "fallback", "asks"),
    [
        ("never", "reject", True, False),
        ("always", "approve", False, True),
        ("on_doubt", "approve", False, False),
        ("on_doubt", "reject", False, True),
        ("on_doubt", "approve", True, True),
    ],
)
def test_who_is_asked_when(work: Work, mode: Any, review: Any, fallback: bool, asks: bool) -> None:
    work.settings = work.settings.model_copy(update={"approval": mode})
    state = RunState(**{**proposed(work, 0, fallback=fallback), "review": review})
    assert approval.asks_person(work, state) is asks


@pytest.mark.parametrize(("review", "fallback"), [("approve", False), ("reject", False), ("approve", True)])
@pytest.mark.parametrize("word", get_args(Approval))
def test_a_role_and_the_settings_ask_in_the_same_words(work: Work, word: Any, review: Any, fallback: bool) -> None:
    """Whether the word stands in the run's settings or in the file of a role makes no difference."""
    state = RunState(**{**proposed(work, 0, fallback=fallback), "review": review})
    work.settings = work.settings.model_copy(update={"approval": word})
    by_settings = approval.asks_person(work, state)
    work.settings = work.settings.model_copy(update={"approval": "never"})
    name, role = next(iter(work.roles.items()))
    work.roles = {**work.roles, name: role.model_copy(update={"approval": word})}
    assert approval.asks_person(work, state) is by_settings


def test_a_revision_asked_for_when_none_is_left_is_a_doubt(work: Work) -> None:
    critique = Critique.model_validate(
        {"reason": "more", "verdict": "revise", "conditions": [{"path": "low.data_ratio", "op": "up"}]}
    )
    most = work.settings.max_revisions
    review, _ = reviewed(True, critique, most, most)
    work.settings = work.settings.model_copy(update={"approval": "on_doubt"})
    assert approval.asks_person(work, RunState(**{**proposed(work, 0), "review": review}))


def test_a_proposal_that_failed_a_gate_is_not_asked_about(work: Work) -> None:
    assert approval.approval(proposed(work, 0, passed=False), work) == {}


@pytest.mark.parametrize("approved", [True, False])
def test_a_damaged_approval_is_asked_for_again(work: Work, monkeypatch: pytest.MonkeyPatch, approved: bool) -> None:
    monkeypatch.setattr(approval, "interrupt", lambda *_, **__: approved)
    state = proposed(work, 0)
    work.run.path("stages/001/proposals/0/approval.json").write_text('{"appr')
    assert approval.approval(state, work)["review"] == ("approve" if approved else "reject")
    assert work.run.read("stages/001/proposals/0/approval.json") == {"approved": approved}


EDITORS = {
    "keeps": ("true", MINE),
    "changes": ("sed -i s/mine/yours/", {**MINE, "rationale": "yours"}),
    "spoils": ("sed -i s/changes/chances/", None),
    "fails": ("false", None),
    "is missing": ("no-such-editor", None),
}


@pytest.mark.parametrize("case", EDITORS)
def test_the_editor_is_the_persons_own(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    command, expected = EDITORS[case]
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", command)
    if expected is None:
        with pytest.raises(SettingsError):
            asking.edited(MINE)
    else:
        assert asking.edited(MINE) == expected


@pytest.mark.parametrize(
    ("said", "answer"), [("y", True), ("maybe\nno", False), ("later", None), ("", None), ("e\ny", True), ("edit", MINE)]
)
def test_a_person_at_a_terminal(
    work: Work, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str, answer: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(said + "\n" if said else ""))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "false" if said == "e\ny" else "true")
    asked_for = approval.question(work, proposed(work, 0))
    assert asking.ask_person(asked_for, work.run) == answer
    assert str(work.run.path("stages/001/proposals/0/proposal.json")) in capsys.readouterr().out


def test_a_word_that_is_no_file_is_refused_before_the_run(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump({"environment": "parity:Parity", "profile": str(profile)}))
    root = tmp_path / "run"
    code = run.main(["--config", str(config), "--run-dir", str(root), "--resume", "--approve", "sure"])
    assert code == Exit.BAD_INPUT
    assert "sure: expected yes, no or a file with a proposal" in capsys.readouterr().err
    assert not root.exists()


def test_a_run_killed_right_after_the_word_does_not_ask_again(
    work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word is in its file and in no checkpoint yet: it holds, and a second one says something else in vain."""

    def course(*_: Any) -> Any:
        part: Any = StateGraph(RunState)
        part.add_node("gates", lambda _: proposed(work, 0))
        part.add_node("approval", lambda state: approval.approval(state, work))
        part.add_edge(START, "gates")
        part.add_edge("gates", "approval")
        part.add_edge("approval", END)
        return part

    def driven(word: bool | None = None) -> RunState:
        return asyncio.run(drive.drive(work, word, lambda: None))

    def killed() -> int:
        def strikes(kind: str, **_: Any) -> None:
            if kind == "answered":
                os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(work.reporter, "event", strikes)
        driven(word=True)
        return 0

    monkeypatch.setattr(drive, "build", course)
    for _ in range(2):
        with pytest.raises(drive.Waiting):
            driven()
    ends = [event["how"] for event in work.run.events() if event["event"] == "ended"]
    assert ends == ["waiting", "waiting"], "also where nothing ran that could note it"
    process, deadline = fork(killed, tmp_path / "log"), time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() == -signal.SIGKILL, (tmp_path / "log").read_text()
    with pytest.raises(SettingsError, match=r"no proposal of .* waits"):
        driven(word=False)
    assert driven()["why"] == "approved by a person"


@pytest.mark.loop
def test_a_run_on_a_terminal_asks_there(straight: tuple[Path, Path], tmp_path: Path) -> None:
    """Through a real pseudo-terminal: the run trains on what came out of the editor, and does not end with code 3."""
    _, parent = straight
    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump({"designer": "fixed", "gates": LOOSE, "approval": "always"}))
    fork = ["--fork-from", str(parent), "--at-stage", "1", "--config", str(config)]
    editor = tmp_path / "editor"
    change = '[{"path": "short.noise_ratio", "op": "set", "value": 0.3}]'
    editor.write_text(f'#!/bin/sh\necho \'{{"changes": {change}, "rationale": "by hand"}}\' > "$1"\n')
    editor.chmod(0o755)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "graph.run", *fork, "--run-dir", str(tmp_path / "run")],
        cwd=tmp_path,
        env=environment(EDITOR=str(editor)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said = until_asked(ours, b"train on it?")
    os.write(ours, b"edit\n")
    said += until_asked(ours, None)
    assert process.wait(timeout=PATIENCE) == Exit.DONE, said.decode(errors="replace")
    plan = RunDir(tmp_path / "run").read("stages/001/plan.json")
    assert (plan["source"], plan["reason"], plan["revision"]) == ("person", "by hand", 1)


def until_asked(terminal: int, words: bytes | None) -> bytes:
    """All that comes until the words do, or until the other end is closed."""
    said, deadline = b"", time.monotonic() + 2 * PATIENCE
    while words is None or words not in said:
        assert time.monotonic() < deadline, said.decode(errors="replace")
        try:
            said += os.read(terminal, 4096)
        except OSError:
            break
    return said


def test_the_command_line_answers_with_a_file(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given beside --resume reaches the question as it is."""
    given: list[Any] = []

    async def drive(_: Work, word: Any, begin: Callable[[], None]) -> None:
        given.append(word)
        begin()

    monkeypatch.setattr("graph.session.drive", drive)
    monkeypatch.setattr("graph.session.close", lambda *_: None)
    from graph.session import run_to_end  # noqa: PLC0415

    assert run_to_end(work, work.run.root, resume=True, word=MINE) == Exit.DONE
    assert given == [MINE]
