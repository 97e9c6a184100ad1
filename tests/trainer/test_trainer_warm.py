"""Workers forked from a process that stays: the same stage, sooner, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.attempts import attempts, live_worker, new_attempt, process_started, spec_path
from trainer.launch.contract import Job, Task
from trainer.launch.local import LocalLauncher
from trainer.launch.warm import START, WarmJob, WarmLauncher, can_be_forked
from trainer.metrics import read_attempt
from trainer.outcomes import read_end
from trainer.resume import resume_point
from trainer.spec import LoraSettings, StageSpec
from trainer.stage import run_stage
from trainer.supervision import Supervision

pytestmark = pytest.mark.loop


def nursery_of(launcher: WarmLauncher) -> int:
    assert launcher._nursery is not None
    return launcher._nursery._process.pid


def wait(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


class Noted(WarmLauncher):
    """Notes who every worker was forked from."""

    def __init__(self) -> None:
        super().__init__()
        self.parents: list[tuple[int, bool]] = []
        """The parent's process id, and whether it had imported what a worker does when it was told to fork."""

    def start(self, task: Task) -> Job:
        job = super().start(task)
        assert isinstance(job, WarmJob)
        nursery = nursery_of(self)
        # Of all that is imported here only TRL's datasets bring Arrow.
        self.parents.append((nursery, "libarrow" in Path(f"/proc/{nursery}/maps").read_text()))
        return job


def test_all_stages_are_forked_from_one_that_has_imported_and_are_as_those_of_a_fresh_process(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    launcher = Noted()
    fresh = run_stage(make_spec(), tmp_path / "fresh", launcher=LocalLauncher())
    first = run_stage(make_spec(), tmp_path / "first", launcher=launcher)
    second = run_stage(make_spec(), tmp_path / "second", launcher=launcher)
    assert fresh.model.sha256 == first.model.sha256 == second.model.sha256
    assert launcher.parents == [(nursery_of(launcher), True)] * 2


def test_what_dies_is_replaced_and_what_needs_other_imports_is_not_forked(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    launcher, killed, hit = WarmLauncher(), make_spec(environment="toy:Slow"), list[int]()

    def kill(event: dict[str, object]) -> None:
        if event.get("step") == 3 and not hit:
            hit.append(live_worker(attempts(tmp_path / "killed")[0]) or 0)
            os.kill(hit[0], signal.SIGKILL)

    resumed = run_stage(killed, tmp_path / "killed", launcher=launcher, on_progress=kill)
    assert (resumed.attempt, resumed.resumed_from_step) == (2, 2)
    assert resumed.earlier[0].outcome == "killed"
    adapted = make_spec(lora=LoraSettings(rank=2, alpha=4))
    (tmp_path / "spec.json").write_text(adapted.model_dump_json())
    task = Task(name="x", arguments=(*START, "--spec", str(tmp_path / "spec.json")), log=tmp_path / "log")
    assert not can_be_forked(task)

    # The process that workers are forked from may die as well, and ends with its launcher.
    os.kill(nursery_of(launcher), signal.SIGKILL)
    again = run_stage(killed, tmp_path / "again", launcher=launcher)
    assert again.model.sha256 == resumed.model.sha256
    other = WarmLauncher()
    job = other.start(replace(task, killed, tmp_path))
    pid = nursery_of(other)
    assert process_started(pid) is not None
    job.stop()
    del other, job
    assert process_started(pid) is None


def replace(task: Task, spec: StageSpec, directory: Path) -> Task:
    """The same of another spec, in an attempt's directory."""
    attempt = new_attempt(directory / "replaced", spec)
    arguments = (*START, "--spec", str(spec_path(attempt)), "--directory", str(attempt))
    return task.model_copy(update={"arguments": arguments})


def test_a_worker_drains_and_outlives_those_who_started_it(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    spec, launcher = make_spec(environment="toy:Slow", steps=8), WarmLauncher()
    supervision = Supervision(spec, tmp_path / "drained", None, 900, retries=0, launcher=launcher)
    wait(lambda: supervision.step() is not None or read_attempt(tmp_path / "drained" / "attempt-1"))
    assert isinstance(supervision._job, WarmJob)
    supervision.close()
    ended = read_end(tmp_path / "drained" / "attempt-1")
    assert ended is not None
    assert ended.outcome == "terminated"
    assert resume_point(tmp_path / "drained", spec.identity()).step is not None

    file = tmp_path / "spec.json"
    file.write_text(spec.model_dump_json())
    stage = tmp_path / "orphan"
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "trainer", "stage", "--spec", str(file), "--directory", str(stage), "--tracking"]
    )
    wait(lambda: read_attempt(stage / "attempt-1") if (stage / "attempt-1").exists() else None)
    supervisor.kill()
    supervisor.wait()
    worker = live_worker(stage / "attempt-1")
    assert worker is not None
    joined = run_stage(spec, stage)
    assert (joined.steps, joined.attempt) == (8, 1)
