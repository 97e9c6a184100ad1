"""What a launcher promises: a task starts somewhere with resources, can be polled and stopped, and answers by files.

A task is a command line of this project's Python. What it makes lies under the run directory, which every place that a
launcher reaches must see at the same path; no value comes back but the exit code, and that one is no proof of work.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from pydantic import Field

from trainer.spec import AnySpec, Frozen, StageSpec


class LaunchError(RuntimeError):
    """A launcher cannot be reached, has no place for a task, or a task failed."""


class Resources(Frozen):
    """What a task needs of the place that carries it out. A local process takes what it finds."""

    cpus: float = Field(1, ge=0)
    gpus: float = Field(0, ge=0)


class Task(Frozen):
    """One process: the arguments that follow the interpreter, the file for all that it says, and what it needs."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = {}
    """Added to the environment of the place."""
    resources: Resources = Resources()


class Job(Protocol):
    """A task that was started."""

    @property
    def pid(self) -> int | None:
        """The process on this machine; None if it is elsewhere."""
        ...

    def poll(self) -> int | None:
        """None while it waits or runs; then its exit code, negative for a signal. A lost place counts as -9."""
        ...

    def stop(self) -> None:
        """End it and all that it started, gently first; returns once it is gone."""
        ...


class Launcher(Protocol):
    """A kind of place."""

    name: str
    retries: int
    """How often a task that was killed or lost is worth starting again."""
    grace_seconds: float
    """What a task that is told to end has for saving its work, before it is killed."""

    def start(self, task: Task) -> Job:
        """Start a task, or queue it. Raises LaunchError if it can never be carried out."""
        ...


def stage_resources(spec: AnySpec) -> Resources:
    """Threads and GPUs of all processes of a stage, its server's included."""
    if spec.device == "cpu":
        return Resources(cpus=spec.threads * spec.processes)
    served = spec.rollouts.gpus if isinstance(spec, StageSpec) and spec.rollouts.kind == "vllm_server" else 0
    return Resources(cpus=spec.threads * spec.processes, gpus=spec.processes + served)
