"""What a node tells while it works, for those who stream the graph: LangGraph's mode ``custom``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from graph.progress import Reporter, Update
from graph.rundir import RunDir

EVERY_SECONDS = 0.5
"""Between two words of one bar."""
QUIET = frozenset({"time", "node", "line"})
"""Events of the log that a stream does not repeat: LangGraph tells of nodes itself, and lines are told as such."""


class StreamingReporter(Reporter):
    """Tells the terminal and the log what `Reporter` tells, and the stream as well.

    ``writer`` is the stream of the node at work, None between nodes.
    """

    def __init__(self, run: RunDir, console: Console, *, stopped: Callable[[], bool]) -> None:
        super().__init__(run, console, stopped=stopped)
        self.writer: Callable[[Any], None] | None = None

    def event(self, kind: str, **fields: Any) -> None:
        super().event(kind, **fields)
        if kind not in QUIET:
            self._stream({"event": kind, **fields})

    def line(self, text: str, *, style: str | None = None, indent: int = 0) -> None:
        super().line(text, style=style, indent=indent)
        self._stream({"event": "line", "text": text})

    @contextmanager
    def bar(self, title: str) -> Iterator[Update]:
        with super().bar(title) as inner:
            last = 0.0

            def update(done: int, total: int, **figures: float) -> None:
                nonlocal last
                if done >= total or time.monotonic() - last >= EVERY_SECONDS:
                    last = time.monotonic()
                    self._stream({"event": "progress", "what": title, "done": done, "total": total, **figures})
                inner(done, total, **figures)

            yield update

    def _stream(self, said: dict[str, Any]) -> None:
        if self.writer is not None:
            self.writer(said)
