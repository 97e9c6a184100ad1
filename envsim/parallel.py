"""The same work on several processes: results in the order of the tasks, whatever the number of processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

from envsim.api import EnvsimError

T = TypeVar("T")
R = TypeVar("R")


def ordered(
    function: Callable[[T], R], tasks: Sequence[T], *, processes: int = 1, weight: Callable[[T], float] | None = None
) -> Iterator[R]:
    """``function`` of every task, in the order of the tasks.

    With several processes the heaviest by ``weight`` begin first, which keeps all of them busy to the end; ``function``
    and tasks must then be picklable. A task's error is raised in its turn, so the first in order is the one that comes
    through. Raises EnvsimError if ``processes`` is below 1.
    """
    if processes < 1:
        raise EnvsimError(f"the number of processes is {processes}; expected at least 1")
    if processes == 1 or len(tasks) < 2:
        yield from map(function, tasks)
        return
    order = sorted(range(len(tasks)), key=lambda k: -weight(tasks[k])) if weight else range(len(tasks))
    # Spawned: forking a process that may hold threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context) as pool:
        futures: dict[int, Future[R]] = {k: pool.submit(function, tasks[k]) for k in order}
        try:
            for k in range(len(tasks)):
                yield futures[k].result()
        finally:
            for future in futures.values():
                future.cancel()
