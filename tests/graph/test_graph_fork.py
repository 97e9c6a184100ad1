"""Forks: two continuations of one checkpoint in two directories, of which the first notices nothing but a line."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from langgraph.checkpoint.memory import InMemorySaver
from loops import finish, outcome, start
from rich.console import Console

from graph import run
from graph.branches import leave_branch
from graph.build import build
from graph.exits import Exit
from graph.fork import fork, forked_state, state_at, take_over
from graph.prepare import prepare
from graph.rundir import RunDir, stored_identity
from graph.session import new_work
from graph.settings import SettingsError, load_settings
from graph.timing import Clock
from trainer.files import hash_file

POINTER = {"stage": -1, "path": "/start", "sha256": "0", "anchor": 0.5}


def decided(root: RunDir, stage: int, accepted: bool) -> None:
    new = {"stage": stage, "path": f"stages/{stage:03d}/model", "sha256": str(stage), "anchor": 0.6}
    decision = {"accepted": accepted, "current": new if accepted else POINTER, "champion": POINTER}
    root.write(f"stages/{stage:03d}/decision.json", decision)
    root.write(f"stages/{stage:03d}/plan.json", {"source": "reused" if stage == 2 else "self", "revision": 0})


@pytest.fixture
def parent(tmp_path: Path) -> RunDir:
    """The files of a run of three finished stages, without what trained them."""
    found = RunDir(tmp_path / "parent")
    found.root.mkdir()
    for stage, accepted in enumerate((True, True, False)):
        decided(found, stage, accepted)
        for name in ("model/weights", "completions/1.parquet", "attempt-1/checkpoint-2/weights", "attempt-1/spec.json"):
            path = found.path(f"stages/{stage:03d}/{name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{stage} {name}")
        found.path(f"stages/{stage:03d}/worker.lock").touch()
    found.write("initial_config.json", {})
    found.write("start/eval/anchor.eval.json", {})
    found.write("result.json", {})
    return found


IDENTITY: dict[str, Any] = {
    "settings": {"stages": 5, "designer": "self"},
    "profile": {"name": "p"},
    "start_sha256": "0",
}


@pytest.fixture
def begun(parent: RunDir) -> RunDir:
    parent.path("run.yaml").write_text(json.dumps(IDENTITY))
    return parent


def test_the_state_before_a_stage_is_in_the_files(parent: RunDir) -> None:
    first, last = state_at(parent, 1), state_at(parent, 3)
    assert (first["current"]["stage"], first["config"], first["reused"]) == (0, "stages/000/config.json", 0)
    assert (last["current"]["stage"], last["config"], last["reused"]) == (-1, "stages/001/config.json", 1)
    assert (last["stage"], last["revision"], last["review"]) == (3, 0, "approve")


def test_checkpoints_are_linked_and_what_may_grow_is_copied(parent: RunDir, tmp_path: Path) -> None:
    target = tmp_path / "child"
    counted = take_over(parent, 2, target)
    assert (counted["linked_files"], counted["copied_files"]) == (4, 2 + 2 * 3)
    for stage in ("000", "001"):
        mine, theirs = target / f"stages/{stage}", parent.path(f"stages/{stage}")
        assert (mine / "model/weights").samefile(theirs / "model/weights")
        assert not (mine / "attempt-1/spec.json").samefile(theirs / "attempt-1/spec.json")
        assert not (mine / "attempt-1/checkpoint-2").exists()
        assert not (mine / "worker.lock").exists()
    assert not (target / "stages/002").exists()
    assert not (target / "result.json").exists()


def test_where_links_cannot_be_made_all_is_copied(
    parent: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError("across devices")

    monkeypatch.setattr(os, "link", refuses)
    counted = take_over(parent, 1, tmp_path / "child")
    assert counted["linked_files"] == 0
    assert (tmp_path / "child/stages/000/model/weights").read_text() == "0 model/weights"


def test_both_directories_say_so(begun: RunDir, tmp_path: Path) -> None:
    before = contents(begun.root)
    changed = {**IDENTITY, "settings": {"stages": 5, "designer": "random"}}
    fork(begun.root, 2, tmp_path / "child", changed)
    child = RunDir(tmp_path / "child")
    said, noted = child.read("fork.json"), json.loads(begun.path("forks.jsonl").read_text())
    assert (said["parent"], noted["child"]) == (str(begun.root), str(child.root))
    assert said["at_stage"] == noted["at_stage"] == 2
    assert said["differences"] == noted["differences"] == ["settings.designer (was self, now random)"]
    assert said["current"]["sha256"] == "1"
    assert stored_identity(child.root) == changed
    after = contents(begun.root)
    assert after.pop("forks.jsonl")
    assert after == before
    assert forked_state(child) == state_at(begun, 2)
    assert forked_state(begun) is None


def test_a_fork_of_a_fork_goes_by_its_own_files(begun: RunDir, tmp_path: Path) -> None:
    fork(begun.root, 2, tmp_path / "child", IDENTITY)
    decided(RunDir(tmp_path / "child"), 2, accepted=True)
    fork(tmp_path / "child", 3, tmp_path / "grandchild", IDENTITY)
    found = forked_state(RunDir(tmp_path / "grandchild"))
    assert found is not None
    assert (found["stage"], found["current"]["stage"]) == (3, 2)


def filled(target: Path) -> None:
    target.mkdir()
    (target / "file").touch()


@pytest.mark.parametrize(
    ("stage", "changes", "prepare", "words"),
    [
        (0, {}, None, r"--at-stage 0: .* expected 1\.\.3"),
        (4, {}, None, r"has 3 finished stages .* expected 1\.\.3"),
        (3, {"settings": {"stages": 2, "designer": "self"}}, None, r"expected 1\.\.2"),
        (1, {"start_sha256": "1"}, None, r"keeps its environment.*start_sha256 \(was 0, now 1\)"),
        (1, {"profile": {"name": "q"}}, None, r"profile.name \(was p, now q\)"),
        (1, {}, filled, "is not empty; a fork wants a new one"),
        (1, {}, Path.touch, "cannot be used: Not a directory"),
    ],
)
def test_what_cannot_be_forked_changes_nothing(  # noqa: PLR0917
    begun: RunDir,
    tmp_path: Path,
    stage: int,
    changes: dict[str, Any],
    prepare: Callable[[Path], None] | None,
    words: str,
) -> None:
    target = tmp_path / "child"
    if prepare is not None:
        prepare(target)
    before = contents(tmp_path)
    with pytest.raises(SettingsError, match=words):
        fork(begun.root, stage, target, {**IDENTITY, **changes})
    assert contents(tmp_path) == before


def test_what_was_taken_over_and_is_damaged_is_told(begun: RunDir, tmp_path: Path) -> None:
    fork(begun.root, 2, tmp_path / "child", IDENTITY)
    child = RunDir(tmp_path / "child")
    child.path("stages/000/decision.json").write_text('{"acc')
    with pytest.raises(SettingsError, match="what it took over is damaged"):
        forked_state(child)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--fork-from", "a"], "go together; give all three"),
        (["--at-stage", "1", "--run-dir", "b"], "go together; give all three"),
        (["--fork-from", "a", "--at-stage", "1", "--run-dir", "b", "--resume"], "begins a new run"),
        (["--fork-from", "nowhere", "--at-stage", "1", "--run-dir", "b"], "'nowhere' holds no run"),
    ],
)
def test_flags_that_make_no_fork(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.main(flags) == Exit.BAD_INPUT
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def contents(root: Path) -> dict[str, str]:
    """Every file by its hash."""
    return {str(path.relative_to(root)): hash_file(path) for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.loop
async def test_a_thread_of_a_fork_begins_where_it_parted_and_goes_back_no_further(
    straight: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever begins it, the command line or a new thread of Studio: what it took over is another designer's."""
    config, parent = straight
    monkeypatch.chdir(config.parent)
    prepared = prepare(load_settings(config, {"designer": "fixed"}))
    child = RunDir(tmp_path / "child")
    fork(parent, 1, child.root, prepared.identity)
    inherited = contents(child.path("stages/000"))
    work = new_work(prepared, child, Console(file=io.StringIO()), Clock())
    graph = build(work.roles, work).compile(checkpointer=InMemorySaver(), interrupt_before=["failure_analyst"])
    thread: Any = {"configurable": {"thread_id": "1"}}
    await graph.ainvoke({}, thread)
    state = await graph.aget_state(thread)
    assert (state.next, state.values["stage"]) == (("failure_analyst",), 1)
    assert state.values["current"] == RunDir(parent).read("stages/000/decision.json")["current"]
    nodes = [event["node"] for event in child.events() if event["event"] == "node"]
    assert nodes == ["baseline", "evidence"]
    # Taken back to its very beginning it leaves what it made itself, and nothing else.
    child.write("stages/001/decision.json", {})
    [beginning] = [one async for one in graph.aget_state_history(thread) if one.next == ("baseline",)]
    await leave_branch(work, graph, beginning)
    assert contents(child.path("stages/000")) == inherited
    assert not child.exists("stages/001/decision.json")
    assert child.read("branches/1/stages/001/decision.json") == {}


