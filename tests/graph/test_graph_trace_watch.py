"""Whoever watches a run: what is noted of its end, how often its page is drawn, and that none of it can end the run."""

from __future__ import annotations

import io
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from rich.console import Console

from agents.roles import load_roles
from graph import watch
from graph.prepare import prepare
from graph.progress import Stopped
from graph.report_state import At, standing
from graph.report_story import STEPS
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings
from graph.state import RunState
from graph.timing import Clock
from graph.trace_spans import from_trace
from graph.tracing import TRACE_FILE
from graph.watch import SHARE, Page, watched
from graph.work import Work


@pytest.fixture
def work(tmp_path: Path, profile: Path) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile), trace="full"))
    return new_work(prepared, RunDir(tmp_path), Console(file=io.StringIO(), width=400), Clock())


def drive(work: Work, node: Any) -> Any:
    """A run whose only node is this one."""
    graph: StateGraph[RunState] = StateGraph(RunState)
    graph.add_node("baseline", node)
    graph.add_edge(START, "baseline")
    graph.add_edge("baseline", END)
    work.reporter.event("session", session=work.session)
    compiled = watched(graph.compile(checkpointer=InMemorySaver(), name="envwright"), work)
    return compiled.invoke({"stage": 0}, {"configurable": {"thread_id": "1"}})


def begins(work: Work) -> None:
    work.reporter.event("node", node="baseline", stage=0)


def test_the_end_of_a_run_is_noted_and_its_page_says_so(work: Work) -> None:
    def node(_: RunState) -> RunState:
        begins(work)
        with work.reporter.bar("answering") as update:
            update(1, 2, valid=0.5)
        page = work.run.path("report/index.html").read_text()
        assert "at work" in page
        assert "data-reload" in page
        work.run.write("result.json", {})
        return RunState(stage=0)

    drive(work, node)
    events = work.run.events()
    assert [event["event"] for event in events] == ["session", "provenance", "node", "ended"]
    assert events[1]["versions"]["langgraph"]
    assert standing(events) == "done"
    assert "data-reload" not in work.run.path("report/index.html").read_text()
    assert [span.name for span in from_trace(work.run.path(TRACE_FILE))] == ["envwright", "baseline"]


@pytest.mark.parametrize(
    ("error", "how", "why"),
    [(Stopped(), "drained", ""), (ValueError("no\nluck"), "failed", "no luck"), (KeyError(), "failed", "KeyError")],
)
def test_an_error_is_noted_with_its_cause(work: Work, error: Exception, how: str, why: str) -> None:
    def node(_: RunState) -> RunState:
        begins(work)
        raise error

    with pytest.raises(type(error)):
        drive(work, node)
    last = work.run.events()[-1]
    assert (last["event"], last["how"], last["why"]) == ("ended", how, why)


def test_a_run_that_asks_a_person_waits(work: Work) -> None:
    def node(_: RunState) -> RunState:
        begins(work)
        return RunState(why=interrupt("may I?"))

    drive(work, node)
    assert standing(work.run.events()) == "waiting"


def test_a_page_that_cannot_be_drawn_costs_one_line(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no ink")

    def node(_: RunState) -> RunState:
        begins(work)
        begins(work)
        return RunState(revision=7)

    monkeypatch.setattr(watch, "write_report", fails)
    assert drive(work, node)["revision"] == 7
    said = [event["text"] for event in work.run.events() if event["event"] == "line"]
    assert said == ["the page is not drawn while the run works: no ink"]


@pytest.mark.parametrize("cost", [0.05, 0.5, 8.0])
def test_drawing_takes_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch, cost: float) -> None:
    now, drawn = [0.0], list[At]()

    def draws(*_: Any, at: At, **__: Any) -> None:
        now[0] += cost
        drawn.append(at)

    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    monkeypatch.setattr(watch, "write_report", draws)
    still = SimpleNamespace(exists=lambda _: False)
    page = Page(SimpleNamespace(run=still, environment=None, identity={}, roles=load_roles()))  # type: ignore[arg-type]
    page.heard("node", {"node": "train", "stage": 1})
    assert len(drawn) == 1, "a page is there from the start"
    assert drawn[0].steps == STEPS, "which names the run's own nodes"
    for step in range(8_000):
        now[0] += 0.7
        page.moved("training", step, 8_000, {})
    assert cost * (len(drawn) - 1) <= SHARE * now[0]
    assert cost * (len(drawn) + 1) >= SHARE * now[0] - cost, "and makes use of it"
    assert drawn[-1].title == "training"
