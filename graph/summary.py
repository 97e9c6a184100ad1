"""What happened in a run, read from its files alone: the data of the closing tables and of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envsim.api import Environment
from envsim.documents import DocumentError
from graph import layout
from graph.report_state import last_word, sessions, standing
from graph.rundir import MADE_FROM, RunDir
from graph.timing import total
from graph.trace_spans import from_events
from graph.training import stage_result
from trainer.evaluate import Rollout, report_path
from trainer.spec import canonical_hash
from trainer.stage import StageError

REPLAYS_SOLVED = 6
REPLAYS_OPEN = 2
ANSWER_SHOWN = 400


def summarise(run: RunDir, environment: Environment, identity: dict[str, Any]) -> dict[str, Any]:
    """Plain data of the start, of every stage done so far, and of the end."""
    done: list[dict[str, Any]] = []
    while (one := stage_summary(run, environment, len(done))) is not None:
        done.append(one)
    final = final_result(run)
    events = run.events()
    return {
        "name": run.root.name,
        "identity": identity,
        "cells": environment.cells(),
        "start": evaluation(run, layout.eval_dir(-1), "anchor"),
        "stages": done,
        "open": open_stage(run, len(done)),
        "validation": [evaluation(run, layout.eval_dir(number), "validation") for number in range(-1, len(done))],
        "anchor": [evaluation(run, layout.eval_dir(number), "anchor") for number in range(-1, len(done))],
        "final": final,
        "role_fallbacks": sum(said["fallback"] for stage in done for said in answers(stage)),
        "time": time_table(events),
        "tokens": token_table(run, done),
        "read": tokens_read(run),
        "how": standing(events),
        "why": "" if (last := last_word(events)) is None else last.why,
        "sessions": sessions(events),
        "spans": from_events(events),
        "tools": [event for event in events if event.get("event") == "tool"],
    }


def stage_summary(run: RunDir, environment: Environment, stage: int) -> dict[str, Any] | None:
    """One finished stage; None if a file of it is missing or damaged, so that it is yet to be done, or done again."""
    try:
        return _stage_summary(run, environment, stage)
    except (DocumentError, FileNotFoundError, StageError):
        return None


def open_stage(run: RunDir, stage: int) -> dict[str, Any] | None:
    """What there is of a stage that is not finished; None if nothing is."""
    if not run.path(layout.stage_dir(stage)).is_dir():
        return None
    plan = run.read_if_whole(layout.in_stage(stage, "plan.json"))
    return {"stage": stage, "plan": plan if isinstance(plan, dict) else None, **conversation(run, stage)}


def conversation(run: RunDir, stage: int) -> dict[str, Any]:
    """What the roles and the gates said in a stage: answers by role, notes by key, and every proposal with its review.

    Raises DocumentError if a file is damaged.
    """
    return {
        "answers": spoken(run, layout.in_stage(stage, "answers")),
        "notes": spoken(run, layout.in_stage(stage, "notes")),
        "rounds": rounds(run, stage),
    }


def spoken(run: RunDir, folder: str) -> dict[str, dict[str, Any]]:
    """The recorded answers of a folder by their files' names."""
    names = (path.stem for path in sorted(run.path(folder).glob("*.json")))
    # Beside an answer lie what its tools said before and what it was made from.
    own = [name for name in names if "." not in name and name != Path(MADE_FROM).stem]
    found = {name: answer(run, f"{folder}/{name}.json") for name in own}
    return {name: said for name, said in found.items() if said is not None}


def final_result(run: RunDir) -> dict[str, Any] | None:
    """What the run came to; None if it is not finished or the file is damaged."""
    found = run.read_if_whole(layout.RESULT)
    return found if isinstance(found, dict) and "sets" in found else None


def _stage_summary(run: RunDir, environment: Environment, stage: int) -> dict[str, Any]:
    config = environment.config_model.model_validate(run.read(layout.in_stage(stage, "config.json")))
    return {
        "stage": stage,
        "plan": run.read(layout.in_stage(stage, "plan.json")),
        "knobs": {path: knob.model_dump() for path, knob in environment.knobs(config).items()},
        "shares": environment.shares(config),
        "measured": run.read(layout.in_stage(stage, "dataset.json"))["measurement"],
        "budget": run.read(layout.in_stage(stage, "budget.json")),
        "training": stage_result(run, stage).model_dump(mode="json"),
        "decision": run.read(layout.in_stage(stage, "decision.json")),
        "dataset": run.read(layout.in_stage(stage, "dataset.json"))["sha256"],
        "config_hash": canonical_hash(config.model_dump(mode="json")),
        **conversation(run, stage),
    }


def rounds(run: RunDir, stage: int) -> list[dict[str, Any]]:
    """Every proposal of a stage with its gates, its critique, its notes and a person's word on it, in order."""
    found: list[dict[str, Any]] = []
    while run.exists(layout.in_round(stage, len(found), "proposal.json")):
        name = len(found)
        found.append(
            {
                "proposal": answer(run, layout.in_round(stage, name, "proposal.json")),
                "gates": run.read_if_there(layout.in_round(stage, name, "gates.json")),
                "critique": answer(run, layout.in_round(stage, name, "critique.json")),
                "notes": spoken(run, layout.in_round(stage, name, "notes")),
                "approval": run.read_if_there(layout.in_round(stage, name, layout.APPROVAL)),
            }
        )
    return found


