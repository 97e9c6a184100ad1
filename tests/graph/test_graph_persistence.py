"""Where the state of a run lies: small, plain JSON, of one version, in SQLite or on a real Postgres; files decide."""

from __future__ import annotations

import asyncio
import io
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from loops import environment, finish, kill, outcome, set_back, start, wait_for, workers
from postgres import postgres
from pydantic import BaseModel
from rich.console import Console

from agents.roles import load_roles
from graph import build, checkpoints, drive, layout, run, session
from graph.branches import beyond, course_of, leave_branch, left_at, set_aside
from graph.checkpoints import DatabaseUnreachable, check_url, check_version, strict, thread_id
from graph.exits import Exit
from graph.prepare import prepare
from graph.rundir import RunDir
from graph.settings import RunSettings, SettingsError
from graph.state import STATE_VERSION, RunState
from graph.timing import Clock
from graph.work import Work

BUDGET = 64 * 1024
"""Bytes that one checkpoint may take, and all that is written beside it."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


def new_work(root: Path, profile: Path, **changes: Any) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile), stages=0, **changes))
    root.mkdir(exist_ok=True)
    return session.new_work(prepared, RunDir(root), Console(file=io.StringIO()), Clock())


def asks(_: RunState) -> RunState:
    word = interrupt({"stage": 1, "revision": 0, "proposal": {}})
    return RunState(schema_version=STATE_VERSION, stage=1, review="approve" if word else "reject")


def one_question(*_: Any) -> StateGraph[RunState]:
    """In place of the whole loop: a node that waits for a person."""
    graph: StateGraph[RunState] = StateGraph(RunState)
    graph.add_node("asks", asks)
    graph.add_edge(START, "asks")
    graph.add_edge("asks", END)
    return graph


def driven(work: Work, word: bool | None = None) -> RunState:
    return asyncio.run(drive.drive(work, word, lambda: None))


def test_a_run_waits_and_goes_on_in_postgres(
    server: str, tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs share the server, and neither takes the other's question for its own."""
    monkeypatch.setattr(drive, "build", one_question)
    one, other = (new_work(tmp_path / name, profile, checkpoints=server) for name in ("one", "other"))
    with pytest.raises(SettingsError, match=r"no proposal of .* waits"):
        driven(one, word=True)
    for work in (one, other):
        with pytest.raises(drive.Waiting):
            driven(work)
    assert driven(one, word=True)["review"] == "approve"
    with pytest.raises(drive.Waiting):
        driven(other)
    assert driven(other, word=False)["review"] == "reject"
    assert not list(tmp_path.glob("*/graph.sqlite*"))
    assert thread_id(one.run, server) != thread_id(other.run, server)
    assert largest_in_postgres(server) < BUDGET


def largest_in_postgres(url: str) -> int:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(url) as connection:
        sizes = [
            connection.execute(f"select max(length({column})) from {table}").fetchone()
            for table, column in (
                ("checkpoints", "checkpoint::text"),
                ("checkpoint_blobs", "blob"),
                ("checkpoint_writes", "blob"),
            )
        ]
    return max(int(row[0]) for row in sizes if row is not None)


@pytest.mark.loop
def test_a_whole_run_keeps_its_state_in_postgres(server: str, straight: tuple[Path, Path], tmp_path: Path) -> None:
    """The server comes back, the run comes to the same, and another server's address is no other configuration."""
    _, undisturbed = straight
    root = tmp_path / "run"
    fork = ("--fork-from", undisturbed, "--at-stage", 1)
    given = start(tmp_path, *fork, "--run-dir", root, "--checkpoints", server)
    wait_for(root, given, lambda event: event.get("node") == "safety_critic")
    kill(given)
    nobody = "postgresql://envwright@127.0.0.1:1/postgres"
    said = finish(start(tmp_path, "--run-dir", root, "--resume", "--checkpoints", nobody), Exit.FAILED)
    assert "resume the run once that is put right" in said
    assert "Traceback" not in said
    finish(start(tmp_path, "--run-dir", root, "--resume"))
    assert outcome(root) == outcome(undisturbed)
    assert not list(root.glob("graph.sqlite*"))


def test_a_server_that_does_not_answer_is_told(tmp_path: Path, profile: Path) -> None:
    work = new_work(tmp_path / "run", profile, checkpoints="postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1/none: .*refused"):
        driven(work)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:///x", "expected a URL such as 'postgresql://"),
        ("postgresql://me:secret@host/db", "holds a password"),
        ("postgresql://host/db?password=secret", "holds a password"),
        ("postgresql://[", "is no URL"),
    ],
)
def test_a_url_is_checked_before_anything_is_written(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str], url: str, words: str
) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump({"environment": "parity:Parity", "profile": str(profile)}))
    root = tmp_path / "run"
    assert run.main(["--config", str(config), "--run-dir", str(root), "--checkpoints", url]) == Exit.BAD_INPUT
    error = capsys.readouterr().err
    assert words in error
    assert "secret" not in error
    assert not root.exists()


