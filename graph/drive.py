"""Drive the graph of one run: checkpointer, signals, draining, approval.

The checkpointer keeps plain JSON alone. SIGTERM and SIGINT drain: the node at work stops at its next safe place, its
files stay, and the run can be resumed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from graph import layout
from graph.approval import answered, gates_let_through
from graph.branches import leave_branch
from graph.build import Graph, build, recursion_limit
from graph.checkpoints import DatabaseDamaged, check_version, checkpointer, move_aside, thread_id
from graph.progress import Stopped
from graph.settings import SettingsError
from graph.state import RunState
from graph.summary import final_result
from graph.watch import watched
from graph.work import Work

Said = bool | dict[str, Any]
"""A person's answer to what waits: yes, no, or a proposal in its place."""


class Waiting(Exception):
    """The run waits for a person; ``question`` is what is to be approved."""

    def __init__(self, question: dict[str, Any]) -> None:
        super().__init__("waiting for approval")
        self.question = question


async def drive(work: Work, word: Said | None, begin: Callable[[], None]) -> RunState:
    """Run or resume to the end and return the last state. ``word`` answers a pending approval, None leaves it open.

    ``begin`` is called once it is known that there is something to do with the word; nothing is written before.

    Raises Stopped if the run was drained, Waiting if a person must approve, SettingsError for a word on nothing and for
    a state of another version, DatabaseUnreachable.
    """
    url = work.settings.checkpoints
    if word is not None and url is None and not work.run.exists(layout.DATABASE):
        raise word_on_nothing(work, word)
    config = run_config(work, sound_thread(work, word))
    control = RunControl()
    async with checkpointer(work.run, url) as saver:
        graph: Graph = watched(build(work.roles, work).compile(checkpointer=saver, name="envwright"), work)
        snapshot = await graph.aget_state(config)
        check_version(snapshot.values, url or str(work.run.path(layout.DATABASE)))
        asked = [question for task in snapshot.tasks for question in task.interrupts]
        pending = [question for question in asked if not answered(work.run, question.value)]
        if word is not None and not pending:
            raise word_on_nothing(work, word)
        if word is True and not gates_let_through(pending[0].value):
            told = pending[0].value["gates"]
            raise SettingsError(f"--approve: {told}, which no word lifts; --reject, or --approve FILE with another one")
        begin()
        with_signals(work, control)
        if pending and word is None:
            # Nothing runs that would note it, and what ended before may have ended otherwise.
            work.reporter.event("ended", session=work.session, how="waiting", why="")
            raise Waiting(pending[0].value)
        given: Any = Command(resume=word) if pending else await where_to_go_on(work, graph, snapshot)
        try:
            final = await graph.ainvoke(given, config, durability="sync", control=control)
        except GraphDrained as drained:
            raise Stopped from drained
        if questions := final.get("__interrupt__"):
            raise Waiting(questions[0].value)
        return cast(RunState, final)


def run_config(work: Work, thread: str) -> RunnableConfig:
    return {
        "configurable": {"thread_id": thread},
        "recursion_limit": recursion_limit(work.settings.stages, work.settings.max_revisions),
    }


def word_on_nothing(work: Work, word: Said) -> SettingsError:
    return SettingsError(
        f"--{'reject' if word is False else 'approve'}: no proposal of {work.run.root} waits for approval; "
        "continue it with --resume alone"
    )


def sound_thread(work: Work, word: Said | None) -> str:
    """The run's thread. A damaged database is moved aside, unless a word shows that a person counts on it."""
    try:
        return thread_id(work.run, work.settings.checkpoints)
    except DatabaseDamaged as damage:
        if word is not None:
            raise SettingsError(f"{damage}; continue with --resume alone, which makes it again") from damage
        aside = move_aside(work.run)
        work.reporter.line(f"{damage}; moved to {aside.name}, and the run goes on from its other files", style="yellow")
        return thread_id(work.run)


async def where_to_go_on(work: Work, graph: Graph, snapshot: StateSnapshot) -> RunState | None:
    """None goes on after the last checkpoint; an empty state begins at the start, over the files that are there.

    A thread that was taken back to an earlier checkpoint goes on from there, and what it had made beyond lies aside by
    then.
    """
    await leave_branch(work, graph, snapshot)
    if snapshot.next:
        return None
    if snapshot.values:
        if final_result(work.run) is not None:
            return None
        told = f"{layout.RESULT} is missing or damaged; it is made again from the other files"
        work.reporter.line(told, style="yellow")
    return RunState()


def with_signals(work: Work, control: RunControl) -> None:
    """Drain on SIGTERM and SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def drain(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        work.reporter.line(f"{number.name}: stopping at the next safe place; once more ends at once", style="yellow")
        work.stop.set()
        control.request_drain(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, drain, number)
