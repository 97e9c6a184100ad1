"""The soak's own judgement: what it must not let pass. The soak itself runs in `test_trainer_stage_loop`."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_worker import metrics
from test_trainer_stage import stage

from trainer import forking
from trainer.attempts import process_started, read_result
from trainer.disturb import KINDS, TinyDisk, damage
from trainer.launch.contract import Task
from trainer.metrics import append
from trainer.resume import history
from trainer.soak import Plan, main
from trainer.soak_command import SoakError, soak_command
from trainer.soaked import Undisturbed, judge
from trainer.spec import EarlierAttempt, StageResult, StageSpec
from trainer.stage import run_stage

__all__ = ["stage"]

FAILED = EarlierAttempt(attempt=1, outcome="failed")


@pytest.fixture
def done(stage: Any, make_spec: Callable[..., StageSpec]) -> tuple[StageSpec, Path, Undisturbed]:
    """A stage that was killed once and came through, and what an undisturbed one comes to."""
    directory = stage("done")
    result = run_stage(make_spec(), directory)
    expected = Undisturbed(result, history(directory / "attempt-1"), 1.0)
    shutil.rmtree(directory)
    directory = stage("kill done")
    run_stage(make_spec(), directory)
    return make_spec(), directory, expected


def rewrite(directory: Path, **changes: Any) -> None:
    result = read_result(directory)
    assert result is not None
    (directory / "result.json").write_text(StageResult.model_copy(result, update=changes).model_dump_json())


def test_a_stage_that_came_through_passes(done: tuple[StageSpec, Path, Undisturbed]) -> None:
    assert judge(done[0], done[1], "kill worker", done[2]).startswith("attempts 2")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: (path / "result.json").unlink(), "there is no result"),
        (lambda path: rewrite(path, exact=False), "the weights are"),
        (lambda path: append(path / "attempt-2", metrics(4, 4).model_copy(update={"reward": 9.0})), "the metrics of"),
        (lambda path: append(path / "attempt-1", metrics(2, 4)), r"attempt-1 trained the steps \[1, 2, 3, 2\]"),
        (lambda path: (path / "attempt-2" / "metrics.jsonl").unlink(), "the metrics of 2 steps differ"),
        (
            lambda path: rewrite(path, earlier=(FAILED,)),
            r"attempts ended as \['failed'\]",
        ),
    ],
)
def test_a_stage_that_did_not_fails(
    done: tuple[StageSpec, Path, Undisturbed], spoil: Callable[[Path], None], message: str
) -> None:
    spoil(done[1])
    with pytest.raises(SoakError, match=message):
        judge(done[0], done[1], "kill worker", done[2])


def test_other_weights_fail(done: tuple[StageSpec, Path, Undisturbed]) -> None:
    spec, directory, expected = done
    other = expected.result.model_copy(update={"model": expected.result.model.model_copy(update={"sha256": "0" * 64})})
    with pytest.raises(SoakError, match="expected 000000000000"):
        judge(spec, directory, "kill worker", Undisturbed(other, expected.rows, 1.0))


def test_damage_is_done_and_can_be_repeated(done: tuple[StageSpec, Path, Undisturbed], tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(done[1], twin)
    before = {path: path.read_bytes() for path in twin.rglob("*") if path.is_file()}
    assert damage(done[1], random.Random(5)) == damage(twin, random.Random(5)) != "nothing was there"
    assert {path: path.read_bytes() for path in twin.rglob("*") if path.is_file()} != before


def test_a_tiny_disk_is_full_to_the_last_byte_and_can_be_emptied(tmp_path: Path) -> None:
    disk = TinyDisk.mounted(tmp_path / "disk", 1)
    if disk is None:
        pytest.skip("this user may not mount a file system")
    try:
        disk.fill()
        with pytest.raises(OSError, match="No space left on device"):
            (tmp_path / "disk" / "more").write_bytes(bytes(1 << 16))
        disk.free()
        (tmp_path / "disk" / "more").write_bytes(bytes(1 << 16))
    finally:
        disk.close()


def test_a_soak_that_goes_on_has_the_trials_that_it_would_have_had() -> None:
    kinds = sorted(KINDS)
    plans = Plan.all(30, 5, kinds)
    seen = [(plan.trial, plan.kind, plan.step, plan.fraction, plan.rng.random()) for plan in plans]
    again = [(plan.trial, plan.kind, plan.step, plan.fraction, plan.rng.random()) for plan in Plan.all(12, 5, kinds)]
    assert again == seen[:12]
    assert [kind for _, kind, *_ in seen[: len(kinds)]] != kinds
    for start in range(0, 27, len(kinds)):
        assert sorted(kind for _, kind, *_ in seen[start : start + len(kinds)]) == kinds


def test_no_kills_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        main(["--kills", "0"])
    assert refusal.value.code == 2
    assert "--kills is 0, expected 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("directory", "says"),
    [
        ("file", "is a file or lies in one; name a directory"),
        ("file/below", "is a file or lies in one; name a directory"),
        ("/proc/nope", "'/proc/nope' cannot be used: No such file or directory; name another"),
        ("full", "is not empty"),
    ],
)
def test_a_directory_that_is_not_its_own_is_refused(
    directory: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(SystemExit, match="2"):
        main(["--kills", "1", "--directory", str(tmp_path / directory)])
    said = capsys.readouterr().err
    assert "--directory" in said
    assert says in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "thesis.tex"]


SOAK = """
import os, subprocess, sys, time
from pathlib import Path
from trainer.attempts import record_worker
from trainer.forking import fork
from trainer.soak_command import soak_command