@pytest.mark.loop
def test_two_continuations_of_one_checkpoint(straight: tuple[Path, Path], tmp_path: Path) -> None:
    """The same settings come to the same weights; another designer parts from them, and from the same stage 000."""
    _, parent = straight
    before = contents(parent)
    same, other = tmp_path / "same", tmp_path / "other"
    given = ("--fork-from", parent, "--at-stage", 1, "--run-dir")
    finish(start(tmp_path, *given, same))
    assert outcome(same) == outcome(parent)
    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump({"designer": "json_garbage", "benchmark": True}))
    finish(start(tmp_path, *given, other, "--config", config))
    assert outcome(other)["000"] == outcome(parent)["000"]
    # Garbage never stops a run: the gates turn it away, and the last configuration is trained on again.
    found = RunDir(other)
    assert found.read("stages/001/plan.json")["source"] == "reused"
    assert [one["gate"] for one in found.read("stages/001/gates.json")["findings"] if not one["passed"]] == ["G1"]
    assert found.read("stages/001/config.json") == found.read("stages/000/config.json")
    assert found.read("result.json")["benchmark"][0]["cells"] == ["short", "long"]
    weights = [path for path in (other / "stages/000/model").iterdir() if path.suffix == ".safetensors"]
    assert weights
    assert all(path.samefile(parent / path.relative_to(other)) for path in weights)
    after = contents(parent)
    noted = [json.loads(line) for line in (parent / "forks.jsonl").read_text().splitlines()]
    assert [line["child"] for line in noted][-2:] == [str(same), str(other)]
    for found in (before, after):
        found.pop("forks.jsonl", None)
    assert after == before
    # Without its database or result a fork begins again where it parted, not at the start, which is another designer's.
    trained = {path: path.stat().st_mtime_ns for path in other.glob("stages/*/result.json")}
    for lost in ("graph.sqlite*", "result.json"):
        for path in other.glob(lost):
            path.unlink()
        finish(start(tmp_path, "--run-dir", other, "--resume"))
        assert (other / "result.json").exists()
        assert {path: path.stat().st_mtime_ns for path in other.glob("stages/*/result.json")} == trained
