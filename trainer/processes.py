"""Processes of this machine: how they come to be, and how they and what they started are ended, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

GRACE_SECONDS = 10.0
"""From SIGTERM, at which a worker saves a checkpoint, to SIGKILL, where nothing else is said."""
DRAIN_RANKS = signal.SIGUSR1
"""What SIGTERM is for a worker of one process, for those of several: by SIGTERM their agent kills those that wait for
one that died."""


class Process(Protocol):
    """A child of this process that leads a process group of its own; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None while it runs; then its exit code, or minus the signal that killed it."""
        ...


def spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """The command as leader of a new session, with its output appended to a file."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=dict(environment),
        )


def running(child: Process) -> bool:
    """Whether a child runs; once it does not, nothing that it started in its group does either."""
    if _running(child.pid):
        return True
    sweep(child)
    return child.poll() is None


def end_own(child: Process, grace_seconds: float) -> None:
    """SIGTERM to a child and, after the grace, SIGKILL to it and to what is left of its group."""
    if _running(child.pid):
        _signal(child.pid, signal.SIGTERM)
        _wait(lambda: _running(child.pid), grace_seconds)
    sweep(child)
    _wait(lambda: child.poll() is None, grace_seconds)


def sweep(child: Process) -> None:
    """Kill a child and all of its process group, unless it has been waited for: its id may be another's then."""
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    _signal(child.pid, signal.SIGKILL)


def end(pid: int, alive: Callable[[], bool], grace_seconds: float) -> None:
    """SIGTERM to a process that is no child of this one and, after the grace, SIGKILL.

    Args:
        pid: its id.
        alive: whether the process of that id is still the one that is meant, by its recorded start.
        grace_seconds: from the first signal to the second.
    """
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if not alive():
            return
        _signal(pid, sign)
        _wait(alive, grace_seconds)


def _running(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _signal(pid: int, sign: int) -> None:
    """To the process's group where it leads one, else to it alone: another's group is not ours to end."""
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, sign)
        else:
            os.kill(pid, sign)
    except ProcessLookupError:
        return


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while condition() and time.monotonic() < deadline:
        time.sleep(0.05)
