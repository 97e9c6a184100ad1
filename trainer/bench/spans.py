"""Seconds by what was going on: calls are timed from outside, and what one calls is taken off it."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


class Spans:
    """Exclusive seconds by name and step."""

    def __init__(self) -> None:
        self.step = 0
        self._seconds: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        self._inner: list[float] = []

    def timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def run(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return call(*arguments, **named)
            finally:
                whole = time.perf_counter() - began
                self._seconds[name][self.step] += whole - self._inner.pop()
                if self._inner:
                    self._inner[-1] += whole

        return run

    @contextmanager
    def watching(self, places: dict[tuple[Any, str], str]) -> Iterator[None]:
        """Time the attributes (owner, name) under the names given, until the end of the block."""
        with ExitStack() as stack:
            for (owner, attribute), name in places.items():
                before = getattr(owner, attribute)
                stack.callback(setattr, owner, attribute, before)
                setattr(owner, attribute, self.timed(name, before))
            yield

    def medians(self, steps: range) -> dict[str, float]:
        """Median over the steps of each name's seconds a step."""
        return {
            name: statistics.median(by_step.get(step, 0.0) for step in steps) for name, by_step in self._seconds.items()
        }
