"""Tasks that go on by themselves when they are started again, followed to their end; one that was lost is restarted.

Evaluations and whole runs are such tasks; a stage has its own supervision, which also watches its heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from trainer.launch.contract import Job, Launcher, LaunchError, Task

_POLL_SECONDS = 0.2
_TAIL = 15


class LaunchStopped(LaunchError):
    """The caller asked to stop; the tasks are gone and go on when they are started again."""


class Followed:
    """One task. ``make`` is asked anew for each start, because the files may say that it goes on by another command."""

    def __init__(self, launcher: Launcher, make: Callable[[], Task]) -> None:
        self._launcher = launcher
        self._make = make
        self._left = launcher.retries
        self.task = make()
        self._job: Job = launcher.start(self.task)

    def step(self) -> int | None:
        """None while it goes on, also elsewhere; then its exit code. One that was killed too often keeps its signal."""
        code = self._job.poll()
        if code is None or code >= 0 or self._left == 0:
            return code
        self._left -= 1
        self.task = self._make()
        self._job = self._launcher.start(self.task)
        return None

    def stop(self) -> None:
        self._job.stop()


def finish(
    launcher: Launcher,
    tasks: Sequence[Task],
    *,
    stop: threading.Event | None = None,
    on_poll: Callable[[], None] | None = None,
) -> None:
    """Carry out all tasks at once; none is left behind whatever happens.

    Raises:
        LaunchStopped: ``stop`` was set.
        LaunchError: a task failed; with the end of its log.
    """
    followed: list[Followed] = []
    try:
        followed += [Followed(launcher, lambda task=task: task) for task in tasks]  # type: ignore[misc]
        left = list(followed)
        while left:
            if stop is not None and stop.is_set():
                raise LaunchStopped(f"{len(left)} of {len(tasks)} tasks were stopped; start again to go on")
            for one in list(left):
                code = one.step()
                if code is None:
                    continue
                if code != 0:
                    raise LaunchError(failure(one.task, code))
                left.remove(one)
            if on_poll is not None:
                on_poll()
            time.sleep(_POLL_SECONDS)
    finally:
        for one in followed:
            one.stop()


def failure(task: Task, code: int) -> str:
    """What to say of a task that failed, with the end of its log."""
    how = (
        f"was killed by signal {-code}, or its node was lost, too often" if code < 0 else f"ended with exit code {code}"
    )
    lines = task.log.read_text(encoding="utf-8", errors="replace").splitlines() if task.log.exists() else []
    return f"{task.name} {how}; the end of {task.log}:\n" + "\n".join(lines[-_TAIL:])
