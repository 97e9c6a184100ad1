"""Tasks as processes of this machine, each in a session of its own so that it ends with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from trainer.launch.contract import Task

GRACE_SECONDS = 10.0


class LocalJob:
    """A process of ours."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        end_group(self.pid, lambda: self.poll() is None)


class AttachedJob:
    """A process that an earlier supervisor started: it can be watched and ended, but leaves no exit code."""

    def __init__(self, pid: int, alive: Callable[[], bool]) -> None:
        self._pid = pid
        self._alive = alive

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        return None if self._alive() else -signal.SIGKILL

    def stop(self) -> None:
        end_group(self._pid, self._alive)


class LocalLauncher:
    """This machine."""

    name = "local"
    retries = 1

    def start(self, task: Task) -> LocalJob:
        with task.log.open("ab") as log:
            return LocalJob(
                subprocess.Popen(
                    [sys.executable, *task.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, **task.environment},
                )
            )


def end_group(pid: int, alive: Callable[[], bool]) -> None:
    """SIGTERM to a process group, and SIGKILL to what is still there after a grace."""
    if not alive():
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, sign)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            if not alive():
                return
            time.sleep(0.05)
