"""Drive the graph of one run: checkpointer, signals, draining, approval.

The checkpointer lies in the run directory and keeps plain JSON alone. SIGTERM and SIGINT drain: the node at work stops
at its next safe place, its files stay, and the run can be resumed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import aiosqlite
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from graph import layout
from graph.build import build, recursion_limit
from graph.checkpoints import DatabaseDamaged, move_aside, thread_id
from graph.progress import Stopped
from graph.settings import SettingsError
from graph.state import RunState
from graph.summary import final_result
from graph.watch import watched
from graph.work import Work

BUSY_MILLISECONDS = 30_000


class Waiting(Exception):
    """The run waits for a person; ``question`` is what is to be approved."""

    def __init__(self, question: dict[str, Any]) -> None:
        super().__init__("waiting for approval")
        self.question = question


async def drive(work: Work, word: bool | None, begin: Callable[[], None]) -> RunState:
    """Run or resume to the end and return the last state. ``word`` answers a pending approval, None leaves it open.

    ``begin`` is called once it is known that there is something to do with the word; nothing is written before.

    Raises Stopped if the run was drained, Waiting if a person must approve, SettingsError for a word on nothing.
    """
    settings = work.settings
    control = RunControl()
    if word is not None and not work.run.exists(layout.DATABASE):
        raise word_on_nothing(work, word)
    config: RunnableConfig = {
        "configurable": {"thread_id": sound_thread(work, word)},
        "recursion_limit": recursion_limit(settings.stages, settings.max_revisions),
    }
    async with checkpointer(work) as saver:
        graph = watched(build(work.roles, work).compile(checkpointer=saver, name="envwright"), work)
        snapshot = await graph.aget_state(config)
        pending = [question for task in snapshot.tasks for question in task.interrupts]
        if word is not None and not pending:
            raise word_on_nothing(work, word)
        begin()
        with_signals(work, control)
        if pending and word is None:
            raise Waiting(pending[0].value)
        given: Command[Any] | RunState | None = Command(resume=word) if pending else where_to_go_on(work, snapshot)
        try:
            final = await graph.ainvoke(given, config, durability="sync", control=control)
        except GraphDrained as drained:
            raise Stopped from drained
        if questions := final.get("__interrupt__"):
            raise Waiting(questions[0].value)
        return cast(RunState, final)


@asynccontextmanager
async def checkpointer(work: Work) -> AsyncIterator[AsyncSqliteSaver]:
    async with aiosqlite.connect(work.run.path(layout.DATABASE)) as connection:
        await connection.execute(f"pragma busy_timeout={BUSY_MILLISECONDS}")
        yield AsyncSqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=[]))


def word_on_nothing(work: Work, word: bool) -> SettingsError:
    return SettingsError(
        f"--{'approve' if word else 'reject'}: no proposal of {work.run.root} waits for approval; "
        "continue it with --resume alone"
    )


def sound_thread(work: Work, word: bool | None) -> str:
    """The run's thread. A damaged database is moved aside, unless a word shows that a person counts on it."""
    try:
        return thread_id(work.run)
    except DatabaseDamaged as damage:
        if word is not None:
            raise SettingsError(f"{damage}; continue with --resume alone, which makes it again") from damage
        aside = move_aside(work.run)
        work.reporter.line(f"{damage}; moved to {aside.name}, and the run goes on from its other files", style="yellow")
        return thread_id(work.run)


def where_to_go_on(work: Work, snapshot: StateSnapshot) -> RunState | None:
    """None goes on after the last checkpoint; an empty state begins at the start, over the files that are there."""
    if snapshot.next:
        return None
    if not snapshot.values:
        return RunState()
    if final_result(work.run) is not None:
        return None
    work.reporter.line(f"{layout.RESULT} is missing or damaged; it is made again from the other files", style="yellow")
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