def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langgraph.checkpoint.postgres.aio", None)
    with pytest.raises(ValueError, match=r"pip install 'envwright\[postgres\]'"):
        check_url("postgresql://localhost/db")


@pytest.mark.loop
def test_every_checkpoint_keeps_to_the_budget(straight: tuple[Path, Path]) -> None:
    _, root = straight
    with sqlite3.connect(root / layout.DATABASE) as database:
        kept = database.execute("select length(checkpoint) + length(metadata) from checkpoints").fetchall()
        beside = database.execute("select checkpoint_id, sum(length(value)) from writes group by 1").fetchall()
    assert len(kept) > 10
    assert max(size for (size,) in kept) < BUDGET
    assert max(size for _, size in beside) < BUDGET


def stored(value: Any) -> Any:
    return strict().loads_typed(strict().dumps_typed(value))


class Secret(BaseModel):
    word: str


def test_nothing_but_plain_json_comes_back_as_what_it_was() -> None:
    """Strict msgpack: a class of ours that slips into the state is not built again from bytes on disk."""
    plain = RunState(stage=3, why="so", reused=0, current={"stage": 1, "path": "p", "sha256": "0", "anchor": 0.5})
    assert stored(plain) == plain
    assert not isinstance(stored({"x": Secret(word="w")})["x"], Secret)


