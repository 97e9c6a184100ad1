"""A thread that was taken back to an earlier checkpoint: what the run had made beyond it is set aside, not lost.

Files win over the state, so a thread that went back would otherwise read the very files that it left. They are moved to
``branches/N/`` under the names that they had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import StateSnapshot

from graph import layout
from graph.build import Graph
from graph.fork import forked_state
from graph.rundir import RunDir
from graph.work import Work

BEFORE_APPROVAL = frozenset({"dataset", "train", "evaluate", "accept_or_roll_back", "settle", "report"})
"""Nodes of code that stand after a person's word; all others of a stage, roles included, but the trainer, before it."""
TRAINED = frozenset({"evaluate", "accept_or_roll_back"})


async def leave_branch(work: Work, graph: Graph, here: StateSnapshot) -> None:
    """Set aside what was made beyond the checkpoint at which the thread leaves its former course, if it does."""
    left = await left_at(graph, here)
    if left is None:
        return
    # In a thread: LangGraph's server refuses file work where its own loop runs.
    await asyncio.to_thread(_leave, work, await graph.aget_state(left))


def _leave(work: Work, point: StateSnapshot) -> None:
    # Before the first node had ended there is no stage; what that node makes is the same on every course.
    stage, revision = int(point.values.get("stage", 0)), int(point.values.get("revision", 0))
    node = point.next[0] if point.next else "report"
    begun = forked_state(work.run)
    if begun is not None and stage < begun["stage"]:
        # What a fork took over was made by another run, and stays.
        stage, revision, node = begun["stage"], 0, "evidence"
    moved = set_aside(work.run, stage, revision, node)
    if moved:
        place = "/".join(moved[0].split("/")[:2])
        work.reporter.line(
            f"the thread went back to stage {stage:03d} before {node}; what was made beyond it lies in {place}",
            style="yellow",
        )
        work.reporter.event("branched", stage=stage, node=node, place=place)


async def left_at(graph: Graph, here: StateSnapshot) -> RunnableConfig | None:
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
    return None if shared is None else known[shared].config


def _ancestry(known: dict[str, CheckpointTuple], name: str | None) -> Iterator[str]:
    """A checkpoint and all before it, newest first."""
    while name is not None and name in known:
        yield name
        parent = known[name].parent_config
        name = None if parent is None else _id(parent)


def _id(config: RunnableConfig) -> str:
    return str(config["configurable"]["checkpoint_id"])


def set_aside(run: RunDir, stage: int, revision: int, node: str) -> list[str]:
    """Move what nodes from ``node`` of a stage on have made; returns the new names, relative to the run."""
    place = next(f"{layout.BRANCHES}/{n}" for n in count(1) if not run.path(f"{layout.BRANCHES}/{n}").exists())
    moved = []
    for name in sorted(beyond(run, stage, revision, node)):
        target = run.path(f"{place}/{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        run.path(name).rename(target)
        moved.append(f"{place}/{name}")
    return moved


def beyond(run: RunDir, stage: int, revision: int, node: str) -> Iterator[str]:
    """Files and directories made from a node of a stage on, later stages whole.

    What is made once from its inputs, such as a role's answer, stays: it is read only by the same question.
    """
    for name in (layout.RESULT, "report"):
        if run.path(name).exists():
            yield name
    if node == "report":
        return
    own = run.path(layout.stage_dir(stage))
    for path in sorted(run.path("stages").glob("[0-9][0-9][0-9]")):
        if int(path.name) > stage:
            yield run.name(path)
    for path in sorted(run.path("tensorboard").glob("stage-[0-9][0-9][0-9]")):
        if int(path.name.removeprefix("stage-")) > stage - (node not in TRAINED):
            yield run.name(path)
    decided = ["decision.json"]
    if node not in TRAINED:
        decided = ["decision.json", "eval", "model", layout.RESULT, layout.NO_SIGNAL, "completions"]
        decided += [path.name for path in own.glob("attempt-*")]
    yield from (layout.in_stage(stage, name) for name in decided if (own / name).exists())
    if node in BEFORE_APPROVAL or node == "trainer":
        return
    for path in sorted(own.glob("proposals/[0-9]*")):
        if int(path.name) > revision:
            yield run.name(path)
        elif int(path.name) == revision and (path / layout.APPROVAL).exists():
            yield run.name(path / layout.APPROVAL)
