"""Worker processes forked from one that has imported torch and TRL: the same code without the seconds of start-up.

For runs that repeat a stage many times. A forked worker is what `LocalLauncher` starts but for the interpreter's own
start: new session, output to the log, the environment given, exit code by the same rules. The process it is forked from
must have used neither torch's threads nor a device; importing is no use.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trainer import worker
from trainer.imports import prepare
from trainer.launch.contract import LaunchError, Task
from trainer.launch.local import LocalJob
from trainer.processes import GRACE_SECONDS
from trainer.usage import Usage


class Forked:
    """A forked child, as `trainer.processes.Process` asks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None
        self.usage = Usage()
        """What it used, once it has ended."""

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        """None while it runs; then its exit code, or minus the signal that killed it."""
        if self._code is None:
            found, status, used = os.wait4(self._pid, os.WNOHANG)
            if found:
                self.usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss)
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def import_worker() -> None:
    """Import what a worker imports."""
    prepare()
    import trainer.grpo  # noqa: F401, PLC0415 - takes seconds, and reads what was prepared


class ForkLauncher:
    """Workers of one process as forks of this one."""

    name = "fork"
    retries = 1

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds

    def start(self, task: Task) -> LocalJob:
        module = task.arguments.index("-m") + 1
        if task.arguments[module] != worker.__name__:
            raise LaunchError(f"{task.name} runs {task.arguments[module]}, expected {worker.__name__} to fork")

        def work() -> int:
            let_go_of_files()
            os.environ.update(task.environment)
            return worker.main(task.arguments[module + 1 :])

        return LocalJob(fork(work, task.log), self.grace_seconds)


def let_go_of_files() -> None:
    """What the start of a program would have closed, locks above all: one is held until the last process lets it go.

    The numbers stay taken, since objects of the parent live on here that may close them.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in map(int, os.listdir("/proc/self/fd")):
        # The listing itself was open too, and is no more.
        with suppress(OSError):
            if number > 2 and not os.get_inheritable(number):
                os.dup2(nothing, number, inheritable=False)


def fork(work: Callable[[], int], log: Path) -> Forked:
    """Run a function in a new process that leads a session of its own; what it returns is the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    # Opened here, so that a full disk is told of on this side.
    target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    pid = os.fork()
    if pid:
        os.close(target)
        return Forked(pid)
    code = 1
    try:
        os.setsid()
        for sign in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sign, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(target, 1)
        os.dup2(target, 2)
        code = work()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        # As the interpreter does at its end; this process must not return into its parent's stack.
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
