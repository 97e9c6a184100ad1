"""What befalls a run at work: how and where it is struck, by real means. `graph.soak` judges what is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from graph import layout
from graph.progress import Reporter
from graph.rundir import RunDir
from trainer.attempts import attempts, live_worker
from trainer.disturb import send
from trainer.forking import Forked

Kind = Literal[
    "kill before",
    "kill after",
    "kill inside",
    "kill with worker",
    "terminate",
    "two resumers",
    "lost database",
    "torn database",
    "full disk",
    "read-only disk",
]
"""``kill before`` and ``after``: at a node's very first and last word, when its predecessor's checkpoint is written and
its own is not; all others strike at a random moment inside it."""

ON_DISK: tuple[Kind, ...] = ("full disk", "read-only disk")
"""Those that need a small file system of their own."""
SELF: dict[Kind, str] = {"kill before": "node", "kill after": "time"}
"""The event of the log at whose writing the process ends itself."""


@dataclass(frozen=True)
class Visit:
    """One node's turn in a run: the how manieth, what it was, and how long it took when nothing disturbed it."""

    number: int
    node: str
    stage: int | None
    seconds: float

    def __str__(self) -> str:
        return f"{self.node} of stage {self.stage or 0:03d}"


def visits(run: RunDir) -> list[Visit]:
    """Every node's turn in an undisturbed run's log, in order."""
    begun = [event for event in run.events() if event["event"] == "node"]
    ended = [event for event in run.events() if event["event"] == "time"]
    return [
        Visit(number, node["node"], node["stage"], max(0.0, end["time"] - node["time"]))
        for number, (node, end) in enumerate(zip(begun, ended, strict=False))
    ]


def striking_reporter(kind: Kind, number: int) -> Callable[..., Reporter]:
    """A reporter that kills its own process at the first or last word of a visit; else it only reports."""
    at = SELF.get(kind)

    class Struck(Reporter):
        def __init__(self, run: RunDir, console: Console, *, stopped: Callable[[], bool]) -> None:
            super().__init__(run, console, stopped=stopped)
            self._seen = 0

        def event(self, kind: str, **fields: Any) -> None:
            super().event(kind, **fields)
            if kind == at:
                if self._seen == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                self._seen += 1

    return Struck


def await_moment(process: Forked, root: Path, visit: Visit, delay: float) -> bool:
    """Wait until so long after the visit's beginning; False if the process has ended before."""
    run = RunDir(root)
    while process.poll() is None:
        if sum(event["event"] == "node" for event in run.events()) > visit.number:
            end = time.monotonic() + delay
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.005)
            return process.poll() is None
        time.sleep(0.01)
    return False


def workers(root: Path) -> list[int]:
    """Training processes of a run that live."""
    found = [live_worker(attempt) for stage in sorted(root.glob("stages/*")) for attempt in attempts(stage)]
    return [pid for pid in found if pid is not None]


def strike(kind: Kind, process: Forked, root: Path) -> None:
    """A signal to the run, and to its worker where the kind says so."""
    send(process.pid, signal.SIGTERM if kind == "terminate" else signal.SIGKILL)
    if kind == "kill with worker":
        for pid in workers(root):
            send(pid, signal.SIGKILL)


def damage_database(kind: Kind, root: Path) -> None:
    """Remove or tear the checkpointer's database of a run whose process is dead."""
    for path in root.glob(f"{layout.DATABASE}*"):
        if kind == "lost database":
            path.unlink()
        elif path.name == layout.DATABASE:
            os.truncate(path, path.stat().st_size // 2)
