"""The parts of the report that tell what happened: who said what at which cost, gates, time line, provenance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from graph import words
from graph.report_state import At
from graph.trace_spans import Span

SEEN_SHOWN = 6000
"""Characters of one message that a role saw."""
LANES = {
    "train": "training",
    "dataset": "tasks",
    "baseline": "evaluation",
    "evaluate": "evaluation",
    "report": "evaluation",
    "gates": "gates",
}
GATES = {
    "G1": "schema, yield",
    "G2": "learnability",
    "G3": "trivial mass",
    "G4": "hopeless mass",
    "G5": "difficulty floor",
    "G6": "trust region",
    "G7": "coordination",
    "G8": "calibration",
}
LANE_NAMES = ("training", "evaluation", "tasks", "gates", "roles and decisions")
AFTER_DATASET = ("train", "evaluate", "accept_or_roll_back")
STEPS = (
    "evidence",
    "failure_analyst",
    "config_designer",
    "gates",
    "safety_critic",
    "approval",
    "settle",
    "trainer",
    "dataset",
    *AFTER_DATASET,
)
FIRST_STEPS = ("settle", "dataset", *AFTER_DATASET)
"""The nodes of a designed stage with the shipped roles, and of stage 000, where the run does not say its own."""


def talk(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The stages in which somebody spoke, newest first: turns in order, with their cost."""
    stages = [*summary["stages"], *([summary["open"]] if summary["open"] else [])]
    found = [{"stage": stage["stage"], "turns": turns(stage, summary)} for stage in stages]
    return [one for one in reversed(found) if one["turns"]]


