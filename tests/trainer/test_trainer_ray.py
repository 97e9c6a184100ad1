"""Stages and evaluations on a real Ray cluster on this machine, of which one node is lost in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from toy import Toy
from two_nodes import TwoNodes, two_nodes

from trainer.attempts import attempts, live_worker
from trainer.evaluate import evaluate, rollouts_path
from trainer.launch.contract import LaunchError, Resources, Task
from trainer.launch.shard import EvaluationPlan
from trainer.launch.sharded import ShardedPolicy
from trainer.metrics import read_attempt
from trainer.spec import GenerationSettings, ModelRef, StageSpec
from trainer.stage import StageCancelled, run_stage

pytestmark = pytest.mark.loop


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes(Path(__file__).parent) as nodes:
        yield nodes


def test_a_cluster_that_is_not_there_is_named_at_once() -> None:
    """In a process of its own: this one may be connected already."""
    line = ["-m", "trainer", "evaluate", "--limit", "1", "--directory", "unused", "--ray", "127.0.0.1:1"]
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "no Ray cluster at '127.0.0.1:1': [Errno 111] Connection refused; start one with 'ray start" in done.stderr


def test_what_no_node_can_carry_is_refused(cluster: TwoNodes, tmp_path: Path) -> None:
    task = Task(name="a stage", arguments=("-c", ""), log=tmp_path / "log", resources=Resources(cpus=1, gpus=8))
    with pytest.raises(LaunchError, match="a stage needs a node with CPU 1, GPU 8; the cluster has 3 nodes"):
        cluster.launcher.start(task)


def test_a_task_gives_its_code_and_its_words(cluster: TwoNodes, tmp_path: Path) -> None:
    code = "print('hello'); raise SystemExit(7)"
    job = cluster.launcher.start(Task(name="a task", arguments=("-c", code), log=tmp_path / "log"))
    assert wait_for(job.poll) == 7
    assert "hello" in (tmp_path / "log").read_text()
    nowhere = tmp_path / "nowhere" / "log"
    lost = cluster.launcher.start(Task(name="a task", arguments=("-c", ""), log=nowhere))
    with pytest.raises(LaunchError, match="to be on a file system that all nodes share"):
        wait_for(lost.poll)


def test_the_parts_of_an_evaluation_come_from_two_nodes(
    cluster: TwoNodes, tmp_path: Path, toy: Toy, tiny: ModelRef
) -> None:
    instances: Any = toy.instances(200)
    environment: Any = toy
    plan = EvaluationPlan(
        environment="toy:Toy",
        style="compact",
        set="many",
        model=tiny,
        generation=GenerationSettings(max_new_tokens=4),
        samples=1,
        seed=3,
        device="cpu",
        threads=1,
        batch_size=64,
    )
    parts = tmp_path / "parts"
    sharded = ShardedPolicy(cluster.launcher, plan, environment, instances, directory=parts, shards=2)
    reports = [
        evaluate(
            policy,
            environment,
            instances,
            set_name="many",
            model_sha256=tiny.sha256,
            style="compact",
            generation=plan.generation,
            directory=directory,
            seed=3,
        )
        for policy, directory in ((plan.policy(tmp_path), tmp_path / "whole"), (sharded, parts))
    ]
    assert reports[0].model_dump(exclude={"seconds"}) == reports[1].model_dump(exclude={"seconds"})
    assert rollouts_path(parts, "many").read_bytes() == rollouts_path(tmp_path / "whole", "many").read_bytes()


def test_a_stage_that_is_stopped_leaves_no_process(
    cluster: TwoNodes, make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    class Stop:
        def __init__(self) -> None:
            self.worker: int | None = None

        def is_set(self) -> bool:
            found = attempts(tmp_path / "000")
            self.worker = live_worker(found[0]) if found else None
            return self.worker is not None

    stop: Any = Stop()
    with pytest.raises(StageCancelled):
        run_stage(make_spec(), tmp_path / "000", launcher=cluster.launcher, stop=stop)
    assert not Path(f"/proc/{stop.worker}").exists()


def test_a_stage_whose_node_is_lost_goes_on_elsewhere_from_its_checkpoint(
    cluster: TwoNodes, make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    straight = run_stage(make_spec(steps=6), tmp_path / "straight")
    spec = make_spec(steps=6, environment="toy:Slow")
    directory, workers = tmp_path / "000", list[int]()

    def watch(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] == 3 and not workers:
            worker = live_worker(attempts(directory)[0])
            assert worker is not None
            workers.append(worker)
            cluster.lose_the_busy_one()

    result = run_stage(spec, directory, on_progress=watch, launcher=cluster.launcher)
    assert result.attempt == 2
    assert result.resumed_from_step in (2, 4)
    assert result.model.sha256 == straight.model.sha256
    assert not Path(f"/proc/{workers[0]}").exists()
    steps = [row.step for row in read_attempt(attempts(directory)[1])]
    assert steps == list(range(result.resumed_from_step + 1, 7))
    assert "was lost" in (attempts(directory)[0] / "train.log").read_text()
    # Once more: it is done, and nothing is started.
    assert run_stage(spec, directory, launcher=cluster.launcher) == result
    assert len(attempts(directory)) == 2


def wait_for(poll: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while (value := poll()) is None:
        assert time.monotonic() < deadline, "nothing came in time"
        time.sleep(0.05)
    return value
