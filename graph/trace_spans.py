"""A run as a tree of spans: from ``trace.jsonl``, or as far as ``events.jsonl`` tells it.

Torn lines are left out. A span without an end was cut by a kill, or is at work.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from graph.report_state import sessions
from graph.rundir import RunDir
from graph.settings import Frozen
from graph.tracing import TRACE_FILE

WORDS = {"failed": "failed", "waiting": "waits", "drained": "drained"}
"""Ends of a session that are worth a word, as a span says them."""
OUTSIDE = ("baseline", "report")
"""Nodes that belong to no stage."""
LAUNCH = "launch_stage"
"""The tool that trains a stage, or reads one that was trained."""
Kind = Literal["run", "node", "step", "model", "tool"]


class Span(Frozen):
    """One thing that took time. Times are seconds since 1970; ``seconds`` is None while it has no end."""

    id: str
    parent: str | None
    session: str
    kind: Kind
    name: str
    started: float
    seconds: float | None = None
    stage: int | None = None
    role: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    input: str | None = None
    output: str | None = None


class Timeline(Frozen):
    """All spans of a run in the order of their starts, and where they were read."""

    source: Literal["trace.jsonl", "events.jsonl"]
    spans: list[Span]


def timeline(run: RunDir) -> Timeline:
    """The run's trace, else what its events tell."""
    events = run.events()
    traced = from_trace(run.path(TRACE_FILE))
    if traced:
        return Timeline(source="trace.jsonl", spans=counted_once(with_ends(traced, events)))
    return Timeline(source="events.jsonl", spans=counted_once(with_ends(from_events(events), events)))


def counted_once(spans: Sequence[Span]) -> list[Span]:
    """The spans, with the tokens of a stage's training where it trained, and none where it was only read again.

    A node that is passed once more asks for its stage as before, and gets the result that lies there.
    """
    seen: set[tuple[Any, ...]] = set()
    found = []
    for span in spans:
        what = (span.stage, span.output_tokens, span.output)
        trained = span.name == LAUNCH and span.kind == "tool" and bool(span.output_tokens)
        if trained and what in seen:
            found.append(span.model_copy(update={"output_tokens": None, "finish_reason": "read again"}))
            continue
        if trained:
            seen.add(what)
        found.append(span)
    return found


def with_ends(spans: Sequence[Span], events: Sequence[dict[str, Any]]) -> list[Span]:
    """The spans, with how each session ended, and why if it failed, where the log has a word on it."""
    ends = {one.name: one for one in sessions(events)}
    found = []
    for span in spans:
        end = ends.get(span.session)
        if span.kind != "run" or end is None or end.how not in WORDS:
            found.append(span)
        elif end.how == "failed":
            found.append(span.model_copy(update={"error": f"failed: {end.why}"}))
        else:
            found.append(span.model_copy(update={"finish_reason": WORDS[end.how]}))
    return found


def from_trace(path: Path) -> list[Span]:
    """The spans of a trace; records that are no records, and ends without a start, count nothing."""
    open_spans: dict[str, dict[str, Any]] = {}
    for record in _records(path):
        match record.get("record"):
            case "start":
                open_spans[record["id"]] = {
                    "started": record["time"],
                    **{name: record.get(name) for name in START_FIELDS},
                }
            case "end" if record.get("id") in open_spans:
                open_spans[record["id"]] |= {name: record.get(name) for name in END_FIELDS}
    spans = [Span.model_validate(fields) for fields in open_spans.values()]
    return with_stages(sorted(spans, key=lambda span: span.started))


START_FIELDS = ("id", "parent", "session", "kind", "name", "stage", "role", "model", "input")
END_FIELDS = ("seconds", "input_tokens", "output_tokens", "finish_reason", "error", "output")