def turns(stage: dict[str, Any], summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Roles, gates and tools of a stage in the order in which they spoke, whatever roles the run has."""
    seconds = Spent(summary["spans"], stage["stage"])
    order = spoken_order(summary["spans"], stage["stage"])
    alone = [turn(name, answer, seconds) for name, answer in stage["answers"].items()]
    alone += [turn(key, note, seconds) | {"kind": "note"} for key, note in stage["notes"].items()]
    rounds = [
        reviewed(review, seconds, order, number, len(stage["rounds"])) for number, review in enumerate(stage["rounds"])
    ]
    proposals = [one for one in rounds[0] if one["kind"] == "proposal"] if rounds else []
    designs = rank(proposals[0], order) if proposals else rank_of("config_designer", order)
    alone.sort(key=lambda one: rank(one, order))
    said = [one for one in alone if rank(one, order) < designs]
    said += [one for review in rounds for one in review]
    said += [one for one in alone if rank(one, order) >= designs]
    for event in summary["tools"]:
        if event.get("stage") == stage["stage"]:
            owner = next((one for one in reversed(said) if made_by(one, event)), None)
            if owner is not None:
                owner["tools"].append(call(event))
    return said


def reviewed(
    review: dict[str, Any], seconds: Spent, order: Sequence[str], number: int, of: int
) -> list[dict[str, Any]]:
    """The turns of one proposal: whoever wrote it, the gates, the critic, and notes beside them."""
    note = f"proposal {number + 1} of {of}" if of > 1 else ""
    said = [turn("config_designer", review["proposal"], seconds) | {"kind": "proposal"}]
    if review["gates"]:
        took = seconds.of("gates", "node")
        said.append({"role": "gates", "kind": "gates", "gates": review["gates"], "seconds": took, "tools": []})
    if review["critique"]:
        said.append(turn("safety_critic", review["critique"], seconds) | {"kind": "critique"})
    said += [turn(key, found, seconds) | {"kind": "note"} for key, found in review["notes"].items()]
    said.sort(key=lambda one: rank(one, order, "safety_critic"))
    if review.get("approval"):
        said.append({"role": "a person", "kind": "approval", "word": person(review["approval"]), "tools": []})
    return [one | {"note": note, "revision": number} for one in said]


def person(approval: dict[str, Any]) -> str:
    """A person's word on a proposal."""
    if approval.get("edited"):
        return "put another proposal in its place"
    return "approved it" if approval["approved"] else "rejected it"


def spoken_order(spans: Sequence[Span], stage: int) -> list[str]:
    """The nodes of a stage in the order in which they first ran, as the log tells it."""
    return list(dict.fromkeys(span.name for span in spans if span.kind == "node" and span.stage == stage))


def rank(one: dict[str, Any], order: Sequence[str], otherwise: str = "evidence") -> float:
    """Where in its stage somebody spoke; of a log that does not say, where the shipped role of that kind does."""
    shipped = {
        "diagnosis": "failure_analyst",
        "proposal": "config_designer",
        "gates": "gates",
        "critique": "safety_critic",
        "budget": "trainer",
    }
    return rank_of(one["role"] if one["role"] in order else shipped.get(one["kind"], otherwise), order)


def rank_of(name: str, order: Sequence[str]) -> float:
    return float(order.index(name) if name in order else STEPS.index(name))


def made_by(one: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether a call of a tool belongs to this turn; a stage is launched with the answer of who gave the budget."""
    role, revision = event.get("role"), event.get("revision")
    if role is None:
        return bool(one["kind"] == "budget")
    return bool(one["role"] == role and (revision is None or one["revision"] in (None, revision)))


def kind_of(parsed: Any) -> str:
    """What an answer is, by its fields."""
    keys = {"dominant_fault": "diagnosis", "verdict": "critique", "changes": "proposal", "steps": "budget"}
    return next((kind for key, kind in keys.items() if isinstance(parsed, dict) and key in parsed), "note")


def turn(name: str, answer: dict[str, Any], seconds: Spent) -> dict[str, Any]:
    """One answer with what it saw and what it cost; ``name`` is whose it is if it does not say."""
    attempts = answer.get("attempts") or []
    parsed = answer.get("parsed")
    seen = answer.get("seen")
    role = str(answer.get("role") or name)
    cost = answer.get("cost") or {"input_tokens": sum(one["input_tokens"] for one in attempts if isinstance(one, dict))}
    return {
        "role": role,
        "kind": kind_of(parsed),
        "by": answer.get("by", role),
        "model": answer.get("model"),
        "fallback": bool(answer.get("fallback")),
        "answer": answer,
        "data": None if parsed is None else json.dumps(parsed, indent=1, ensure_ascii=False),
        "seen": [(one["role"], clipped(one["content"])) for one in seen] if isinstance(seen, list) else [],
        "attempts": attempts,
        "input_tokens": cost["input_tokens"],
        "output_tokens": answer.get("tokens", 0),
        "rollouts": cost.get("probe_rollouts", 0),
        "seconds": seconds.of(role, "model"),
        "tools": [],
        "note": "",
        "revision": None,
    }


def call(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args") or {}
    return {
        "text": f"{event.get('name')}({', '.join(f'{name}={value}' for name, value in arguments.items())})",
        "seconds": event.get("seconds"),
        "tokens": event.get("tokens"),
        "error": event.get("error"),
    }


class Spent:
    """Seconds of what happened in a stage, handed out in the order in which it did."""

    def __init__(self, spans: Sequence[Span], stage: int) -> None:
        self._spans = [span for span in spans if span.stage == stage]

    def of(self, name: str, kind: str) -> float | None:
        """Of the next span of this name that was not asked for yet; None if the log has none."""
        for span in self._spans:
            if span.name == name and span.kind == kind:
                self._spans.remove(span)
                return span.seconds
        return None


def clipped(text: str) -> str:
    more = len(text) - SEEN_SHOWN
    return text if more <= 0 else f"{text[:SEEN_SHOWN]}\n[{more} more characters]"


def gate_table(summary: dict[str, Any]) -> dict[str, Any]:
    """Gates as rows and reviewed proposals as columns, each with its figure and its threshold."""
    stages = [*summary["stages"], *([summary["open"]] if summary["open"] else [])]
    columns = [
        (f"{stage['stage']}" + (chr(ord("a") + number) if len(stage["rounds"]) > 1 else ""), review["gates"])
        for stage in stages
        for number, review in enumerate(stage["rounds"])
        if review["gates"]
    ]
    names = list(dict.fromkeys(finding["gate"] for _, gates in columns for finding in gates["findings"]))
    by_column = [{finding["gate"]: finding for finding in gates["findings"]} for _, gates in columns]
    return {
        "columns": [label for label, _ in columns],
        "rows": [
            {"gate": name, "about": GATES.get(name, ""), "findings": [found.get(name) for found in by_column]}
            for name in names
        ],
    }


def lanes(spans: Sequence[Span], at: At | None, now: float) -> dict[str, Any]:
    """A bar a stage, of how long each kind of work took; the start and the end have one of their own."""
    rows: dict[str, dict[str, float]] = {}
    for span in spans:
        if span.kind != "node":
            continue
        seconds = span.seconds
        if seconds is None:
            seconds = now - span.started if at is not None and span is spans[-1] else 0.0
        stage = {"baseline": "start", "report": "end"}.get(
            span.name, f"{span.stage:03d}" if span.stage is not None else ""
        )
        row = rows.setdefault(stage, dict.fromkeys(LANE_NAMES, 0.0))
        row[LANES.get(span.name, LANE_NAMES[-1])] += seconds
    longest = max((sum(row.values()) for row in rows.values()), default=0.0) or 1.0
    return {
        "names": LANE_NAMES,
        "longest": longest,
        "rows": [
            {
                "stage": stage,
                "seconds": sum(row.values()),
                "parts": [
                    {"name": name, "css": f"l{i + 1}", "seconds": row[name], "share": row[name] / longest}
                    for i, name in enumerate(LANE_NAMES)
                    if row[name] > 0
                ],
            }
            for stage, row in rows.items()
        ],
    }


def now_card(at: At | None, now: float) -> dict[str, Any] | None:
    """What the run is at, for a page that is drawn while it works."""
    if at is None:
        return None
    steps = (at.steps or STEPS) if at.stage else FIRST_STEPS
    figures = [f"{name} {value:.3g}" for name, value in at.figures.items()]
    return {
        "node": at.node.replace("_", " "),
        "stage": None if at.stage is None or at.node in {"baseline", "report"} else at.stage,
        "title": at.title,
        "done": at.done,
        "total": at.total,
        "share": at.done / at.total if at.total else 0.0,
        "figures": figures,
        "minutes": (now - at.since) / 60,
        "steps": [{"name": name.replace("_", " "), "here": name == at.node} for name in steps],
    }


def provenance(summary: dict[str, Any]) -> dict[str, Any]:
    """Where every number came from: hashes, seed, versions, and the processes that worked on the run."""
    identity = summary["identity"]
    last: dict[str, Any] = next((one.provenance for one in reversed(summary["sessions"]) if one.provenance), {})
    return {
        "facts": [
            ("environment", identity["settings"]["environment"]),
            ("profile", identity["settings"]["profile"]),
            ("designer", words.designer(identity["settings"]["designer"])),
            ("seed", identity["settings"]["seed"]),
            ("starting checkpoint, sha256", identity.get("start_sha256", "")),
            ("roles, sha256", identity.get("roles_sha256", "")),
            *([("designer, sha256", identity["designer_sha256"])] if "designer_sha256" in identity else []),
            ("python", last.get("python", "")),
            ("machine", last.get("system", "")),
            *(last.get("versions") or {}).items(),
        ],
        "stages": [
            {
                "stage": stage["stage"],
                "config": stage.get("config_hash", ""),
                "dataset": stage.get("dataset", ""),
                "model": stage["training"].get("model", {}).get("sha256", ""),
            }
            for stage in summary["stages"]
        ],
        "sessions": [
            {
                "started": moment(one.started),
                "seconds": one.ended - one.started,
                "how": "at work" if one.how == "running" else one.how,
                "why": one.why,
            }
            for one in summary["sessions"]
        ],
    }


def moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
