"""The database of the run's checkpointer: which thread goes on, and what becomes of a damaged one.

Files win over the checkpointer, so a database that is damaged costs nothing: it is moved aside, and the nodes run again
over the files that are there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

from graph import layout
from graph.rundir import RunDir

THREAD = "5f0c2a52-3c0e-5b57-9d0a-6a4d5f3a7e10"
"""The thread of a new run, with an id that servers accept; the same wherever the run directory lies."""
BESIDE = ("", "-wal", "-shm")
"""A database and what SQLite keeps next to it."""


class DatabaseDamaged(Exception):
    """The database is none, or not the checkpointer's."""


def thread_id(run: RunDir) -> str:
    """The thread to go on with: that of the newest checkpoint, or a new run's. Raises DatabaseDamaged."""
    path = run.path(layout.DATABASE)
    if not path.exists():
        return THREAD
    if not path.is_file():
        raise DatabaseDamaged(f"{path} is no file")
    try:
        return _newest_thread(path) or THREAD
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
