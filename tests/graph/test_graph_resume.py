"""Resuming over damaged files: what can be made again is, the rest is one line, and no word is lost."""

from __future__ import annotations

import asyncio
import errno
import io
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from rich.console import Console

from envsim.documents import DocumentError
from graph import build, drive, layout, run, session, summary
from graph.checkpoints import DatabaseDamaged, move_aside, thread_id
from graph.exits import Exit
from graph.prepare import prepare
from graph.progress import Reporter
from graph.rundir import RunDir
from graph.settings import RunSettings, SettingsError
from graph.state import RunState
from graph.timing import Clock
from graph.work import Work, known_report
from trainer.spec import EvalReport


@pytest.fixture
def work(tmp_path: Path, profile: Path) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile), stages=0))
    root = tmp_path / "run"
    root.mkdir()
    return session.new_work(prepared, RunDir(root), Console(file=io.StringIO()), Clock())


def asks(_: RunState) -> RunState:
    return RunState(stage=1, review="approve" if interrupt({"stage": 1, "revision": 0, "proposal": {}}) else "reject")


def one_question(*_: Any) -> StateGraph[RunState]:
    """In place of the whole loop: a node that waits for a person."""
    graph: StateGraph[RunState] = StateGraph(RunState)
    graph.add_node("asks", asks)
    graph.add_edge(START, "asks")
    graph.add_edge("asks", END)
    return graph


def driven(work: Work, word: bool | None = None) -> RunState:
    return asyncio.run(drive.drive(work, word, lambda: None))


