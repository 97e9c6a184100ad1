"""What a person sees while a run works, and the same as events in ``events.jsonl``.

On a terminal: bars and coloured lines. Elsewhere: plain lines, and a bar becomes one line at each quarter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from graph.rundir import RunDir
from graph.words import clipped

Update = Callable[..., None]
"""Called with (done, total) and named figures to show, e.g. ``update(12, 40, reward=0.61)``."""

ROLE_COLOURS = {
    "failure_analyst": "magenta",
    "config_designer": "cyan",
    "gates": "yellow",
    "safety_critic": "red",
    "trainer": "green",
}
REFRESH_SECONDS = 5.0


class Stopped(Exception):
    """A drain was asked for; raised where work can stop and go on later."""


class Watcher(Protocol):
    """Hears what a run does; it must not fail."""

    def heard(self, kind: str, fields: Mapping[str, Any]) -> None:
        """An event, once it is in the log."""

    def moved(self, title: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        """A bar moved."""


class Reporter:
    """Speaks to the person, writes the event log and tells whoever watches."""

    def __init__(self, run: RunDir | None, console: Console, *, stopped: Callable[[], bool] = lambda: False) -> None:
        self._run = run
        self._console = console
        self._stopped = stopped
        self._watchers: list[Watcher] = []

    def watch(self, watcher: Watcher) -> None:
        """From now on the watcher hears every event and every move of a bar."""
        self._watchers.append(watcher)

    def event(self, kind: str, **fields: Any) -> None:
        """For the log, and for whoever watches."""
        if self._run is not None:
            self._run.append_event({"event": kind, **fields})
        for watcher in self._watchers:
            watcher.heard(kind, fields)

    def line(self, text: str, *, style: str | None = None, indent: int = 0) -> None:
        """One line for the person, kept in the log too."""
        self._console.print(" " * indent + escape(text), style=style, highlight=False, soft_wrap=True)
        self.event("line", text=text)

    def failure(self, text: str) -> None:
        """Why the process ends. The log may be what cannot be written, and must not hide the cause."""
        with suppress(OSError):
            self.line(f"error: {text}", style="red")

    def hint(self, text: str) -> None:
        """What to do about a failure, which must not hide it either."""
        with suppress(OSError):
            self.line(text, style="yellow")

    def heading(self, text: str) -> None:
        if self._console.is_terminal:
            self._console.rule(f"[bold]{escape(text)}", align="left")
        else:
            self._console.print(f"== {escape(text)}", highlight=False)
        self.event("heading", text=text)

    def say(self, role: str, text: str, *, fallback: bool = False, **fields: Any) -> None:
        """One role's word in one line; the mark shows that a rule spoke for it."""
        mark = " (fallback)" if fallback else ""
        colour = ROLE_COLOURS.get(role, "blue")
        name = escape(role.replace("_", " "))
        line = f"  [{colour}]{name}{mark}[/] {escape(clipped(text))}"
        self._console.print(line, highlight=False, soft_wrap=True)
        self.event("said", role=role, text=text, fallback=fallback, **fields)

    def show(self, renderable: Any) -> None:
        self._console.print(renderable)

    def check(self) -> None:
        """Raise Stopped if a drain was asked for."""
        if self._stopped():
            raise Stopped

    @contextmanager
    def bar(self, title: str) -> Iterator[Update]:
        """A bar whose update function also is the place where a drain takes hold."""
        if self._console.is_terminal:
            with self._live_bar(title) as update:
                yield self._told(title, update)
        else:
            yield self._told(title, self._plain_bar(title))

    def _told(self, title: str, update: Update) -> Update:
        """The update, heard by whoever watches."""

        def moved(done: int, total: int, **figures: float) -> None:
            update(done, total, **figures)
            for watcher in self._watchers:
                watcher.moved(title, done, total, figures)

        return moved

    @contextmanager
    def _live_bar(self, title: str) -> Iterator[Update]:
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[figures]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(title, total=None, figures="")

            def update(done: int, total: int, **figures: float) -> None:
                progress.update(task, completed=done, total=total, figures=_figures(figures))
                self.check()

            yield update

    def _plain_bar(self, title: str) -> Update:
        last_quarter, last_time = -1, time.monotonic()

        def update(done: int, total: int, **figures: float) -> None:
            nonlocal last_quarter, last_time
            quarter = 4 * done // max(total, 1)
            if quarter > last_quarter and time.monotonic() - last_time > REFRESH_SECONDS:
                self._console.print(f"  {title} {done}/{total} {_figures(figures)}".rstrip(), highlight=False)
                last_quarter, last_time = quarter, time.monotonic()
            self.check()

        return update


def _figures(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in figures.items())
