"""The run's checkpointer: where it lies, which thread goes on, and what becomes of a damaged database.

By default it is an SQLite file in the run directory, by URL a Postgres server. Both take plain JSON alone. Files win
over the checkpointer, so a database that is lost or damaged costs nothing: it is moved aside, and the nodes run again
over the files that are there.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiosqlite
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from graph import layout
from graph.rundir import RunDir
from graph.settings import SettingsError
from graph.state import STATE_VERSION

THREADS = uuid.UUID("5f0c2a52-3c0e-5b57-9d0a-6a4d5f3a7e10")
"""Names the threads of new runs that have a database of their own."""
THREAD_FILE = "thread.json"
"""In a run whose checkpointer is shared with others: which thread of it is this run's."""
BESIDE = ("", "-wal", "-shm")
"""A database and what SQLite keeps next to it."""
BUSY_MILLISECONDS = 30_000


class DatabaseDamaged(Exception):
    """The database is none, or not the checkpointer's."""


class DatabaseUnreachable(Exception):
    """A server that does not answer, or refuses."""


def checkpointer(run: RunDir, url: str | None) -> AbstractAsyncContextManager[BaseCheckpointSaver[str]]:
    """The run's checkpointer, for as long as the block runs: Postgres by URL, else SQLite in the run directory."""
    return sqlite_checkpointer(run) if url is None else postgres_checkpointer(url)


def strict() -> JsonPlusSerializer:
    """Plain JSON alone: whatever else a node might put into the state is refused when it is read."""
    return JsonPlusSerializer(allowed_msgpack_modules=[])


@asynccontextmanager
async def sqlite_checkpointer(run: RunDir) -> AsyncIterator[AsyncSqliteSaver]:
    async with aiosqlite.connect(run.path(layout.DATABASE)) as connection:
        await connection.execute(f"pragma busy_timeout={BUSY_MILLISECONDS}")
        yield AsyncSqliteSaver(connection, serde=strict())


@asynccontextmanager
async def postgres_checkpointer(url: str) -> AsyncIterator[BaseCheckpointSaver[str]]:
    """Raises DatabaseUnreachable if the server cannot be used, now or later."""
    import psycopg  # noqa: PLC0415  an extra
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415  an extra

    try:
        async with AsyncPostgresSaver.from_conn_string(url, serde=strict()) as saver:
            await saver.setup()
            yield saver
    except psycopg.Error as error:
        raise DatabaseUnreachable(f"{url}: {' '.join(str(error).split())}") from error


def check_url(url: str) -> None:
    """Raises ValueError for a URL that is no Postgres server's, holds a password, or cannot be used for want of a
    package."""
    try:
        parts = urlsplit(url)
        known, password = parts.scheme in ("postgresql", "postgres"), parts.password
    except ValueError as error:
        raise ValueError(f"checkpoints = {url!r} is no URL: {error}") from error
    if not known:
        raise ValueError(f"checkpoints = {url!r}, expected a URL such as 'postgresql://user@host:5432/name'")
    if password is not None or "password=" in parts.query:
        raise ValueError("checkpoints: the URL holds a password, which run.yaml would keep; give it in ~/.pgpass")
    try:
        import langgraph.checkpoint.postgres.aio  # noqa: F401, PLC0415  an extra
    except ImportError as error:
        raise ValueError(f"checkpoints: {error}; pip install 'envwright[postgres]'") from error


def thread_id(run: RunDir, url: str | None = None) -> str:
    """The thread to go on with: that of the newest checkpoint, or a new run's. Raises DatabaseDamaged.

    In a database that runs share each run writes down which thread is its own.
    """
    return _own_thread(run) if url is not None else _thread_in_file(run)


def new_thread(run: RunDir) -> str:
    """The thread of a run without a checkpoint, with an id that servers accept: one a directory, so that a page of
    Studio that was left open does not talk to the next run that is served at its address."""
    return str(uuid.uuid5(THREADS, os.path.realpath(run.root)))


def _own_thread(run: RunDir) -> str:
    known = run.read_if_whole(THREAD_FILE)
    if isinstance(known, dict) and isinstance(known.get("thread"), str):
        return str(known["thread"])
    made = str(uuid.uuid4())
    run.write(THREAD_FILE, {"thread": made})
    return made


def _thread_in_file(run: RunDir) -> str:
    path = run.path(layout.DATABASE)
    if not path.exists():
        return new_thread(run)
    if not path.is_file():
        raise DatabaseDamaged(f"{path} is no file")
    try:
        return _newest_thread(path) or new_thread(run)
    except sqlite3.DatabaseError as error:
        if _may_pass(error):
            raise
        raise DatabaseDamaged(f"{path} is damaged: {error}") from error


def _newest_thread(path: Path) -> str | None:
    with closing(sqlite3.connect(path)) as connection:
        [(verdict,), *_] = connection.execute("pragma quick_check(1)")
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(str(verdict).split()))
        tables = connection.execute("select count(*) from sqlite_master where name = 'checkpoints'").fetchone()
        if tables == (0,):
            return None
        # Checkpoint ids begin with the time.
        found = connection.execute("select thread_id from checkpoints order by checkpoint_id desc limit 1").fetchone()
        return None if found is None else str(found[0])


def _may_pass(error: sqlite3.DatabaseError) -> bool:
    """A full disk or a lock says nothing of the file; wrong tables come as the same class of error."""
    return isinstance(error, sqlite3.OperationalError) and "no such column" not in str(error)


def move_aside(run: RunDir) -> Path:
    """Give a damaged database another name, which is returned; nothing is overwritten."""
    number = next(number for number in count(1) if not run.path(f"{layout.DATABASE}.damaged-{number}").exists())
    for suffix in BESIDE:
        path = run.path(layout.DATABASE + suffix)
        if path.exists():
            path.rename(run.path(f"{layout.DATABASE}.damaged-{number}{suffix}"))
    return run.path(f"{layout.DATABASE}.damaged-{number}")


def check_version(values: Mapping[str, Any], where: str) -> None:
    """Refuse a state that another version of this program wrote. Raises SettingsError."""
    found = values.get("schema_version", STATE_VERSION)
    if found != STATE_VERSION:
        raise SettingsError(
            f"the state in {where} has version {found}, expected {STATE_VERSION}; go on with the version of envwright "
            "that wrote it, or remove the database and resume: the state is made again from the run's files"
        )
