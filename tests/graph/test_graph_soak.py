"""The soak: what it strikes, what it takes for the same, and some real trials."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dying import model_server
from loops import environment, finish, start

from agents.rolespec import PACKAGE
from graph import soak
from graph.aftermath import findings, timeless, trace
from graph.exits import Exit
from graph.rundir import RunDir
from graph.strikes import ON_DISK, Visit, damage_database, visits
from trainer.disturb import TinyDisk
from trainer.soak_command import SoakError

TURNS = [Visit(number, node, number // 3, 0.5) for number, node in enumerate("abcdefg")]
TRIALS = 6


@pytest.mark.parametrize(("kills", "has_disk"), [(1, True), (70, True), (140, False)])
def test_every_node_is_struck_in_every_way_before_any_again(kills: int, has_disk: bool) -> None:
    struck = soak.plan(kills, TURNS, random.Random(0), has_disk)
    assert len(struck) == kills
    kinds = [kind for kind in soak.KINDS if has_disk or kind not in ON_DISK]
    assert {kind for kind, _ in struck} == set(kinds[:kills])
    for kind in kinds:
        found = Counter(visit.number for each, visit in struck if each == kind)
        assert max(found.values(), default=0) - min(found.values(), default=0) <= 1
    assert struck == soak.plan(kills, TURNS, random.Random(0), has_disk)


def test_turns_are_read_from_the_log(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for node in ("baseline", "settle"):
        run.append_event({"event": "node", "node": node, "stage": None})
        run.append_event({"event": "time", "session": "1", "seconds": {}})
    assert [(turn.number, turn.node) for turn in visits(run)] == [(0, "baseline"), (1, "settle")]
    assert all(turn.seconds >= 0 for turn in visits(run))


FILES: dict[str, dict[str, Any]] = {
    "result.json": {"sets": {"test": 1}},
    "stages/000/result.json": {"model": {"sha256": "a", "path": "/x"}, "attempt": 1, "seconds": {}},
    "stages/000/eval/anchor.eval.json": {"valid": 0.5, "seconds": 1.0},
    "stages/000/attempt-1/metrics.jsonl": {"step": 1},
    "events.jsonl": {"event": "node"},
}


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return tmp_path / "run"


def test_when_and_in_how_many_goes_is_no_difference(finished: Path) -> None:
    expected = trace(finished)
    assert set(expected) == {"result.json", "stages/000/result.json", "stages/000/eval/anchor.eval.json"}
    again = {**FILES["stages/000/result.json"], "attempt": 3, "seconds": {"training": 9}}
    (finished / "stages/000/result.json").write_text(json.dumps(again))
    (finished / "events.jsonl").unlink()
    assert findings(finished, expected) == []


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("stages/000/result.json", '{"model": {"sha256": "b"}}', "stages/000/result.json differs"),
        ("result.json", None, "result.json is missing"),
        ("stages/001/config.json", "{}", "stages/001/config.json is not in an undisturbed run"),
    ],
)
def test_what_was_computed_is(finished: Path, name: str, content: str | None, words: str) -> None:
    expected = trace(finished)
    path = finished / name
    path.parent.mkdir(exist_ok=True)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert findings(finished, expected) == [words]


def test_timeless_keeps_all_else() -> None:
    assert timeless({"a": [{"seconds": 1, "b": 2}], "time": 3}) == {"a": [{"b": 2}]}


def test_a_database_is_lost_or_torn(tmp_path: Path) -> None:
    for name in ("graph.sqlite", "graph.sqlite-wal"):
        (tmp_path / name).write_bytes(b"x" * 100)
    damage_database("torn database", tmp_path)
    assert (tmp_path / "graph.sqlite").stat().st_size == 50
    damage_database("lost database", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A run on a disk of its own."""
    disk = TinyDisk.mounted(tmp_path / "disk", 1)
    if disk is None:
        pytest.skip("this user may not mount a disk")
    try:
        run = tmp_path / "disk" / "run"
        run.mkdir()
        yield run
    finally:
        disk.close()


def test_a_disk_is_read_only_once_nothing_writes_to_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was started just before its run was killed writes before it is on record."""
    with (root / "log").open("w") as log:
        writer = subprocess.Popen(["sleep", "1"], stdout=log)
    soak.make_read_only(root)
    assert writer.poll() == 0
    with pytest.raises(OSError, match="Read-only"):
        (root / "file").touch()
    soak.remount(root.parent, "rw")
    monkeypatch.setattr(soak, "_PATIENCE_SECONDS", 0.1)
    with (root / "log").open("w"), pytest.raises(SoakError, match=f"{root.parent} cannot be mounted ro: .*busy"):
        soak.make_read_only(root)


def test_no_trials_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        soak.main(["--kills", "0"])
    assert "--kills is 0, expected 1 or more" in capsys.readouterr().err


def test_a_directory_that_holds_anything_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "soak.txt").write_text("graph.soak\n")
    with pytest.raises(SystemExit, match="2"):
        soak.main(["--kills", "1", "--directory", str(tmp_path)])
    assert f"--directory {tmp_path} is not empty; name an empty or new one" in capsys.readouterr().err


@pytest.mark.loop
def test_some_real_trials(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graph.soak", "--kills", str(TRIALS), "--directory", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        timeout=900,
    )
    assert done.stdout.rstrip().endswith(f"{TRIALS} passed, 0 failed"), done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.loop
def test_a_model_server_that_dies_in_an_answer_costs_nothing(straight: tuple[Path, Path], tmp_path: Path) -> None:
    """Exit code 1 and one line, nothing of the half answer is kept; with nonsense from it code 4; then it goes on."""
    _, parent = straight
    roles = tmp_path / "roles"
    shutil.copytree(PACKAGE / "roles", roles)
    file, root = roles / "failure_analyst.yaml", tmp_path / "run"
    with model_server() as server:
        role = yaml.safe_load(file.read_text()) | {"model": {"base_url": server.url, "name": "m"}, "on_failure": "stop"}
        file.write_text(yaml.safe_dump(role))
        config = tmp_path / "settings.yaml"
        config.write_text(yaml.safe_dump({"roles": str(roles)}))
        given = ("--fork-from", parent, "--at-stage", 1, "--run-dir", root, "--config", config)
        said = finish(start(tmp_path, *given), Exit.FAILED)
        assert server.asked >= 1
        assert "Traceback" not in said
        assert not list(root.glob("stages/001/answers/*"))
        server.answer = "no answer of any use"
        said = finish(start(tmp_path, "--run-dir", root, "--resume"), Exit.ROLE_FAILED)
        assert "role 'failure_analyst' gave no usable answer" in said
        assert RunDir(root).read("stages/001/answers/failure_analyst.failed.json")["raw"] == server.answer
        cells = dict.fromkeys(("short", "long"), "learnable")
        diagnosis = {"cells": cells, "summary": "said", "dominant_fault": "odd", "evidence_ids": []}
        server.answer = json.dumps(diagnosis)
        finish(start(tmp_path, "--run-dir", root, "--resume"))
    answer = RunDir(root).read("stages/001/answers/failure_analyst.json")
    assert (answer["fallback"], answer["parsed"]["summary"]) == (False, "said")
    assert len(list(root.glob("stages/001/attempt-*"))) == 1
