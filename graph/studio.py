"""The loop in LangGraph Studio: what ``langgraph.json`` names, the graph and its checkpointer.

A server has one run directory open, under its lock, from its start to its end: ``runs/studio`` where it was started, or
the one that ``python -m graph.serve --run-dir DIR`` names. A run that the command line began can be looked at and
continued there, and the other way round: both work on the same files and the same threads.

The graph is a factory, so that drawing it and reading a thread touch nothing but role files, while a run gets the
settings, the environment and the checkpoints that it works with.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.graph import StateGraph
from langgraph_sdk.runtime import ServerRuntime
from rich.console import Console

from agents.roles import RoleError, load_roles
from graph.build import Graph, build, recursion_limit
from graph.checkpoints import DatabaseDamaged, check_version, checkpointer, move_aside, thread_id
from graph.context import RunContext
from graph.lock import STUDIO, holder_of, locked
from graph.rundir import RUN_FILE, RunDir, begin_run, open_directory, stored_identity
from graph.settings import RunSettings, SettingsError, load_settings, parse_settings
from graph.stream import StreamingReporter
from graph.timing import Clock
from graph.watch import watched
from graph.work import Work
from trainer.files import write_atomic

RUN_DIR = "ENVWRIGHT_RUN_DIR"
"""Environment variable by which ``graph.serve`` tells the server which run directory to open."""
DEFAULT_RUN_DIR = Path("runs/studio")
RECORDS = Path(".langgraph_api")
"""Where LangGraph's server keeps what it knows of threads and unfinished runs, in its working directory."""
SERVED = RECORDS / "run_dir"
"""Which run directory these records are of."""
NAME = "envwright"
Builder = StateGraph[Any, Any, Any, Any]


class Open:
    """The run directory that this process serves, and whether a run works on it."""

    def __init__(self, run: RunDir, saver: BaseCheckpointSaver[str]) -> None:
        self.run = run
        self.saver = saver
        self.busy = asyncio.Lock()


_served: list[Open] = []
"""None before the server has started its checkpointer, then one."""


def run_directory() -> Path:
    return Path(os.environ.get(RUN_DIR) or DEFAULT_RUN_DIR)


@asynccontextmanager
async def run_checkpointer() -> AsyncIterator[BaseCheckpointSaver[str]]:
    """The served run's checkpointer; holds the run's lock as long as the server lives.

    Raises SettingsError if the directory cannot be used or another process works on it.
    """
    with ExitStack() as stack:
        await asyncio.to_thread(claim_records, run_directory().absolute())
        run = await asyncio.to_thread(open_directory, run_directory())
        await asyncio.to_thread(stack.enter_context, locked(run.root, STUDIO))
        url = await asyncio.to_thread(_checked, run)
        async with checkpointer(run, url) as saver:
            _served.append(Open(run, saver))
            try:
                yield saver
            finally:
                _served.clear()


def recorded_run() -> Path | None:
    """The run directory that the server's records here are of, None if there are none."""
    return Path(SERVED.read_text(encoding="utf-8")) if SERVED.is_file() else None


def claim_records(root: Path) -> None:
    """Say which run the records are of: an unfinished run that they hold must not go on in another's directory.

    Raises SettingsError if they are another's.
    """
    recorded = recorded_run()
    if recorded not in (None, root):
        refuse_second_server(recorded)
        raise SettingsError(
            f"the server's records in {RECORDS.absolute()} are of {recorded}, and {root} is to be opened; remove them, "
            f"or start it by python -m graph.serve --run-dir {root}"
        )
    RECORDS.mkdir(exist_ok=True)
    write_atomic(SERVED, str(root))


def refuse_second_server(recorded: Path | None) -> None:
    """Raises SettingsError if a server that was started here is at work: its records are not to be touched."""
    holder = holder_of(recorded) if recorded is not None and recorded.is_dir() else None
    if holder is not None and holder.what == STUDIO:
        raise SettingsError(
            f"a server that was started in {Path.cwd()} has {recorded} open ({holder.told()}), and keeps its records "
            f"there, in {RECORDS}: one server a working directory; end it, or start this one from another directory"
        )


def _checked(run: RunDir) -> str | None:
    """Where the run's checkpointer lies; a damaged database is moved aside."""
    settings = stored_settings(run)
    url = None if settings is None else settings.checkpoints
    try:
        thread_id(run, url)
    except DatabaseDamaged as damage:
        print(f"{damage}; moved to {move_aside(run)}, and the run goes on from its other files", flush=True)
    return url