def answers(stage: dict[str, Any]) -> list[dict[str, Any]]:
    """All role answers of a stage summary, notes included."""
    reviewed = [
        one for found in stage["rounds"] for one in (found["proposal"], found["critique"], *found["notes"].values())
    ]
    told = (*stage["answers"].values(), *stage["notes"].values(), *reviewed)
    return [one for one in told if one is not None]


def answer(run: RunDir, name: str) -> dict[str, Any] | None:
    found = run.read_if_there(name)
    return dict(found) if found is not None else None


def evaluation(run: RunDir, directory: str, set_name: str) -> dict[str, Any] | None:
    found = run.read_if_whole(run.name(report_path(run.path(directory), set_name)))
    return found if isinstance(found, dict) else None


def time_table(events: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds by category over all processes: the last word of each counts."""
    sessions = {
        event["session"]: event["seconds"]
        for event in events
        if event.get("event") == "time" and isinstance(event.get("session"), str) and _are_seconds(event.get("seconds"))
    }
    return total(list(sessions.values()))


def _are_seconds(found: Any) -> bool:
    """A damaged line may hold anything."""
    return isinstance(found, dict) and all(isinstance(value, int | float) for value in found.values())


def token_table(run: RunDir, stages: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Generated tokens by purpose, each counted once however often the run was resumed."""
    reports = _whole(run, "**/eval/*.eval.json")
    probes = _whole(run, "stages/*/probes/[!m]*.json")
    choices = _whole(run, "stages/*/selection/*/candidates.eval.json")
    said = [one for pattern in layout.ROLE_FILES for one in _whole(run, pattern)]
    # What a take said is part of the proposal that was made of it; what it had called is not.
    called = [one for pattern in (*layout.ROLE_FILES, layout.TAKE_FILES) for one in _whole(run, pattern)]
    tools = sum(call["tokens"] for one in called for call in one.get("tool_calls", []))
    return {
        "training": sum(stage["training"]["generated_tokens"] for stage in stages),
        "evaluation": sum(report["generated_tokens"] for report in reports),
        "probes": sum(probe["tokens"] for probe in probes)
        + sum(choice["generated_tokens"] for choice in choices)
        + tools,
        "roles": sum(one["tokens"] for one in said if "by" in one),
    }


def tokens_read(run: RunDir) -> int:
    """Tokens of prompts that models read in the roles, repairs and turns that called tools included, each once."""
    said = [one for pattern in layout.ROLE_FILES for one in _whole(run, pattern)]
    return sum(one["cost"]["input_tokens"] for one in said if "by" in one and isinstance(one.get("cost"), dict))


def _whole(run: RunDir, pattern: str) -> list[dict[str, Any]]:
    found = [run.read_if_whole(run.name(path)) for path in run.root.glob(pattern)]
    return [one for one in found if isinstance(one, dict)]


def replays(
    environment: Environment, instances: Sequence[Any], before: Sequence[Rollout], after: Sequence[Rollout]
) -> list[dict[str, Any]]:
    """Validation failures of the starting checkpoint beside a later checkpoint's answers to the same instances.

    Solved ones first, of as many cells and kinds of failure as possible, then some that are still open.
    """
    by_id = {instance.id: instance for instance in instances}
    later = {row.id: row for row in after if row.sample == 0}
    failed = [row for row in before if row.sample == 0 and not row.valid and row.id in later]
    cells = environment.cells()
    solved = spread([row for row in failed if later[row.id].valid], cells, REPLAYS_SOLVED)
    still = spread([row for row in failed if not later[row.id].valid], cells, REPLAYS_OPEN)
    return [replay(environment, by_id[row.id], row, later[row.id]) for row in [*solved, *still]]


def spread(candidates: Sequence[Rollout], cells: Sequence[str], n: int) -> list[Rollout]:
    """Up to n rows, one of each group (cell, outcome): new cells first, then other outcomes of the same cells.

    Answers that got under way come before those that were wrong from the start, hard cells before easy ones.
    """
    order = sorted(candidates, key=lambda row: (not _got_under_way(row), -cells.index(row.cell)))
    groups: dict[tuple[str, str], Rollout] = {}
    for row in order:
        groups.setdefault((row.cell, row.outcome), row)
    first: dict[str, Rollout] = {}
    for (cell, _), row in groups.items():
        first.setdefault(cell, row)
    others = [row for row in groups.values() if row not in first.values()]
    return [*first.values(), *others][:n]


def _got_under_way(row: Rollout) -> bool:
    return bool(row.fault and row.fault.step)


def replay(environment: Environment, instance: Any, before: Rollout, after: Rollout) -> dict[str, Any]:
    """Both answers executed up to their first fault."""
    return {
        "id": instance.id,
        "cell": environment.cell(instance),
        "before": _take(environment, instance, before),
        "after": _take(environment, instance, after),
    }


def _take(environment: Environment, instance: Any, row: Rollout) -> dict[str, Any]:
    played = environment.replay(instance, row.answer)
    fault = played.verdict.fault
    return {
        "film": environment.film(instance, row.answer),
        "outcome": played.verdict.outcome,
        "valid": played.verdict.valid,
        "fault": fault.model_dump(mode="json") if fault else None,
        "answer": row.answer[:ANSWER_SHOWN],
    }