@pytest.mark.parametrize("value", [np.float32(1), np.int64(1), np.bool_(True), float("nan"), {1, 2}, Secret(word="w")])
def test_a_node_that_returns_anything_else_is_stopped_at_once(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        build.plain(RunState(why=value))


@pytest.mark.parametrize("version", [0, STATE_VERSION + 1, "1"])
def test_a_state_of_another_version_is_refused(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch, version: Any
) -> None:
    monkeypatch.setattr(drive, "build", one_question)
    work = new_work(tmp_path / "run", profile)
    with pytest.raises(drive.Waiting):
        driven(work)
    driven(work, word=True)
    with pytest.raises(SettingsError, match=r"has version .*, expected 1; go on with the version"):
        check_version({"schema_version": version}, "graph.sqlite")
    before = work.run.path(layout.DATABASE).read_bytes()
    monkeypatch.setattr(checkpoints, "STATE_VERSION", STATE_VERSION + 7)
    with pytest.raises(SettingsError, match=r"graph\.sqlite has version 1, expected 8"):
        driven(work)
    assert work.run.path(layout.DATABASE).read_bytes() == before


@pytest.mark.loop
def test_a_run_killed_while_training_goes_on_from_its_files_alone(straight: tuple[Path, Path], tmp_path: Path) -> None:
    _, undisturbed = straight
    root = tmp_path / "run"
    set_back(undisturbed, root, "evidence", 1)
    process = start(tmp_path, "--resume", "--run-dir", root)
    wait_for(root, process, lambda event: event.get("node") == "train" and event["stage"] == 1)
    kill(process)
    for path in root.glob("graph.sqlite*"):
        path.unlink()
    first = (root / "stages/000/result.json").stat().st_mtime_ns
    finish(start(tmp_path, "--run-dir", root, "--resume"))
    assert outcome(root) == outcome(undisturbed)
    assert (root / "stages/000/result.json").stat().st_mtime_ns == first
    assert workers(root) == []


COURSE = ["evidence", "gates", "approval", "settle", "train", "accept_or_roll_back"]


def taking_turns() -> Any:
    graph: Any = StateGraph(RunState)
    for name in COURSE:
        graph.add_node(name, lambda _: RunState(stage=1, revision=0))
    for source, target in zip([START, *COURSE], [*COURSE, END], strict=True):
        graph.add_edge(source, target)
    return graph.compile(checkpointer=InMemorySaver())


@settings(deadline=None, max_examples=30)
@given(back=st.lists(st.integers(0, len(COURSE) - 1), min_size=1, max_size=4), written=st.booleans())
def test_going_back_is_seen_once_and_where_it_parted(back: list[int], written: bool) -> None:
    """However often a thread goes back, by running an old checkpoint or by writing beside it."""

    async def go() -> None:
        graph, thread = taking_turns(), {"configurable": {"thread_id": "1"}}
        await graph.ainvoke(RunState(stage=1, revision=0), thread)
        for place in back:
            history = [one async for one in graph.aget_state_history(thread)]
            point = next(one for one in history if one.next == (COURSE[place],))
            here = point
            if written:
                here = await graph.aget_state(await graph.aupdate_state(point.config, {"why": "again"}))
            left = await left_at(graph, here)
            assert left is not None
            assert left.at["configurable"]["checkpoint_id"] == point.config["configurable"]["checkpoint_id"]
            assert not left.lost
            await graph.ainvoke(None, here.config)
            assert await left_at(graph, await graph.aget_state(thread)) is None

    asyncio.run(go())


def test_a_step_of_a_course_that_was_left_is_refused() -> None:
    """Its files lie aside, and in their places lie those of the course that was taken instead."""

    async def go() -> None:
        graph, thread = taking_turns(), {"configurable": {"thread_id": "1"}}
        await graph.ainvoke(RunState(stage=1, revision=0), thread)
        history = [one async for one in graph.aget_state_history(thread)]
        early, late = (next(one for one in history if one.next == (COURSE[place],)) for place in (1, 2))
        await graph.ainvoke(None, early.config)
        left = await left_at(graph, late)
        assert left is not None
        assert left.at["configurable"]["checkpoint_id"] == early.config["configurable"]["checkpoint_id"]
        assert left.lost
        with pytest.raises(SettingsError, match="of a course that the thread has left"):
            await leave_branch(None, graph, late)  # type: ignore[arg-type]  # refused before anything is touched

    asyncio.run(go())


OF_ROUND_0 = {"by": "self", "parsed": {"rationale": "the first"}}
FILES = (
    "initial_config.json", "result.json", "report/index.html", "stages/000/decision.json", "stages/000/result.json",
    "stages/001/proposals/0/approval.json", "stages/001/proposals/0/gates.json", "stages/001/proposal.json",
    "stages/001/proposals/1/proposal.json", "stages/001/config.json", "stages/001/plan.json", "stages/001/budget.json",
    "stages/001/dataset.json", "stages/001/dataset.jsonl", "stages/001/decision.json",
    "stages/001/result.json", "stages/001/attempt-1/spec.json", "stages/001/eval/anchor.eval.json",
    "stages/002/config.json",
)  # fmt: skip
LATER = {"result.json", "report", "stages/002", "stages/001/decision.json"}
TRAINED = {f"stages/001/{name}" for name in ("eval", "result.json", "attempt-1")}
DRAWN = {f"stages/001/{name}" for name in ("dataset.json", "dataset.jsonl")}
SETTLED = {f"stages/001/{name}" for name in ("config.json", "plan.json")}
ROUNDS = {f"stages/001/{name}" for name in ("proposals/0/approval.json", "proposals/1", "proposal.json")}


@pytest.mark.parametrize(
    ("node", "gone"),
    [
        ("report", {"result.json", "report"}),
        ("evaluate", LATER),
        ("train", LATER | TRAINED),
        ("dataset", LATER | TRAINED | DRAWN),
        ("bursar", LATER | TRAINED | DRAWN | {"stages/001/budget.json"}),
        ("settle", LATER | TRAINED | DRAWN | SETTLED | {"stages/001/budget.json"}),
        ("approval", LATER | TRAINED | DRAWN | SETTLED | ROUNDS | {"stages/001/budget.json"}),
    ],
)
def test_what_lies_beyond_is_set_aside_and_nothing_is_lost(tmp_path: Path, node: str, gone: set[str]) -> None:
    """Whatever the run calls its roles: here another one fixes the stage's length."""
    roles = load_roles()
    course = course_of({("bursar" if name == "trainer" else name): role for name, role in roles.items()})
    found = RunDir(tmp_path)
    found.write("stages/001/proposals/0/proposal.json", OF_ROUND_0)
    for name in FILES:
        found.path(name).parent.mkdir(parents=True, exist_ok=True)
        found.path(name).write_text(json.dumps(name))
    assert set(beyond(found, course, 1, 0, node)) == gone
    moved = set_aside(found, course, 1, 0, node)
    assert {name.removeprefix("branches/1/") for name in moved} == gone
    for name in FILES:
        aside = f"branches/1/{name}"
        assert found.read(aside if found.exists(aside) else name) == name
    assert found.read("stages/001/proposal.json") == (
        OF_ROUND_0["parsed"] if "stages/001/proposal.json" in gone else "stages/001/proposal.json"
    ), "of the last round that is left"
    assert all(name.startswith("branches/2/") for name in set_aside(found, course, 1, 0, "train"))


@pytest.mark.parametrize("module", ["graph.studio", "graph.run", "graph.checkpoints"])
def test_the_extras_stay_optional(module: str) -> None:
    """Neither the server under the Elastic licence nor a Postgres driver is imported by what everybody imports."""
    code = f"import sys, {module}; print([n for n in sys.modules if n.split('.')[0] in {{'langgraph_api', 'psycopg'}}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == "[]"
