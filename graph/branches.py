"""A thread that was taken back to an earlier checkpoint: what the run had made beyond it is set aside, not lost.

Files win over the state, so a thread that went back would otherwise read the very files that it left. They are moved to
``branches/N/`` under the names that they had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import StateSnapshot

from agents.places import stage_order
from agents.rolespec import RoleSpec
from graph import layout
from graph.build import Graph
from graph.fork import forked_state
from graph.rundir import RunDir
from graph.settings import SettingsError
from graph.work import Work

TRAINING = ("train", "evaluate", "accept_or_roll_back")
"""Nodes of a stage after its design, in their order."""
LATEST = ("proposal.json", "gates.json", "critique.json")
"""Of a stage: what its last round says, once more."""


class Course(NamedTuple):
    """The nodes of a designed stage in their order, and which of them fixes the stage's length."""

    order: list[str]
    budget: str

    def place(self, node: str) -> int:
        """Where a node stands; what stands before every stage, such as the baseline, at its beginning."""
        return self.order.index(node) if node in self.order else 0


def course_of(roles: Mapping[str, RoleSpec]) -> Course:
    writer = next((name for name, role in roles.items() if role.writes == "budget"), "dataset")
    return Course([*stage_order(roles), *TRAINING], writer)


async def leave_branch(work: Work, graph: Graph, here: StateSnapshot) -> None:
    """Set aside what was made beyond the checkpoint at which the thread leaves its former course, if it does.

    Raises SettingsError for a checkpoint of a course that was itself set aside: its nodes would find another's files.
    """
    left = await left_at(graph, here)
    if left is None:
        return
    point = await graph.aget_state(left.at)
    if left.lost:
        before = point.next[0] if point.next else "report"
        raise SettingsError(
            f"this step is of a course that the thread has left, and what led to it lies in {layout.BRANCHES}/; run "
            f"from where the two part, stage {int(point.values.get('stage', 0)):03d} before {before}, to make it again"
        )
    # In a thread: LangGraph's server refuses file work where its own loop runs.
    await asyncio.to_thread(_leave, work, point)


def _leave(work: Work, point: StateSnapshot) -> None:
    # Before the first node had ended there is no stage; what that node makes is the same on every course.
    stage, revision = int(point.values.get("stage", 0)), int(point.values.get("revision", 0))
    node = point.next[0] if point.next else "report"
    begun = forked_state(work.run)
    if begun is not None and stage < begun["stage"]:
        # What a fork took over was made by another run, and stays.
        stage, revision, node = begun["stage"], 0, "evidence"
    moved = set_aside(work.run, course_of(work.roles), stage, revision, node)
    if moved:
        place = "/".join(moved[0].split("/")[:2])
        work.reporter.line(
            f"the thread went back to stage {stage:03d} before {node}; what was made beyond it lies in {place}",
            style="yellow",
        )
        work.reporter.event("branched", stage=stage, node=node, place=place)


class Left(NamedTuple):
    """Where a thread leaves its former course; ``lost`` if nodes ran from there on to where it is to go on, whose files
    were set aside when the thread left them."""

    at: RunnableConfig
    lost: bool


async def left_at(graph: Graph, here: StateSnapshot) -> Left | None:
    """The checkpoint at which the course to ``here`` parts from the one that ran last; None if that led here.

    A checkpoint that a person wrote (``update_state``) ran nothing, and is of no course until one goes on from it.
    """
    saver = graph.checkpointer
    assert isinstance(saver, BaseCheckpointSaver)
    thread: RunnableConfig = {"configurable": {"thread_id": here.config["configurable"]["thread_id"]}}
    known = {_id(found.config): found async for found in saver.alist(thread)}
    ran = [name for name, found in known.items() if found.metadata.get("source") in ("loop", "input")]
    start = here.config["configurable"].get("checkpoint_id")
    if not ran or start is None:
        return None
    course, last = list(_ancestry(known, start)), max(ran)
    if last in course:
        return None
    before = list(_ancestry(known, last))
    shared = next((name for name in before if name in set(course)), None)
    if shared is None:
        return None
    return Left(known[shared].config, any(name in ran for name in course[: course.index(shared)]))


def _ancestry(known: dict[str, CheckpointTuple], name: str | None) -> Iterator[str]:
    """A checkpoint and all before it, newest first."""
    while name is not None and name in known:
        yield name
        parent = known[name].parent_config
        name = None if parent is None else _id(parent)


def _id(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


def set_aside(run: RunDir, course: Course, stage: int, revision: int, node: str) -> list[str]:
    """Move what nodes from ``node`` of a stage on have made; returns the new names, relative to the run."""
    place = next(f"{layout.BRANCHES}/{n}" for n in count(1) if not run.path(f"{layout.BRANCHES}/{n}").exists())
    moved = []
    for name in sorted(beyond(run, course, stage, revision, node)):
        target = run.path(f"{place}/{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        run.path(name).rename(target)
        moved.append(f"{place}/{name}")
    for name in LATEST:
        # Moved with the round that it was of; now the last one is that which the thread went back to.
        found = run.read_if_whole(layout.in_round(stage, revision, name))
        said = found.get("parsed", found) if isinstance(found, dict) else None
        if f"{place}/{layout.in_stage(stage, name)}" in moved and said is not None:
            run.write(layout.in_stage(stage, name), said)
    return moved


def beyond(run: RunDir, course: Course, stage: int, revision: int, node: str) -> Iterator[str]:
    """Files and directories made from a node of a stage on, later stages whole.

    A role's answer stays, and so does a probe: it is made once from its inputs, and read only by the same question.
    """
    for name in (layout.RESULT, "report"):
        if run.path(name).exists():
            yield name
    if node == "report":
        return
    own, place = run.path(layout.stage_dir(stage)), course.place(node)
    for path in sorted(run.path("stages").glob("[0-9][0-9][0-9]")):
        if int(path.name) > stage:
            yield run.name(path)
    trained = place > course.place("train")
    for path in sorted(run.path("tensorboard").glob("stage-[0-9][0-9][0-9]")):
        if int(path.name.removeprefix("stage-")) > stage - (not trained):
            yield run.name(path)
    attempts = [path.name for path in own.glob("attempt-*")]
    made = [
        ("settle", ("config.json", "plan.json")),
        (course.budget, ("budget.json",)),
        ("dataset", ("dataset.json", "dataset.jsonl", "selection")),
        ("train", ("eval", "model", layout.RESULT, layout.NO_SIGNAL, "completions", *attempts)),
        ("accept_or_roll_back", ("decision.json",)),
    ]
    names = [name for maker, files in made if course.place(maker) >= place for name in files]
    yield from (layout.in_stage(stage, name) for name in names if (own / name).exists())
    if place > course.place("approval"):
        return
    later = [path for path in sorted(own.glob("proposals/[0-9]*")) if int(path.name) > revision]
    yield from map(run.name, later)
    if later:
        yield from (layout.in_stage(stage, name) for name in LATEST if (own / name).exists())
    if run.exists(layout.in_round(stage, revision, layout.APPROVAL)):
        yield layout.in_round(stage, revision, layout.APPROVAL)