@pytest.fixture
def waiting(work: Work, monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(drive, "build", one_question)
    with pytest.raises(drive.Waiting):
        driven(work)
    return work


def endless(turns: list[int]) -> StateGraph[RunState]:
    """A designer that is sent back and counts nothing."""

    def node(_: RunState) -> RunState:
        turns.append(1)
        return RunState(review="revise")

    graph: StateGraph[RunState] = StateGraph(RunState)
    graph.add_node("config_designer", node)
    graph.add_edge(START, "config_designer")
    graph.add_edge("config_designer", "config_designer")
    return graph


def test_langgraph_itself_would_let_a_loop_turn_ten_thousand_times() -> None:
    turns: list[int] = []
    with pytest.raises(GraphRecursionError):
        endless(turns).compile().invoke(RunState())
    assert len(turns) == 10007


def test_a_loop_that_escapes_its_counter_ends(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    monkeypatch.setattr(drive, "build", lambda *_: endless(turns))
    with pytest.raises(GraphRecursionError):
        driven(work)
    assert len(turns) == build.recursion_limit(work.settings.stages, work.settings.max_revisions)


@pytest.mark.parametrize("link", [True, False])
def test_an_approval_outlives_another_name(waiting: Work, link: bool) -> None:
    root = waiting.run.root
    other = root.with_name("other")
    if link:
        other.symlink_to(root)
    else:
        root.rename(other)
    waiting.run.root = other
    assert driven(waiting, word=True)["review"] == "approve"


def test_the_thread_of_an_older_run_goes_on(waiting: Work) -> None:
    with sqlite3.connect(waiting.run.path(layout.DATABASE)) as connection:
        for table in ("checkpoints", "writes"):
            connection.execute(f"update {table} set thread_id = 'made-by-name'")
    assert thread_id(waiting.run) == "made-by-name"
    assert driven(waiting, word=False)["review"] == "reject"


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b"\x07garbage" * 1000)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def other_tables(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("create table checkpoints (x integer)")


DAMAGES = [halved, garbage, directory, other_tables]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_moved_aside(waiting: Work, damage: Callable[[Path], None]) -> None:
    database = waiting.run.path(layout.DATABASE)
    damage(database)
    with pytest.raises(SettingsError, match=r"continue .*--resume alone"):
        driven(waiting, word=True)
    with pytest.raises(drive.Waiting):
        driven(waiting)
    assert waiting.run.path("graph.sqlite.damaged-1").exists()
    said = [event["text"] for event in waiting.run.events() if event["event"] == "line"]
    assert len(said) == 1
    assert "goes on from its other files" in said[0]
    assert driven(waiting, word=True)["review"] == "approve"


def test_a_second_damaged_database_overwrites_nothing(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    for text in ("one", "two"):
        run_dir.path(layout.DATABASE).write_text(text)
        with pytest.raises(DatabaseDamaged):
            thread_id(run_dir)
        run_dir.path(f"{layout.DATABASE}-wal").write_text(f"{text} wal")
        move_aside(run_dir)
    assert thread_id(run_dir) == thread_id(RunDir(tmp_path / "x" / ".."))
    assert thread_id(run_dir) != thread_id(RunDir(tmp_path / "other")), "one a run"
    assert run_dir.path("graph.sqlite.damaged-1").read_text() == "one"
    assert run_dir.path("graph.sqlite.damaged-2-wal").read_text() == "two wal"


@pytest.mark.parametrize("content", [None, "", '{"sets"', "{}", "[]"])
def test_a_lost_result_is_made_again(work: Work, monkeypatch: pytest.MonkeyPatch, content: str | None) -> None:
    made = []

    def finishes(_: RunState) -> RunState:
        made.append(1)
        work.run.write(layout.RESULT, {"sets": {}})
        return RunState(stage=1)

    def loop(*_: Any) -> StateGraph[RunState]:
        graph: StateGraph[RunState] = StateGraph(RunState)
        graph.add_node("report", finishes)
        graph.add_edge(START, "report")
        graph.add_edge("report", END)
        return graph

    monkeypatch.setattr(drive, "build", loop)
    driven(work)
    driven(work)
    assert len(made) == 1
    result = work.run.path(layout.RESULT)
    if content is None:
        result.unlink()
    else:
        result.write_text(content)
    driven(work)
    assert len(made) == 2
    assert summary.final_result(work.run) == {"sets": {}}


def evaluated(folder: Path) -> None:
    report = EvalReport(
        set="anchor", model_sha256="0", temperature=0.0, samples=1, seed=0, n=2, macro_valid=0.0, macro_optimal=0.0,
        cells={}, outcomes={}, generated_tokens=1, seconds=0.0, rollouts="anchor.rollouts.jsonl",
    )  # fmt: skip
    (folder / "anchor.eval.json").write_text(report.model_dump_json())
    (folder / "anchor.rollouts.jsonl").write_text("header\nrow\nrow\n")


@pytest.mark.parametrize("name", ["anchor.eval.json", "anchor.rollouts.jsonl"])
@pytest.mark.parametrize("damage", [halved, Path.unlink])
def test_a_damaged_evaluation_is_owed_again(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    evaluated(tmp_path)
    assert known_report(tmp_path, "anchor") is not None
    damage(tmp_path / name)
    assert known_report(tmp_path, "anchor") is None
    assert known_report(tmp_path, "validation") is None


STAGE_FILES = ("config.json", "plan.json", "dataset.json", "budget.json", "result.json", "decision.json")


@pytest.mark.parametrize("name", STAGE_FILES)
@pytest.mark.parametrize("content", [None, '{"n":', "\x00"])
def test_a_stage_with_a_damaged_file_is_not_done(
    work: Work, monkeypatch: pytest.MonkeyPatch, name: str, content: str | None
) -> None:
    """The decision of a stage outlives the result that it was made on."""
    config = work.environment.default_config().model_dump(mode="json")
    result = {
        "spec_hash": "0", "stage": 0, "steps": 1, "model": {"path": "m", "sha256": "0"}, "weight_change": 1.0,
        "generated_tokens": 1, "reward_first": 0.0, "reward_last": 0.0, "zero_variance_share": 0.0, "seconds": {},
        "attempt": 1,
    }  # fmt: skip
    contents = {"config.json": config, "dataset.json": {"measurement": {}, "sha256": "0" * 64}, "result.json": result}
    for file in STAGE_FILES:
        work.run.write(layout.in_stage(0, file), contents.get(file, {}))
    assert summary.stage_summary(work.run, work.environment, 0) is not None
    path = work.run.path(layout.in_stage(0, name))
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert summary.stage_summary(work.run, work.environment, 0) is None


def test_damaged_lines_of_the_log_count_nothing() -> None:
    whole = {"event": "time", "session": "a", "seconds": {"training": 2.0}}
    damaged = [{"event": "time"}, {}, {**whole, "session": []}, {**whole, "seconds": {"training": "x"}}]
    assert summary.time_table([*damaged, whole, {"event": "time", "session": "a"}])["training"] == 2.0


@pytest.fixture
def settings(tmp_path: Path, profile: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump({"environment": "parity:Parity", "profile": str(profile), "stages": 0}))
    return path


@pytest.mark.parametrize("word", ["--approve", "--reject"])
@pytest.mark.parametrize("there", [True, False])
def test_a_word_on_no_run_writes_nothing(tmp_path: Path, settings: Path, word: str, there: bool) -> None:
    root = tmp_path / "run"
    if there:
        root.mkdir()
    assert run.main(["--config", str(settings), "--run-dir", str(root), "--resume", word]) == Exit.BAD_INPUT
    assert (list(root.iterdir()) if there else root.exists()) == ([] if there else False)


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "case",
    [
        (full(), "error: No space left on device; resume"),
        (OSError(errno.ENOSPC, "No space left on device", "/run/x.json"), "error: /run/x.json: No space left"),
        (sqlite3.OperationalError("database or disk is full"), "graph.sqlite: database or disk is full; resume"),
        (DocumentError("/run/plan.json is no valid JSON"), "error: /run/plan.json is no valid JSON; remove"),
    ],
)
@pytest.mark.parametrize("log_fails", [True, False])
def test_what_the_machine_refuses_is_one_line(
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[Exception, str],
    log_fails: bool,
) -> None:
    error, words = case

    async def fails(*_: Any) -> None:
        if log_fails:
            monkeypatch.setattr(RunDir, "append_event", refuses)
        raise error

    def refuses(*_: Any) -> None:
        raise full()

    monkeypatch.setattr(session, "drive", fails)
    root = settings.parent / "my run"
    assert run.main(["--config", str(settings), "--run-dir", str(root)]) == Exit.FAILED
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 1
    assert words in lines[0]


def test_a_command_to_copy_is_quoted(
    tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stops(_: Work, __: bool | None, begin: Callable[[], None]) -> None:
        begin()
        raise session.Stopped

    monkeypatch.setattr(session, "drive", stops)
    root = tmp_path / "my run"
    assert run.main(["--config", str(settings), "--run-dir", str(root)]) == Exit.DRAINED
    assert capsys.readouterr().out.count(f"--resume --run-dir '{root}'") == 2


def test_a_finished_run_says_which_stage_is_gone(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(Reporter, "line", lambda _, text, **__: said.append(text))
    monkeypatch.setattr(session.tables, "result_table", lambda _: "")
    session.close(work, work.run.root)
    assert said[0].startswith("files of stages/000 are missing or damaged")
