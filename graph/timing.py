"""Where the time goes: every second of the process belongs to exactly one category.

Spans nest; an inner span takes its time away from the outer one, so the categories add up to the wall time. Each is a
step of the run's trace as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from graph.tracing import step

Category = Literal["start-up", "instances", "training", "evaluation", "roles", "other"]

CATEGORIES: tuple[Category, ...] = get_args(Category)
TITLES: dict[Category, str] = {
    "start-up": "start-up of processes",
    "instances": "generation of instances",
    "training": "training",
    "evaluation": "evaluation and probes",
    "roles": "roles",
    "other": "everything else",
}


class Clock:
    """Exclusive wall time by category, from ``started`` on. One thread at a time enters spans."""

    def __init__(self, started: float | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._mark = now() if started is None else started
        self._stack: list[Category] = ["other"]
        self._seconds: dict[Category, float] = dict.fromkeys(CATEGORIES, 0.0)

    @contextmanager
    def span(self, category: Category) -> Iterator[None]:
        self._charge()
        self._stack.append(category)
        try:
            with step(category):
                yield
        finally:
            self._charge()
            self._stack.pop()

    def move(self, seconds: float, source: Category, target: Category) -> None:
        """Book time that a span measured as one thing, but a worker knows to be another."""
        self._charge()
        seconds = min(seconds, self._seconds[source])
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def seconds(self) -> dict[str, float]:
        """Seconds by category up to now."""
        self._charge()
        return {category: round(value, 3) for category, value in self._seconds.items()}

    def _charge(self) -> None:
        now = self._now()
        self._seconds[self._stack[-1]] += now - self._mark
        self._mark = now


def total(sessions: list[dict[str, float]]) -> dict[str, float]:
    """Seconds by category over all processes that worked on a run."""
    return {category: round(sum(one.get(category, 0.0) for one in sessions), 3) for category in CATEGORIES}
