"""A policy that answers a whole set by tasks of a launcher; `trainer.evaluate` gives its usual report with it.

The first call starts the tasks for all that is still owed. Their answers lie beside the evaluation's files until these
hold them, so an evaluation that was cut off loses at most a chunk of each task.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from envsim.api import Environment, Instance, Message, Progress
from trainer.dataset import write_dataset
from trainer.evaluate import CHUNK, in_order, read_rollouts, rollouts_path
from trainer.files import read_lines, write_atomic
from trainer.launch.contract import Launcher, LaunchError, Resources, Task
from trainer.launch.follow import finish
from trainer.launch.shard import EvaluationPlan, ShardSpec
from trainer.policy import Completion
from trainer.spec import DataRef


class ShardedPolicy:
    """Answers of one evaluation, given by up to ``shards`` tasks."""

    def __init__(
        self,
        launcher: Launcher,
        plan: EvaluationPlan,
        environment: Environment,
        instances: Sequence[Instance],
        *,
        directory: Path,
        shards: int,
        progress: Progress | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._launcher = launcher
        self._plan = plan
        self._instances = in_order(environment, instances, plan.style)
        self._directory = directory.resolve() / f"{plan.set}.shards"
        self._shards = shards
        self._progress = progress
        self._stop = stop
        self._answers: dict[str, list[Completion]] | None = None

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """Raises LaunchError if a task fails, or if this is not the evaluation that was planned."""
        plan = self._plan
        first = seed - plan.seed * 1_000_003
        asked = (max_new_tokens, temperature, samples, schema)
        if asked != (plan.generation.max_new_tokens, plan.generation.temperature, plan.samples, None):
            raise LaunchError(f"the evaluation asks for {asked}, which is not what its tasks were planned for: {plan}")
        if self._answers is None:
            self._answers = self._gather(first)
        chunk = self._instances[first : first + len(prompts)]
        return [self._answers[instance.id] for instance in chunk]

    def close(self) -> None:
        """Remove the parts; the evaluation has their answers now."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _gather(self, first: int) -> dict[str, list[Completion]]:
        self._directory.mkdir(parents=True, exist_ok=True)
        data = write_dataset(self._instances, self._directory / "instances.jsonl")
        parts = [(begin, end, self._directory / f"{begin}-{end}") for begin, end in self._split(first)]
        tasks = [self._task(begin, end, part, data) for begin, end, part in parts]

        def report() -> None:
            if self._progress is not None:
                rows = sum(_rows(rollouts_path(part, self._plan.set)) for _, _, part in parts)
                self._progress(first + rows // self._plan.samples, len(self._instances))

        finish(self._launcher, tasks, stop=self._stop, on_poll=report)
        answers: dict[str, list[Completion]] = {}
        for _, _, part in parts:
            for row in read_rollouts(rollouts_path(part, self._plan.set)):
                given = Completion(text=row.answer, prompt_tokens=0, tokens=row.tokens, finish_reason="stop")
                answers.setdefault(row.id, []).append(given)
        return answers

    def _split(self, first: int) -> list[tuple[int, int]]:
        """Runs of whole chunks, as many as there are tasks and as equal as can be."""
        chunks = range(first, len(self._instances), CHUNK)
        n = min(self._shards, len(chunks))
        edges = [chunks[len(chunks) * part // n] for part in range(n)] + [len(self._instances)]
        return list(pairwise(edges))

    def _task(self, first: int, last: int, part: Path, data: DataRef) -> Task:
        part.mkdir(exist_ok=True)
        spec = part / "shard.json"
        write_atomic(spec, ShardSpec(plan=self._plan, instances=data, first=first, last=last).model_dump_json(indent=1))
        return Task(
            name=f"evaluation on {self._plan.set}, {first} to {last}",
            arguments=("-P", "-m", "trainer.launch.shard", "--spec", str(spec), "--directory", str(part)),
            log=part / "shard.log",
            environment={"OMP_NUM_THREADS": str(self._plan.threads)},
            resources=Resources(cpus=self._plan.threads, gpus=1 if self._plan.device == "cuda" else 0),
        )


def _rows(path: Path) -> int:
    return max(0, len(read_lines(path)) - 1) if path.exists() else 0
