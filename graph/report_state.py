"""Where a run stands, as its log tells it: at which node, how each session ended, and what computed.

The log alone cannot tell a run at work from one that was killed: neither has written an end. Who holds the lock can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from graph.settings import Frozen

How = Literal["running", "done", "waiting", "drained", "failed"]
HOWS: tuple[How, ...] = ("done", "waiting", "drained", "failed")


class At(Frozen):
    """What a run does at this moment. ``since`` is when its node began, in seconds since 1970."""

    node: str
    stage: int | None
    since: float
    title: str = ""
    done: int = 0
    total: int = 0
    figures: dict[str, float] = Field(default_factory=dict)
    steps: tuple[str, ...] = ()
    """The nodes of a designed stage of this run in their order; empty = those of the shipped roles."""


class Session(Frozen):
    """One process that began on a run; ``ended`` is the time of its last word."""

    name: str
    started: float
    ended: float
    how: How
    why: str
    provenance: dict[str, Any]
    worked: bool
    """Whether a node began in it."""


def begun(events: Sequence[dict[str, Any]]) -> list[Session]:
    """All processes that began on the run, in order. One that noted no end counts as running."""
    found: list[dict[str, Any]] = []
    for event in events:
        kind, time = event.get("event"), event.get("time")
        if not isinstance(time, int | float):
            continue
        if kind == "session":
            name = str(event.get("session"))
            found.append(
                {"name": name, "started": time, "how": "running", "why": "", "provenance": {}, "worked": False}
            )
        if not found:
            continue
        last = found[-1]
        last["ended"] = time
        if kind == "node":
            # A process that asked at its terminal goes on after it noted that it waits.
            last |= {"worked": True, "how": "running", "why": ""}
        elif kind == "provenance":
            last["provenance"] = {key: event[key] for key in ("versions", "python", "system") if key in event}
        elif kind == "done":
            last["how"] = "done"
        elif kind == "ended" and event.get("how") in HOWS:
            last |= {"how": event["how"], "why": str(event.get("why") or "")}
    return [Session(**one) for one in found]


def sessions(events: Sequence[dict[str, Any]]) -> list[Session]:
    """All processes that got to work, in order."""
    return [one for one in begun(events) if one.worked]


def last_word(events: Sequence[dict[str, Any]]) -> Session | None:
    """The process that says how the run stands: the last that got to work or noted an end, such as that it waits."""
    return next((one for one in reversed(begun(events)) if one.worked or one.how != "running"), None)


def standing(events: Sequence[dict[str, Any]]) -> How:
    """How the run stands by its log; running if the last word on it is no end, or there is none yet."""
    last = last_word(events)
    return "running" if last is None else last.how