def trials(kills, seed, home, disk):
    def supervise():
        pid = subprocess.Popen(["sleep", "600"], start_new_session=True).pid
        if sys.argv[2] == "orphan":
            attempt = home / "disk" / "stage" / "attempt-1"
            attempt.mkdir(parents=True)
            record_worker(attempt, pid)
        (home / "worker").write_text(str(pid))
        if sys.argv[2] == "child":
            time.sleep(600)
        return 0

    (home / "supervisor").write_text(str(fork(supervise, home / "log").pid))
    try:
        time.sleep(600)
    except (OSError, ValueError):
        return 1

sys.exit(soak_command("soak", "", 1, 1, trials, sys.argv[3:], goes_on=sys.argv[1] == "on"))
"""


@pytest.mark.parametrize(("how", "worker", "sign"), [("on", "child", signal.SIGTERM), ("off", "orphan", signal.SIGINT)])
def test_a_soak_that_is_stopped_ends_its_trial_and_leaves_no_mount(
    how: str, worker: str, sign: signal.Signals, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SOAK, how, worker, "--directory", str(tmp_path)]
    own = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **own})
    names = ("supervisor", "worker")
    deadline = time.monotonic() + 60
    while not all((tmp_path / name).exists() and (tmp_path / name).read_text() for name in names):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(sign)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + sign, said
    assert said.startswith(f"python -m soak: stopped by {sign.name}")
    assert said.count("\n") == 1
    assert (f"--directory {tmp_path} goes on" in said) == (how == "on")
    assert not (tmp_path / "disk").is_mount()
    for name in names:
        pid = int((tmp_path / name).read_text())
        while process_started(pid) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_soak_goes_on_only_in_a_directory_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def soak(module: str, *, goes_on: bool = True) -> int:
        line = ["--directory", str(tmp_path)]
        return soak_command(module, "", 1, 1, lambda *_: 0, line, goes_on=goes_on)

    assert [soak("a.soak"), soak("a.soak")] == [0, 0]
    for module, goes_on in (("b.soak", True), ("a.soak", False)):
        with pytest.raises(SystemExit, match="2"):
            soak(module, goes_on=goes_on)
        assert f"--directory {tmp_path} is not empty" in capsys.readouterr().err


def test_a_forked_worker_holds_no_lock_of_whoever_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It outlives its run, as any worker does; whoever resumes that run must get the lock."""

    def main(_: Sequence[str]) -> int:
        (tmp_path / "began").touch()
        time.sleep(60)
        return 0

    monkeypatch.setattr(forking.worker, "main", main)
    path = tmp_path / "lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        task = Task(name="worker", arguments=("-P", "-m", "trainer.worker"), log=tmp_path / "log")
        job = forking.ForkLauncher(0.1).start(task)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "began").exists():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.01)
        with path.open("w") as mine:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert job.poll() is None
    finally:
        job.stop()
