"""A stage in two processes that talk over gloo: the result of one process, written by the first, and no lonely rank."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import children
from safetensors.torch import load_file

from trainer.attempts import attempts, live_worker
from trainer.launch.contract import Task
from trainer.launch.local import LocalLauncher
from trainer.metrics import read_attempt
from trainer.outcomes import read_end
from trainer.resume import resume_point
from trainer.spec import Ranks, StageSpec
from trainer.stage import StageCancelled, run_stage

pytestmark = pytest.mark.loop
TWO = Ranks(preset="cpu", processes=2)


def test_two_processes_give_what_one_gives_also_after_one_of_them_died(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    one = run_stage(make_spec(micro_batch=4), tmp_path / "one")
    two = run_stage(make_spec(micro_batch=4, ranks=TWO), tmp_path / "two")
    assert set(two.model_dump()) == set(one.model_dump())
    assert (two.steps, two.attempt) == (4, 1)
    alone, shared = (read_attempt(attempts(tmp_path / name)[0]) for name in ("one", "two"))
    # The same prompts, draws and weights: whatever is counted over both processes' rows is what one counts.
    for name in ("reward", "valid", "optimal", "zero_variance", "length", "clipped", "tokens"):
        assert getattr(shared[0], name) == pytest.approx(getattr(alone[0], name), abs=1e-6), name
    assert shared[0].gradient_norm == pytest.approx(alone[0].gradient_norm, rel=1e-4)
    # Only the order of sums differs, so the weights are close and not equal.
    old, new = (load_file(Path(result.model.path) / "model.safetensors") for result in (one, two))
    assert max((old[key] - new[key]).abs().max().item() for key in old) < 1e-4
    assert one.model.sha256 != two.model.sha256
    # The first process alone writes: one line a step; the other leaves its random state in the checkpoint.
    assert [row.step for row in shared] == [1, 2, 3, 4]
    states = (attempts(tmp_path / "two")[0] / "checkpoint-4").glob("rng_state*")
    assert {path.name for path in states} == {"rng_state_0.pth", "rng_state_1.pth"}

    directory, killed = tmp_path / "killed", list[int]()

    def kill(event: dict[str, object]) -> None:
        if event["event"] == "step" and event["step"] == 3 and not killed:
            launcher = live_worker(attempts(directory)[0])
            assert launcher is not None
            killed.extend(children(launcher))
            os.kill(killed[1], signal.SIGKILL)

    # Slow, or it would be done before it can be killed.
    slow = make_spec(micro_batch=4, ranks=TWO, environment="toy:Slow")
    resumed = run_stage(slow, directory, on_progress=kill)
    assert (resumed.attempt, resumed.resumed_from_step) == (2, 2)
    assert resumed.model.sha256 == two.model.sha256
    assert not any(Path(f"/proc/{pid}").exists() for pid in killed)

    # SIGTERM: all processes leave at the same step, wherever checkpoints lie, and nothing is lost of what they did.
    drained, stop = tmp_path / "drained", threading.Event()

    def at_the_first_step(event: dict[str, object]) -> None:
        if event.get("step") == 1:
            stop.set()

    with pytest.raises(StageCancelled):
        run_stage(slow, drained, on_progress=at_the_first_step, stop=stop, launcher=LocalLauncher(grace_seconds=60))
    ended, point = read_end(attempts(drained)[0]), resume_point(drained, slow.identity())
    assert ended is not None
    assert (ended.outcome, ended.detail) == ("terminated", f"SIGTERM after step {point.step} of 4; saved there")
    again = run_stage(slow, drained)
    assert (again.attempt, again.resumed_from_step, again.exact) == (2, point.step, True)
    assert again.model.sha256 == two.model.sha256


def test_memory_that_runs_out_in_the_second_process_is_told_of_by_it(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    result = run_stage(make_spec(steps=2, micro_batch=4, ranks=TWO, environment="toy:SecondIsSmall"), tmp_path / "000")
    ended = read_end(tmp_path / "000" / "attempt-1")
    assert ended is not None
    assert ended.outcome == "out_of_memory"
    assert ended.detail == "process 1: OutOfMemoryError: CUDA out of memory. Tried to embed 4 rows"
    assert (result.attempt, result.micro_batch) == (2, 2)


@pytest.mark.parametrize(("how", "code"), [("exit 2", 2), ("die", -9)])
def test_the_ranks_end_as_the_first_of_them_that_failed(tmp_path: Path, how: str, code: int) -> None:
    job = LocalLauncher().start(two_ranks(tmp_path, how))
    wait_for(lambda: job.poll() is not None)
    assert job.poll() == code, (tmp_path / "log").read_text()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids(tmp_path)))


def test_sigterm_to_the_agent_drains_the_ranks(tmp_path: Path) -> None:
    job = LocalLauncher(grace_seconds=20).start(two_ranks(tmp_path, "drain"))
    wait_for(lambda: len(pids(tmp_path)) == 2)
    job.stop()
    assert job.poll() == 75, (tmp_path / "log").read_text()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids(tmp_path))


def test_the_ranks_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    job = LocalLauncher().start(two_ranks(tmp_path, "wait"))
    wait_for(lambda: len(pids(tmp_path)) == 2)
    os.kill(job.pid, signal.SIGKILL)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids(tmp_path)))


def two_ranks(directory: Path, how: str) -> Task:
    """Two processes of which the second does as it is told, and the first waits for it as in a collective."""
    start = ("-P", "-m", "trainer.launch.ranks", "--preset", "cpu", "--processes", "2")
    return Task(name="ranks", arguments=(*start, "fake_rank", str(directory), how), log=directory / "log")


def pids(directory: Path) -> list[int]:
    return [int(path.name.partition("-")[2]) for path in directory.glob("pid-*")]


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
