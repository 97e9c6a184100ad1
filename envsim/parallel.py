"""The same work on several processes: results in the order of the tasks, whatever the number of processes.

Workers leave the keyboard's interrupts to the process that started them, and end with it, however it ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from typing import ParamSpec, TypeVar

from envsim.api import EnvsimError

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
ENDING = (signal.SIGINT, signal.SIGTERM)


class WorkerError(RuntimeError):
    """A process that did a part of the work is gone: killed, or out of memory."""


class _Start:
    """How worker processes begin, everywhere in this process."""

    method = "spawn"


def let_workers_fork() -> None:
    """Begin workers as copies of this process from now on, where the system can: they need import nothing again.

    For programs to say that have no threads but numpy's, which are ready for it: a copy of a process in which another
    thread holds a lock can hang, and a library does not know in what it runs. So without this they are spawned.
    """
    if sys.platform == "linux":
        _Start.method = "fork"


def ordered(
    function: Callable[[T], R], tasks: Sequence[T], *, processes: int = 1, weight: Callable[[T], float] | None = None
) -> Iterator[R]:
    """``function`` of every task, in the order of the tasks.

    With several processes the heaviest by ``weight`` begin first, which keeps all of them busy to the end; ``function``
    and tasks must then be picklable. A task's error is raised in its turn, so the first in order is the one that comes
    through. Raises EnvsimError if ``processes`` is below 1, WorkerError if one of them is killed.
    """
    if processes < 1:
        raise EnvsimError(f"the number of processes is {processes}; expected at least 1")
    if processes == 1 or len(tasks) < 2:
        yield from map(function, tasks)
        return
    order = sorted(range(len(tasks)), key=lambda k: -weight(tasks[k])) if weight else range(len(tasks))
    with workers(min(processes, len(tasks))) as pool:
        futures: dict[int, Future[R]] = {k: pool.submit(function, tasks[k]) for k in order}
        for k in range(len(tasks)):
            yield futures[k].result()


@contextmanager
def workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes; left with an error, or before all is done, they are ended at once.

    Raises WorkerError if one of them is killed.
    """
    pool = _Pool(processes, mp_context=multiprocessing.get_context(_Start.method), initializer=_begin)
    try:
        yield pool
    except BaseException as error:
        pool.terminate()
        if isinstance(error, BrokenProcessPool):
            raise WorkerError(
                "a worker process was killed before its work was done, by somebody or for want of memory; run it "
                "again, with fewer processes if memory was short"
            ) from error
        raise
    finally:
        pool.shutdown()


class _Pool(ProcessPoolExecutor):
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        with _interrupts_held():
            return super().submit(fn, *args, **kwargs)

    def terminate(self) -> None:
        # A method of the library's own came with Python 3.14.
        for process in list((self._processes or {}).values()):
            process.terminate()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold signals back while processes are started: no process is left half started, and none sees one before
    ``_begin``."""
    with _deferred(), _blocked():
        yield


@contextmanager
def _deferred() -> Iterator[None]:
    """Call the handlers of this process afterwards. The mask does not do: libraries have threads without it."""
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in ENDING:
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _blocked() -> Iterator[None]:
    """Block the signals, which the started process inherits."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    if _Start.method != "fork":
        # Starting it later would lift the mask.
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Begin a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A forked one has the handler of the process that it is a copy of.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # What a worker makes it keeps until it hands it over; looking through all of it again and again finds nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
