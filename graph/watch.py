"""A run that can be watched: its page is drawn again while it works, its trace is written, and its end is noted.

``watched`` is all that whoever drives the graph must call, the command line and Studio alike. What it does is heard
through langchain's callbacks and the run's reporter; none of it decides anything, and none of it can end a run.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler

from agents.places import stage_order
from graph import layout
from graph.build import Graph
from graph.report import write_report
from graph.report_state import At
from graph.report_story import AFTER_DATASET
from graph.tracing import TRACE_FILE, JsonlTracer, content_wanted
from graph.work import Work

SHARE = 0.004
"""The most of a run's time that drawing the page between its stages may take."""
PACKAGES = ("envwright", "langchain-core", "langgraph", "numpy", "tokenizers", "torch", "transformers", "trl", "vllm")
QUIET_ENDS = ("Stopped", "LaunchStopped", "GraphDrained", "CancelledError", "KeyboardInterrupt")


def watched(graph: Graph, work: Work) -> Graph:
    """The graph with whoever listens to it: the page, the notes of its end, and the trace if the run asks for one."""
    handlers: list[BaseCallbackHandler] = [Ends(work)]
    work.reporter.watch(Page(work))
    content = content_wanted(work.run.root, work.settings.trace)
    if content is not None:
        trouble = work.reporter.line
        path = work.run.path(TRACE_FILE)
        handlers.append(JsonlTracer(path, session=work.session, content=content, trouble=trouble))
    return graph.with_config(callbacks=handlers)


class Ends(BaseCallbackHandler):
    """Notes in the log with what a session began and how it ended; one that has no end was killed."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def on_chain_start(self, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        if parent_run_id is None:
            self._note("provenance", session=self._work.session, **provenance())

    def on_chain_end(self, *_: Any, parent_run_id: UUID | None = None, **__: Any) -> None:
        if parent_run_id is None:
            finished = self._work.run.exists(layout.RESULT)
            self._note("ended", session=self._work.session, how="done" if finished else "waiting", why="")

    def on_chain_error(self, error: BaseException, *, parent_run_id: UUID | None = None, **_: Any) -> None:
        if parent_run_id is None:
            how = "drained" if type(error).__name__ in QUIET_ENDS else "failed"
            why = "" if how == "drained" else " ".join(str(error).split()) or type(error).__name__
            self._note("ended", session=self._work.session, how=how, why=why)

    def _note(self, kind: str, **fields: Any) -> None:
        # A full disk must not hide why the run ends.
        with suppress(OSError):
            self._work.reporter.event(kind, **fields)


class Page:
    """Draws ``report/index.html`` again after a node and while one works, as often as its share of the time allows."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._began = time.monotonic()
        self._spent = self._cost = 0.0
        self._steps = (*stage_order(work.roles), *AFTER_DATASET)
        self._at: At | None = None
        self._busy = False
        self._broken = False

    def heard(self, kind: str, fields: Mapping[str, Any]) -> None:
        """An event of the log."""
        match kind:
            case "node":
                first = self._at is None
                self._at = At(node=str(fields["node"]), stage=fields["stage"], since=time.time(), steps=self._steps)
                if first:
                    self._draw()
            case "time":
                self.draw_if_due()
            case "ended":
                self._at = None
                self._draw()

    def moved(self, title: str, done: int, total: int, figures: Mapping[str, float]) -> None:
        """Something that takes long went on."""
        if self._at is not None:
            self._at = self._at.model_copy(
                update={"title": title, "done": done, "total": total, "figures": dict(figures)}
            )
            self.draw_if_due()

    def draw_if_due(self) -> None:
        if self._spent + self._cost <= SHARE * (time.monotonic() - self._began):
            self._draw()

    def _draw(self) -> None:
        if self._busy or self._broken:
            return
        self._busy = True
        work, began = self._work, time.monotonic()
        try:
            # Replays need the set, and there are none before a stage has ended.
            decided = work.run.exists(layout.in_stage(0, "decision.json"))
            instances = work.frozen_set("validation") if decided else []
            write_report(work.run, work.environment, work.identity, instances, at=self._at)
        except Exception as error:
            # Whatever is wrong with it, a page must not end hours of training.
            self._broken = True
            work.reporter.line(f"the page is not drawn while the run works: {error}", style="yellow")
        self._busy = False
        self._cost = time.monotonic() - began
        self._spent += self._cost


def provenance() -> dict[str, Any]:
    """What computes: versions of what is installed, interpreter, machine."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return {
        "versions": found,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
    }
