"""The run directory: atomic files, made once from the same inputs, one lock, and refusals that write nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envsim.documents import DocumentError
from graph.rundir import RunDir, open_run
from graph.settings import SettingsError
from graph.timing import Clock, total

IDENTITY = {"settings": {"seed": 0, "stages": 3}}

HOLD = """
import sys, time
from pathlib import Path
from graph.rundir import open_run
with open_run(Path(sys.argv[1]), {"settings": {"seed": 0, "stages": 3}}, resume=False):
    print("held", flush=True)
    time.sleep(60)
"""


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_file_is_made_once_from_the_same_inputs(tmp_path: Path) -> None:
    run, made = RunDir(tmp_path), []
    for inputs in ({"a": 1}, {"a": 1}, {"a": 2}):
        run.once("stages/001/x.json", inputs, lambda: made.append(1) or {"n": len(made)})
    assert run.read("stages/001/x.json") == {"n": 2}
    assert len(made) == 2


def test_a_file_without_its_claim_is_made_again(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.write("x.json", {"n": 1})
    assert run.once("x.json", {}, lambda: {"n": 2}) == {"n": 2}


def test_a_torn_event_is_left_out(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.append_event({"event": "a"})
    with run.path("events.jsonl").open("a") as file:
        file.write('{"event": "b", "ti')
    assert [event["event"] for event in run.events()] == ["a"]


def test_an_event_after_a_torn_one_is_whole(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.append_event({"event": "a"})
    with run.path("events.jsonl").open("ab") as file:
        file.write('{"event": "b", "text": "→'.encode()[:-1])
    run.append_event({"event": "c"})
    assert [event["event"] for event in run.events()] == ["a", "c"]


@pytest.mark.parametrize("text", ["a\u2028b", "a\u0085b", "a\x0cb", "a\nb", "a\r\nb"])
def test_an_event_keeps_what_was_said(tmp_path: Path, text: str) -> None:
    run = RunDir(tmp_path)
    run.append_event({"event": "said", "text": text})
    assert [event["text"] for event in run.events()] == [text]


def test_nan_never_reaches_a_file(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    with pytest.raises(ValueError, match="Out of range"):
        run.write("x.json", {"n": float("nan")})
    assert not run.exists("x.json")


def test_a_second_process_is_refused_while_the_first_lives_and_welcome_after_its_kill(tmp_path: Path) -> None:
    root = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = snapshot(root)
        with pytest.raises(SettingsError, match=f"in use by another process .a run, process {holder.pid}"):
            open_run(root, IDENTITY, resume=True).__enter__()
        assert snapshot(root) == before
    finally:
        holder.kill()
        holder.wait()
    with open_run(root, IDENTITY, resume=True):
        assert json.loads((root / "lock").read_text())["pid"] != holder.pid


@pytest.mark.parametrize("resume", [True, False])
def test_a_foreign_directory_is_never_touched(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(SettingsError, match="holds no run"), open_run(tmp_path, IDENTITY, resume=resume):
        pass
    assert snapshot(tmp_path) == {"thesis.txt": b"precious"}


@pytest.mark.parametrize(
    "files",
    [
        {"lock": "precious", "data.txt": "x"},
        {"lock": "precious"},
        {"lock": '{"pid": 1, "host": "a", "name": "precious"}'},
        {"lock": '{"pid": 1, "host": "a"}', "data.txt": "x"},
        {"lock": "", "data.txt": "x"},
        {".run.yaml.7.tmp": "x"},
        {"run.yaml": "theirs: 1", "lock": "precious"},
    ],
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_foreign_lock_is_never_touched(tmp_path: Path, files: dict[str, str], resume: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    before = snapshot(tmp_path)
    with pytest.raises(SettingsError), open_run(tmp_path, IDENTITY, resume=resume):
        pass
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("lock", ["", '{"pid": 1, "host": "a"}', '{"pid": 1, "host": "a", "what": "a run"}'])
def test_a_run_that_was_killed_before_it_was_written_down_is_started(tmp_path: Path, lock: str) -> None:
    (tmp_path / "lock").write_text(lock)
    (tmp_path / ".run.yaml.4194305.tmp").write_text("settings: {se")
    with open_run(tmp_path, IDENTITY, resume=False) as run:
        assert run.exists("run.yaml")
    assert sorted(snapshot(tmp_path)) == ["lock", "run.yaml"]


@pytest.mark.parametrize("name", ["", "new"])
def test_there_is_nothing_to_resume(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match=r"holds no run: it has no run\.yaml"):
        open_run(tmp_path / name, IDENTITY, resume=True).__enter__()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [b"settings: {se", b"\xff\x00", b"settings: null", b"settings: [1]", b"- 1", b"", b"a: ["],
)
def test_a_damaged_identity_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.yaml").write_bytes(content)
    with pytest.raises(SettingsError, match=r"run\.yaml") as refusal:
        open_run(tmp_path, IDENTITY, resume=True).__enter__()
    assert "\n" not in str(refusal.value)
    assert sorted(snapshot(tmp_path)) == ["run.yaml"]


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("name", ["file", "file/x", "/proc/x", "dangling", "x" * 300, "a\0b", "locked"])
def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    (tmp_path / "locked/lock").mkdir(parents=True)
    with pytest.raises(SettingsError) as refusal, open_run(tmp_path / name, IDENTITY, resume=resume):
        pass
    assert "\n" not in str(refusal.value)
    assert snapshot(tmp_path) == {"file": b"x"}


def test_a_lock_that_is_a_directory_is_one_line(tmp_path: Path) -> None:
    with open_run(tmp_path, IDENTITY, resume=False):
        pass
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()
    with pytest.raises(SettingsError, match=r"cannot lock the run: .*lock: Is a directory"):
        open_run(tmp_path, IDENTITY, resume=True).__enter__()


def test_a_damaged_file_is_named_and_made_again(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.once("stages/001/x.json", {"a": 1}, lambda: {"n": 1})
    for name, content in (("x.json", b'{"n"'), ("x.json", b"\xff"), ("made_from.json", b'{"x.js'), ("x.json", b"")):
        path = run.path(f"stages/001/{name}")
        path.write_bytes(content)
        with pytest.raises(DocumentError, match=str(path)):
            run.read(f"stages/001/{name}")
        assert run.once("stages/001/x.json", {"a": 1}, lambda name=name: {"n": name}) == {"n": name}


def test_what_a_killed_process_left_of_a_write_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with open_run(root, IDENTITY, resume=False):
        pass
    attempt = root / "stages/000/attempt-1"
    attempt.mkdir(parents=True)
    for name in (".heartbeat.json.4194305.tmp", f".heartbeat.json.{os.getpid()}.tmp", ".mine.tmp", "x.4194305.tmp"):
        (attempt / name).write_text("")
    with open_run(root, IDENTITY, resume=True):
        pass
    left = {f".heartbeat.json.{os.getpid()}.tmp", ".mine.tmp", "x.4194305.tmp"}
    assert {path.name for path in attempt.iterdir()} == left


def test_a_run_needs_resume_and_its_own_configuration(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with open_run(root, IDENTITY, resume=False):
        pass
    before = snapshot(root)
    with pytest.raises(SettingsError, match="--resume"), open_run(root, IDENTITY, resume=False):
        pass
    other = {"settings": {"seed": 7, "stages": 3}}
    with pytest.raises(SettingsError, match=r"settings\.seed \(was 0, now 7\)"), open_run(root, other, resume=True):
        pass
    assert {name: text for name, text in snapshot(root).items() if name != "lock"} == {
        name: text for name, text in before.items() if name != "lock"
    }
    with open_run(root, IDENTITY, resume=True):
        pass


def test_every_second_belongs_to_one_category() -> None:
    times = iter(range(100))
    clock = Clock(now=lambda: float(next(times)))
    with clock.span("training"), clock.span("evaluation"):
        pass
    seconds = clock.seconds()
    assert seconds["training"] == 2
    assert seconds["evaluation"] == 1
    assert sum(seconds.values()) == 5
    clock.move(1.5, "training", "start-up")
    assert clock.seconds()["start-up"] == 1.5
    assert total([seconds, seconds])["training"] == 4
