"""Every end of an attempt has a name that is written beside it, and what follows depends on the name alone."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from test_trainer_stage import stage, wait_for

import trainer.supervision
from trainer.attempts import attempts, live_worker, new_attempt, read_result, record_worker, spec_path
from trainer.files import write_atomic
from trainer.forking import ForkLauncher
from trainer.launch.contract import LaunchError
from trainer.outcomes import (
    AttemptEnd,
    AttemptRecord,
    fewer_at_once,
    machine_fault,
    read_end,
    read_record,
    versions,
    write_end,
    write_record,
)
from trainer.processes import end, end_own, spawn
from trainer.recovery import first_record, has_smaller_passes
from trainer.resume import ResumePoint
from trainer.spec import Ranks, StageSpec
from trainer.stage import StageError, StageInputError, run_stage

__all__ = ["stage"]


def outcomes(directory: Path) -> list[str | None]:
    return [None if (ended := read_end(attempt)) is None else ended.outcome for attempt in attempts(directory)]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("kill done", ["killed"]),
        ("terminate done", ["terminated"]),
        ("hang done", ["stale_heartbeat"]),
        ("memory done", ["out_of_memory"]),
        ("memory memory memory done", ["out_of_memory"] * 3),
    ],
)
def test_an_interrupted_stage_goes_on_and_says_why_it_had_to(
    stage: Any, make_spec: Callable[..., StageSpec], words: str, names: list[str]
) -> None:
    directory, events = stage(words), list[dict[str, Any]]()
    result = run_stage(make_spec(), directory, stale_seconds=1.0, on_progress=events.append)
    assert result.attempt == len(names) + 1
    assert outcomes(directory)[: len(names)] == names
    assert [event["outcome"] for event in events if event["event"] == "attempt_ended"] == names


@pytest.mark.parametrize(
    ("word", "outcome", "message"),
    [
        ("die", "failed", "out of luck"),
        ("refuse", "bad_input", "exit code 2"),
        ("disk", "disk_full", "make room and run it again"),
    ],
)
def test_what_another_attempt_cannot_mend_is_told_at_once(
    stage: Any, make_spec: Callable[..., StageSpec], word: str, outcome: str, message: str
) -> None:
    directory = stage(f"{word} done")
    with pytest.raises(StageError, match=message) as raised:
        run_stage(make_spec(), directory)
    assert isinstance(raised.value, StageInputError) == (outcome == "bad_input")
    assert raised.value.outcome == outcome
    assert outcomes(directory) == [outcome]
    assert run_stage(make_spec(), directory).attempt == 2


def test_attempts_that_come_no_further_are_bounded(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    # The first saved the checkpoint of step 2, which counts; the two after it die at step 3.
    directory = stage("kill kill kill done")
    with pytest.raises(StageError, match=r"killed, signal 9") as raised:
        run_stage(make_spec(), directory, retries=1)
    assert raised.value.outcome == "killed"
    assert len(attempts(directory)) == 3


def test_memory_is_halved_down_to_one_completion_and_no_further(
    stage: Any, make_spec: Callable[..., StageSpec]
) -> None:
    directory = stage("memory " * 5)
    with pytest.raises(StageError, match="one completion at a time is too much") as raised:
        run_stage(make_spec(micro_batch=8), directory)
    assert raised.value.outcome == "out_of_memory"
    records = [read_record(attempt) for attempt in attempts(directory)]
    assert [record.micro_batch for record in records if record is not None] == [8, 4, 2, 1]
    assert [record.exact for record in records if record is not None] == [True, False, False, False]


def test_several_processes_halve_what_each_of_them_does_at_once(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    spec = make_spec(micro_batch=None, ranks=Ranks(preset="cpu", processes=2))
    for size in (8, 4, 2, 1):
        attempt, record = new_attempt(tmp_path, spec), first_record(spec, tmp_path, ResumePoint())
        assert (record.micro_batch, record.exact) == (size, size == 8)
        write_record(attempt, record)
        write_end(attempt, "out_of_memory")
        assert has_smaller_passes(spec, attempt) == (size > 1)


def test_a_fork_is_of_a_worker_alone(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"runs trainer\.launch\.ranks, expected trainer\.worker to fork"):
        run_stage(make_spec(ranks=Ranks(preset="cpu", processes=2)), tmp_path / "000", launcher=ForkLauncher())


@pytest.mark.parametrize(
    ("batch", "micro", "fewer"), [(128, 128, 64), (128, 1, None), (48, 3, 1), (60, 15, 6), (7, 7, 1), (12, 2, 1)]
)
def test_fewer_at_once_divide_the_batch(batch: int, micro: int, fewer: int | None) -> None:
    assert fewer_at_once(batch, micro) == fewer


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"schema_version": 1}', b"\xff"])
def test_damaged_files_of_a_dead_attempt_cost_no_stage(
    stage: Any, make_spec: Callable[..., StageSpec], garbage: bytes
) -> None:
    directory = stage("die done")
    with pytest.raises(StageError):
        run_stage(make_spec(), directory)
    for name in ("spec.json", "attempt.json", "worker.json", "heartbeat.json", "outcome.json"):
        (directory / "attempt-1" / name).write_bytes(garbage)
    result = run_stage(make_spec(), directory)
    assert (result.attempt, result.steps, result.resumed_from_step) == (2, 4, 2)
    assert outcomes(directory)[0] == "lost"


@pytest.mark.parametrize("name", ["spec.json", "attempt.json"])
def test_one_changed_file_does_not_make_an_attempt_another_stages(
    stage: Any, make_spec: Callable[..., StageSpec], name: str
) -> None:
    directory = stage("die done")
    with pytest.raises(StageError):
        run_stage(make_spec(), directory)
    path = directory / "attempt-1" / name
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | ({"seed": 8} if name == "spec.json" else {"spec_hash": "0" * 64})))
    assert run_stage(make_spec(), directory).resumed_from_step == 2


def test_a_damaged_result_is_named(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("done done")
    run_stage(make_spec(), directory)
    (directory / "result.json").write_text('{"schema_version": 1, "steps": 4}')
    assert run_stage(make_spec(), directory).resumed_from_step == 2
    record = read_record(directory / "attempt-2")
    assert record is not None
    assert [(passed.path, passed.fault) for passed in record.passed_over] == [("result.json", "damaged_result")]


def test_a_lock_that_nobody_owns_up_to_is_told_of(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer.supervision, "_HELD_SECONDS", 0.5)
    with (tmp_path / "worker.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StageError, match="has held its lock") as raised:
            run_stage(make_spec(), tmp_path)
    assert raised.value.outcome == "held"
    assert attempts(tmp_path) == [], "attempts that never got the lock leave nothing"


def worker(attempt: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "trainer.worker",
        "--spec",
        str(spec_path(attempt)),
        "--directory",
        str(attempt),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_spec_that_changed_under_its_attempt_is_not_trained(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    spec = make_spec()
    attempt = new_attempt(tmp_path, spec)
    write_record(attempt, AttemptRecord(spec_hash=spec.identity(), micro_batch=8, versions=versions()))
    write_atomic(spec_path(attempt), make_spec(seed=8).model_dump_json())
    done = worker(attempt)
    assert (done.returncode, "it changed after the attempt began" in done.stderr) == (2, True)
    assert outcomes(tmp_path) == ["wrong_spec"]
    spec_path(attempt).write_text("[]")
    done = worker(attempt)
    assert (done.returncode, outcomes(tmp_path)) == (2, ["wrong_spec"])
    assert "is no stage spec: the spec = []: Input should be an object" in done.stderr
    assert done.stderr.count("\n") == 1
    spec_path(attempt).unlink()
    done = worker(attempt)
    assert (done.returncode, "cannot be read: No such file" in done.stderr) == (2, True)


def test_a_worker_that_comes_late_to_a_finished_stage_trains_nothing(
    stage: Any, make_spec: Callable[..., StageSpec]
) -> None:
    spec, directory = make_spec(), stage("done")
    result = run_stage(spec, directory)
    attempt = new_attempt(directory, spec)
    assert worker(attempt).returncode == 0
    assert read_result(directory) == result
    assert [path.name for path in attempt.iterdir()] == ["spec.json"]


@contextmanager
def small_files(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: torch.save({"weights": torch.zeros(100_000)}, path),
        lambda path: save_file({"weights": torch.zeros(100_000)}, path),
        lambda path: write_atomic(path, "x" * 100_000),
    ],
)
def test_a_file_that_cannot_grow_is_a_full_disk_whoever_writes(write: Callable[[Path], None], tmp_path: Path) -> None:
    with small_files(4096), pytest.raises((OSError, RuntimeError, SafetensorError)) as raised:
        write(tmp_path / "file")
    assert machine_fault(raised.value) == "disk_full"


def test_memory_and_disk_are_told_apart_from_all_else() -> None:
    assert machine_fault(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")) == "out_of_memory"
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60)
    assert machine_fault(raised.value) == "out_of_memory"
    assert machine_fault(MemoryError()) == "out_of_memory"
    assert machine_fault(OSError(errno.ENOSPC, "No space left on device")) == "disk_full"
    assert machine_fault(OSError(errno.EACCES, "Permission denied")) is None
    assert machine_fault(RuntimeError("PytorchStreamReader failed finding central directory")) is None
    wrapped = ValueError("cannot save")
    wrapped.__cause__ = OSError(errno.EDQUOT, "Disk quota exceeded")
    assert machine_fault(wrapped) == "disk_full"


def test_a_full_disk_before_the_worker_starts_is_told_of(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("unused done")
    with small_files(64), pytest.raises(StageError, match=r"the disk of stage 0 is full: .*spec\.json") as raised:
        run_stage(make_spec(), directory)
    assert raised.value.outcome == "disk_full"
    assert run_stage(make_spec(), directory).steps == 4


def test_what_a_dead_worker_started_is_ended_and_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "log"
    bystander = spawn(["sleep", "60"], log, os.environ)
    leader = spawn(["bash", "-c", "sleep 61 & echo $!; exec sleep 62"], log, os.environ)
    grandchild = int(wait_for(lambda: log.read_text().strip()))
    end_own(leader, 5.0)
    assert leader.poll() is not None
    wait_for(lambda: not Path(f"/proc/{grandchild}").exists() or "Z" in Path(f"/proc/{grandchild}/stat").read_text())
    assert bystander.poll() is None
    end_own(bystander, 5.0)


def test_an_orphan_of_another_group_is_ended_alone(tmp_path: Path) -> None:
    """Its group is this process's own: a signal to the group would end the test."""
    orphan = subprocess.Popen(["sleep", "60"])
    threading.Thread(target=orphan.wait, daemon=True).start()
    record_worker(tmp_path, orphan.pid)
    end(orphan.pid, lambda: live_worker(tmp_path) == orphan.pid, 5.0)
    assert live_worker(tmp_path) is None
    record = json.loads((tmp_path / "worker.json").read_text())
    (tmp_path / "worker.json").write_text(json.dumps(record | {"pid": os.getpid()}))
    end(os.getpid(), lambda: live_worker(tmp_path) == os.getpid(), 1.0)


def test_a_name_survives_the_file(tmp_path: Path) -> None:
    write_end(tmp_path, "stale_heartbeat", "no heartbeat for 900 s")
    assert read_end(tmp_path) == AttemptEnd(outcome="stale_heartbeat", detail="no heartbeat for 900 s")