def stored_settings(run: RunDir) -> RunSettings | None:
    """The settings of the run that the directory holds, None if it holds none yet. Raises SettingsError."""
    if not run.exists(RUN_FILE):
        return None
    return parse_settings(stored_identity(run.root)["settings"], str(run.path(RUN_FILE)))


@asynccontextmanager
async def graph(config: RunnableConfig, runtime: ServerRuntime[RunContext]) -> AsyncIterator[Graph]:
    """The loop for LangGraph's server, compiled without a checkpointer: the server gives its own."""
    execution = runtime.execution_runtime
    if execution is None:
        yield await asyncio.to_thread(drawn)
        return
    context = execution.context
    context = context if isinstance(context, RunContext) else RunContext.model_validate(context or {})
    served = _served[0]
    if served.busy.locked():
        raise SettingsError(f"another thread works on {served.run.root}; wait for its run to end, or cancel it")
    async with served.busy:
        work = await asyncio.to_thread(begun, served.run, context)
        await sound_state(work, served, config)
        try:
            compiled = interruptible(build(work.roles, work), work).compile(name=NAME)
            yield watched(compiled, work).with_config(recursion_limit=run_limit(work))
        finally:
            work.stop.set()
            await asyncio.to_thread(work.release)


def run_limit(work: Work) -> int:
    return recursion_limit(work.settings.stages, work.settings.max_revisions)


def drawn() -> Graph:
    """The graph to look at: with the roles of the served run, or with the shipped ones."""
    settings = stored_settings(RunDir(run_directory()))
    return _drawn(None if settings is None else settings.roles)


@lru_cache(1)
def _drawn(directory: str | None) -> Graph:
    """Asked for at every look at a thread; the roles of a run do not change."""
    try:
        roles = load_roles(directory)
    except RoleError as error:
        raise SettingsError(f"the roles cannot be used: {'; '.join(error.errors)}") from error
    return build(roles, None).compile(name=NAME)  # type: ignore[arg-type] # nothing runs


def begun(run: RunDir, context: RunContext) -> Work:
    """What a run in this server works with; a new run is written down. Raises SettingsError."""
    from graph.prepare import prepare  # noqa: PLC0415  imports torch, which takes seconds
    from graph.session import new_work  # noqa: PLC0415

    stored = stored_settings(run)
    if stored is None or context.config is not None:
        settings = load_settings(context.file(), context.overrides())
    else:
        settings = parse_settings({**stored.model_dump(mode="json"), **context.overrides()}, "the context")
    prepared = prepare(settings)
    begin_run(run, prepared.identity, resume=stored is not None)
    console = Console(stderr=True)
    work = new_work(prepared, run, console, Clock(), reporter=StreamingReporter)
    work.reporter.event("session", session=work.session, pid=os.getpid(), resumed=stored is not None, studio=True)
    return work


async def sound_state(work: Work, served: Open, config: RunnableConfig) -> None:
    """The thread is of this version; what it made beyond a checkpoint that it was taken back to is set aside."""
    from graph.branches import leave_branch  # noqa: PLC0415

    compiled = build(work.roles, work).compile(checkpointer=served.saver)
    place = {key: config["configurable"].get(key) for key in ("thread_id", "checkpoint_id")}
    here = await compiled.aget_state({"configurable": {key: value for key, value in place.items() if value}})
    check_version(here.values, str(work.run.root))
    await leave_branch(work, compiled, here)


def interruptible(graph: Builder, work: Work) -> Builder:
    """The same nodes, ended with their run: LangGraph leaves the thread of a cancelled node at work.

    A cancelled node is asked to stop and waited for, so that no training process outlives its run.
    """
    for name, spec in graph.nodes.items():
        graph.nodes[name] = replace(spec, runnable=_ends_with_run(name, spec.runnable, work))
    return graph


def _ends_with_run(name: str, node: Any, work: Work) -> RunnableLambda[Any, Any]:
    def told(state: Any, config: RunnableConfig) -> Any:
        assert isinstance(work.reporter, StreamingReporter)
        work.reporter.writer = get_stream_writer()
        try:
            return node.invoke(state, config)
        finally:
            work.reporter.writer = None

    async def run(state: Any, config: RunnableConfig) -> Any:
        thread = asyncio.ensure_future(asyncio.to_thread(told, state, config))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            work.stop.set()
            await asyncio.wait([thread])
            # What it ended with is the stop that was asked for.
            thread.exception()
            raise

    return RunnableLambda(told, afunc=run, name=name)