def _records(path: Path) -> Iterable[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and {"id", "time"} <= record.keys():
            yield record


def with_stages(spans: Sequence[Span]) -> list[Span]:
    """The spans with the stage and the role of the node that they lie in."""
    known: dict[str, Span] = {}
    for span in spans:
        above = known.get(span.parent or "")
        if span.kind == "node" and span.name in OUTSIDE:
            # Its state already names the stage that would come next.
            known[span.id] = span.model_copy(update={"stage": None})
        elif above is not None and above.kind != "run":
            stage = above.stage if span.stage is None else span.stage
            known[span.id] = span.model_copy(update={"stage": stage, "role": span.role or above.role})
        else:
            known[span.id] = span
    return list(known.values())


def from_events(events: Sequence[dict[str, Any]]) -> list[Span]:
    """Sessions and nodes with their times, roles with their tokens, and within them the tools that they called: what
    the log of a run tells, in the order in which it began."""
    spans: dict[str, Span] = {}
    session = node = ""
    # Of the node at work: tools whose role has yet to speak, and when the last role had spoken.
    called: list[str] = []
    spoken = 0.0
    for number, event in enumerate(events):
        kind, time = event.get("event"), event.get("time")
        if not isinstance(time, int | float):
            continue
        if kind == "session" or (kind == "node" and not session):
            session, node = str(event.get("session") or "1"), ""
            spans[session] = Span(id=session, parent=None, session=session, kind="run", name="run", started=time)
        if kind == "node":
            node = f"{session}/{number}"
            called, spoken = [], time
            stage = None if event.get("node") in OUTSIDE else event.get("stage")
            spans[node] = Span(
                id=node,
                parent=session,
                session=session,
                kind="node",
                name=str(event.get("node")),
                started=time,
                stage=stage if isinstance(stage, int) else None,
            )
        elif kind == "time" and session:
            ended = {session, *(name for name in (node,) if name in spans and spans[name].seconds is None)}
            for name in ended & spans.keys():
                spans[name] = spans[name].model_copy(update={"seconds": time - spans[name].started})
        elif node in spans and kind == "ended" and event.get("how") == "failed":
            spans[node] = spans[node].model_copy(update={"error": str(event.get("why"))})
        elif node in spans and kind == "tool":
            called.append(f"{session}/{number}")
            spans[called[-1]] = _tool(event, spans[node], called[-1])
        elif node in spans and kind == "said" and "tokens" in event:
            own = _said(event, spans[node], f"{session}/{number}", since=spoken)
            spans[own.id] = own
            for name in called:
                if own.role is not None and spans[name].role == own.role:
                    spans[name] = spans[name].model_copy(update={"parent": own.id})
            called, spoken = [], time
    found = [span for span in spans.values() if span.kind != "run" or _has_children(span, spans.values())]
    return sorted(found, key=lambda span: span.started)


def _has_children(span: Span, spans: Iterable[Span]) -> bool:
    return any(one.parent == span.id for one in spans)


def _tool(event: dict[str, Any], node: Span, name: str) -> Span:
    """A tool's call, as the log has it: told of when it was over."""
    seconds = event.get("seconds")
    took = float(seconds) if isinstance(seconds, int | float) else event["time"] - node.started
    return _inside(event, node, name, kind="tool", called=event.get("name"), started=event["time"] - took, took=took)


def _said(event: dict[str, Any], node: Span, name: str, *, since: float) -> Span:
    """A role's answer, which the log tells of when it was there; it began when the node or the role before it let it,
    so that its tools lie within it."""
    took = event["time"] - since
    return _inside(event, node, name, kind="model", called=event.get("role"), started=since, took=took)


def _inside(
    event: dict[str, Any], node: Span, name: str, *, kind: Kind, called: Any, started: float, took: float
) -> Span:
    tokens = event.get("tokens")
    return Span(
        id=name,
        parent=node.id,
        session=node.session,
        kind=kind,
        name=str(called),
        started=started,
        seconds=took,
        stage=node.stage,
        role=event.get("role"),
        output_tokens=tokens if isinstance(tokens, int) else None,
        error=event.get("error"),
    )


def where_time_went(spans: Sequence[Span]) -> list[dict[str, Any]]:
    """By kind and name: calls, seconds that no span inside took, and tokens; the longest first."""
    inside: dict[str, float] = {}
    for span in spans:
        if span.parent is not None:
            inside[span.parent] = inside.get(span.parent, 0.0) + (span.seconds or 0.0)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for span in spans:
        row = found.setdefault(
            (span.kind, span.name),
            {"kind": span.kind, "name": span.name, "calls": 0, "seconds": 0.0, "own_seconds": 0.0, "tokens": 0},
        )
        row["calls"] += 1
        row["seconds"] += span.seconds or 0.0
        row["own_seconds"] += max(0.0, (span.seconds or 0.0) - inside.get(span.id, 0.0))
        row["tokens"] += (span.input_tokens or 0) + (span.output_tokens or 0)
    return sorted(found.values(), key=lambda row: -row["own_seconds"])
