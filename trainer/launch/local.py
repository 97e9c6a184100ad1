"""Tasks as processes of this machine, each in a session of its own so that it ends with all that it started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from trainer.launch.contract import Task
from trainer.processes import GRACE_SECONDS, Process, end, end_own, running, spawn


class LocalJob:
    """A process of ours."""

    def __init__(self, process: Process, grace_seconds: float) -> None:
        self._process = process
        self._grace_seconds = grace_seconds

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return None if running(self._process) else self._process.poll()

    def stop(self) -> None:
        end_own(self._process, self._grace_seconds)


class AttachedJob:
    """A process that an earlier supervisor started: it can be watched and ended, but leaves no exit code."""

    def __init__(self, pid: int, alive: Callable[[], bool], grace_seconds: float) -> None:
        self._pid = pid
        self._alive = alive
        self._grace_seconds = grace_seconds

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return None if self._alive() else -signal.SIGKILL

    def stop(self) -> None:
        end(self._pid, self._alive, self._grace_seconds)


class LocalLauncher:
    """This machine."""

    name = "local"
    retries = 1

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds

    def start(self, task: Task) -> LocalJob:
        process = spawn([sys.executable, *task.arguments], task.log, {**os.environ, **task.environment})
        return LocalJob(process, self.grace_seconds)
