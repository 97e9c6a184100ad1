"""Fork a run: a new run directory with a run's stages before one, to go on with another designer, roles or settings.

The two then part from one checkpoint, and what they come to can be compared. Files of checkpoints and of kept answers
are hard links to the parent's (copies where the file system has none); everything else, all that anybody may append to,
is copied. Of the parent nothing changes but one line in ``forks.jsonl``.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from envsim.documents import DocumentError
from graph import layout
from graph.rundir import RUN_FILE, RunDir, stored_identity
from graph.settings import SettingsError, differences
from graph.state import STATE_VERSION, RunState
from trainer.files import sync, write_atomic

FIXED = ("settings.environment", "settings.initial_config", "settings.reward", "profile", "start_sha256")
"""What two continuations of one checkpoint must have in common to be comparable."""
LINKED = ("model", "completions")
"""Directories of a stage whose files are written once and then only read or removed."""
LEFT = ("worker.lock", "checkpoint-*")
"""Files of a finished stage that nobody needs again."""


def fork(parent_root: Path, stage: int, target: Path, identity: dict[str, Any]) -> None:
    """Make the run directory of a fork that goes on at ``stage``; it is whole or absent.

    Parameters
    ----------
    parent_root
        The run to fork; it may be at work, on a later stage.
    stage
        The first designed stage that the fork makes itself; all before it must be finished, and are taken over.
    target
        The new run directory, absent or empty.
    identity
        What decides what the fork computes; goes to its ``run.yaml``.

    Raises
    ------
    SettingsError
        The parent has no such stage, the target is not empty, or the two would not be comparable.
    """
    parent = RunDir(parent_root.absolute())
    theirs = stored_identity(parent_root)
    finished = finished_stages(parent)
    last = min(finished, int(identity["settings"]["stages"]))
    if not 1 <= stage <= last:
        raise SettingsError(
            f"--at-stage {stage}: {parent_root} has {finished} finished stages and the fork {last} to begin at, "
            f"expected 1..{last}" + ("" if last else "; let the run finish stage 000 first")
        )
    changed = differences(theirs, identity)
    if told := [line for line in changed if line.startswith(FIXED)]:
        raise SettingsError(
            f"a fork of {parent_root} keeps its environment, profile and starting checkpoint, or the two could not be "
            f"compared: {'; '.join(told)}"
        )
    refuse_target(target)
    staged = target.with_name(f".{target.name}.{os.getpid()}.fork")
    staged.mkdir(parents=True)
    try:
        counted = take_over(parent, stage, staged)
        record = {
            "parent": str(parent.root),
            "at_stage": stage,
            "time": round(time.time(), 3),
            "differences": changed,
            "current": state_at(parent, stage)["current"],
            **counted,
        }
        write_atomic(staged / layout.FORK, json.dumps(record, indent=2) + "\n")
        write_atomic(staged / RUN_FILE, yaml.safe_dump(identity, sort_keys=False, allow_unicode=True))
        if target.exists():
            target.rmdir()
        staged.rename(target)
        sync(target.parent)
    except OSError as error:
        raise SettingsError(f"cannot fork to {target}: {error}; name another with --run-dir") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    note_fork(
        parent, {"child": str(target.absolute()), "at_stage": stage, "time": record["time"], "differences": changed}
    )


def refuse_target(target: Path) -> None:
    """Raises SettingsError unless the target is absent or an empty directory."""
    try:
        names = os.listdir(target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise SettingsError(f"run directory {target} cannot be used: {error.strerror}") from error
    if names:
        raise SettingsError(f"run directory {target} is not empty; a fork wants a new one, name it with --run-dir")


def note_fork(parent: RunDir, line: dict[str, Any]) -> None:
    """One line more in the parent; its lock is not needed, since a short line is appended at once or not at all."""
    try:
        with parent.path(layout.FORKS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise SettingsError(f"the fork is made, but {parent.root} could not note it: {error}") from error


def finished_stages(run: RunDir) -> int:
    """How many stages are decided, from 000 on without a gap."""
    number = 0
    while isinstance(run.read_if_whole(layout.in_stage(number, "decision.json")), dict):
        number += 1
    return number


def take_over(parent: RunDir, stage: int, target: Path) -> dict[str, int]:
    """Bring the starting evaluations and every stage before ``stage``; says how much was linked and copied."""
    counted = {"linked_files": 0, "linked_bytes": 0, "copied_files": 0, "copied_bytes": 0}
    for source in inherited(parent, stage):
        name = source.relative_to(parent.root)
        made = target / name
        made.parent.mkdir(parents=True, exist_ok=True)
        how = "linked" if len(name.parts) > 2 and name.parts[2] in LINKED and _linked(source, made) else "copied"
        if how == "copied":
            shutil.copy2(source, made)
        counted[f"{how}_files"] += 1
        counted[f"{how}_bytes"] += source.stat().st_size
    return counted


def inherited(parent: RunDir, stage: int) -> Iterator[Path]:
    tops = ["initial_config.json", "start"]
    for number in range(stage):
        tops += [layout.stage_dir(number), f"tensorboard/stage-{number:03d}"]
    for top in map(parent.path, tops):
        found = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in found:
            parts = path.relative_to(parent.root).parts
            if path.is_file() and not any(Path(part).match(left) for part in parts for left in LEFT):
                yield path


def _linked(source: Path, made: Path) -> bool:
    """Whether the file system took a hard link."""
    try:
        os.link(source, made)
    except OSError:
        return False
    return True


def state_at(run: RunDir, stage: int) -> RunState:
    """The state in which a run stands before a designed stage, from its files. Raises DocumentError, OSError."""
    decisions = [run.read(layout.in_stage(number, "decision.json")) for number in range(stage)]
    plans = [run.read(layout.in_stage(number, "plan.json")) for number in range(1, stage)]
    kept = [number for number, decision in enumerate(decisions) if decision["accepted"]]
    return RunState(
        schema_version=STATE_VERSION,
        stage=stage,
        revision=0,
        review="approve",
        why="",
        current=decisions[-1]["current"],
        champion=decisions[-1]["champion"],
        config=layout.in_stage(kept[-1], "config.json") if kept else "initial_config.json",
        reused=sum(plan["source"] == "reused" for plan in plans),
    )


def forked_state(run: RunDir) -> RunState | None:
    """Where a fork begins; None if the run is none. Raises SettingsError if what it took over is damaged."""
    if not run.exists(layout.FORK):
        return None
    try:
        return state_at(run, int(run.read(layout.FORK)["at_stage"]))
    except (DocumentError, FileNotFoundError, KeyError) as error:
        raise SettingsError(f"{run.root} was forked, and what it took over is damaged: {error}; fork again") from error
