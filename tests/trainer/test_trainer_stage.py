"""Supervision of a stage: once only, attach or resume, and no trust in exit codes. The worker is a fake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trainer.supervision
from trainer.attempts import attempts, live_worker, new_attempt, process_started, record_worker
from trainer.files import publish
from trainer.spec import DataRef, ModelRef, StageSpec
from trainer.stage import StageCancelled, StageError, StageInputError, run_stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    monkeypatch.setattr(trainer.supervision, "WORKER", "fake_worker")

    def script(words: str) -> Path:
        directory = tmp_path / "007"
        directory.mkdir(exist_ok=True)
        (directory / "script.txt").write_text(words)
        return directory

    return script


def wait_for(condition: Callable[[], Any], seconds: float = 10) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
    return value


def test_a_done_stage_is_returned_at_once(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory, events = stage("done"), list[dict[str, Any]]()
    first = run_stage(make_spec(), directory, on_progress=events.append)
    assert [event["event"] for event in events] == ["start", "step", "step", "step", "step", "done"]
    assert run_stage(make_spec(), directory) == first
    assert len(attempts(directory)) == 1


def test_identity_is_of_contents_not_of_paths(make_spec: Callable[..., StageSpec], tiny: ModelRef) -> None:
    spec = make_spec()
    moved = spec.model_copy(update={"init_model": ModelRef(path="/elsewhere", sha256=tiny.sha256)})
    assert moved.identity() == spec.identity()
    assert make_spec(seed=8).identity() != spec.identity()
    assert make_spec(threads=2).identity() != spec.identity()


def test_another_specs_directory_is_refused(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("done done")
    run_stage(make_spec(), directory)
    before = (directory / "result.json").read_bytes()
    with pytest.raises(StageInputError, match="another spec"):
        run_stage(make_spec(seed=8), directory)
    assert (directory / "result.json").read_bytes() == before
    (directory / "result.json").unlink()
    with pytest.raises(StageInputError, match="another spec"):
        run_stage(make_spec(seed=8), directory)


@pytest.mark.parametrize("garbage", ["", "{", '{"steps": 4}', "[]"])
def test_a_garbage_result_is_no_result(stage: Any, make_spec: Callable[..., StageSpec], garbage: str) -> None:
    directory = stage("done")
    (directory / "result.json").write_text(garbage)
    assert run_stage(make_spec(), directory).steps == 4


def test_a_result_of_too_few_steps_is_no_result(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("done done")
    run_stage(make_spec(), directory)
    path = directory / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"steps": 3}))
    assert run_stage(make_spec(), directory).steps == 4


def test_a_changed_model_is_not_passed_off_as_the_stages(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("done done")
    run_stage(make_spec(), directory)
    (directory / "model" / "model.safetensors").write_text("")
    with pytest.raises(StageInputError, match=r"changed after it was referenced.*remove .*result\.json to train again"):
        run_stage(make_spec(), directory)
    (directory / "model" / "config.json").unlink()
    with pytest.raises(StageInputError, match="no checkpoint"):
        run_stage(make_spec(), directory)
    (directory / "result.json").unlink()
    assert run_stage(make_spec(), directory).attempt == 2


def test_a_directory_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged, model, flushed, real = tmp_path / ".model", tmp_path / "model", list[str](), os.fsync
    for directory, text in ((staged, "new"), (model, "old")):
        directory.mkdir()
        for name in ("config.json", "model.safetensors"):
            (directory / name).write_text(text)

    def fsync(descriptor: int) -> None:
        flushed.extend(str(path) for path in (*staged.glob("*"), staged, tmp_path) if same(path, descriptor))
        real(descriptor)

    def same(path: Path, descriptor: int) -> bool:
        return path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor))

    monkeypatch.setattr(os, "fsync", fsync)
    publish(staged, model)
    assert sorted(flushed[:-1]) == [str(staged), str(staged / "config.json"), str(staged / "model.safetensors")]
    assert flushed[-1] == str(tmp_path)
    assert (model / "config.json").read_text() == "new"
    assert not staged.exists()


def test_a_killed_worker_is_resumed_from_its_checkpoint(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory, events = stage("kill done"), list[dict[str, Any]]()
    result = run_stage(make_spec(), directory, on_progress=events.append)
    assert (result.attempt, result.resumed_from_step) == (2, 2)
    assert [event["resumed_from"] for event in events if event["event"] == "start"] == [None, 2]
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3, 3, 4]


def test_a_worker_that_fails_is_not_tried_again_and_its_log_is_shown(
    stage: Any, make_spec: Callable[..., StageSpec]
) -> None:
    directory = stage("die done")
    with pytest.raises(StageError, match="out of luck"):
        run_stage(make_spec(), directory)
    assert len(attempts(directory)) == 1
    assert run_stage(make_spec(), directory).resumed_from_step == 2


def test_a_worker_that_refuses_is_bad_input(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    with pytest.raises(StageInputError, match="exit code 2"):
        run_stage(make_spec(), stage("refuse"))


def test_a_hung_worker_is_killed_and_replaced(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("hang done")
    assert run_stage(make_spec(), directory, stale_seconds=1.0).attempt == 2
    assert live_worker(attempts(directory)[0]) is None


def test_a_live_worker_is_attached_to(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory, spec, events = stage("slow"), make_spec(), list[dict[str, Any]]()
    attempt = new_attempt(directory, spec)
    worker = subprocess.Popen(
        [sys.executable, "-m", "fake_worker", "--spec", str(attempt / "spec.json"), "--directory", str(attempt)],
        start_new_session=True,
    )
    wait_for(lambda: live_worker(attempt))
    # Reaped beside the supervisor, as init does with an orphan.
    threading.Thread(target=worker.wait, daemon=True).start()
    result = run_stage(spec, directory, on_progress=events.append)
    assert result.attempt == 1
    assert events[0] == {"event": "start", "attempt": "attempt-1", "attached": True, "resumed_from": None}


def test_a_recycled_process_id_is_not_the_worker(tmp_path: Path) -> None:
    record_worker(tmp_path, os.getpid())
    assert live_worker(tmp_path) == os.getpid()
    record = json.loads((tmp_path / "worker.json").read_text())
    (tmp_path / "worker.json").write_text(json.dumps(record | {"started": "1"}))
    assert live_worker(tmp_path) is None


def test_a_zombie_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    wait_for(lambda: process_started(child.pid) is None)
    child.wait()


def test_stopping_ends_the_worker_and_the_stage_can_go_on(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory, stop = stage("hang done"), threading.Event()

    def on_progress(event: dict[str, Any]) -> None:
        if event.get("step") == 3:
            stop.set()

    with pytest.raises(StageCancelled):
        run_stage(make_spec(), directory, on_progress=on_progress, stop=stop)
    assert live_worker(attempts(directory)[0]) is None
    assert run_stage(make_spec(), directory).resumed_from_step == 2


def test_an_exception_in_the_caller_ends_the_worker(stage: Any, make_spec: Callable[..., StageSpec]) -> None:
    directory = stage("hang")

    def on_progress(event: dict[str, Any]) -> None:
        if event.get("step") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(make_spec(), directory, on_progress=on_progress)
    assert live_worker(attempts(directory)[0]) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 18}, "multiple of grpo.group"),
        ({"micro_batch": 12}, "multiple of grpo.micro_batch"),
        ({"steps": 9}, "expected at least 36 = 9 steps"),
    ],
)
def test_numbers_that_do_not_go_together(
    stage: Any, make_spec: Callable[..., StageSpec], change: dict[str, int], message: str
) -> None:
    directory = stage("done")
    with pytest.raises(StageInputError, match=message):
        run_stage(make_spec(**change), directory)
    assert attempts(directory) == []


def test_a_dataset_too_small_for_one_step_is_refused(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    data = DataRef(path="unread", sha256="0", n=3)
    with pytest.raises(StageInputError, match="the dataset has 3 prompts, expected at least 4"):
        run_stage(make_spec(dataset=data, steps=1), tmp_path)
