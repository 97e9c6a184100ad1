"""Who works on a run: one process at a time, by a lock that says what holds it and that the kernel drops with it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from graph.settings import Frozen, SettingsError

LOCK_FILE = "lock"
A_RUN, STUDIO = "a run", "LangGraph Studio's server"
"""What holds a run's lock."""


class Holder(Frozen):
    """Who holds a run's lock, as the lock itself says; ``pid`` is None where it says nothing."""

    pid: int | None = None
    host: str = ""
    what: str = A_RUN

    def told(self) -> str:
        return f"{self.what}, process {self.pid} on {self.host}" if self.pid is not None else "one that left no name"


def named(handle: int) -> Holder:
    """What a held lock says of its holder."""
    text = os.pread(handle, 4096, 0).decode(errors="replace")
    try:
        return Holder.model_validate_json(text)
    except ValidationError:
        return Holder()


def _take(handle: int, root: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise SettingsError(f"run directory {root} is in use by another process ({named(handle).told()})") from error


@contextmanager
def locked(root: Path, what: str = A_RUN) -> Iterator[None]:
    """The run's lock, with what holds it. The kernel drops it with the process, so a kill never leaves a stale one.

    Raises SettingsError if the directory does not exist or another process holds the lock.
    """
    try:
        handle = os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise SettingsError(f"cannot lock the run: {root / LOCK_FILE}: {error.strerror}; check --run-dir") from error
    try:
        _take(handle, root)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "what": what}).encode(), 0)
        yield
    finally:
        os.close(handle)


@contextmanager
def holding(root: Path) -> Iterator[None]:
    """Nobody else works on the run meanwhile. Raises SettingsError if somebody does, or it cannot be known."""
    path = root / LOCK_FILE
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        # A copy without its lock: nobody can work on what was never locked.
        yield
        return
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; cannot tell whether the run is at work") from error
    try:
        _take(handle, root)
        yield
    finally:
        os.close(handle)


def holder_of(root: Path) -> Holder | None:
    """Who has the run open at this moment; None if nobody has."""
    try:
        with holding(root):
            return None
    except SettingsError:
        return _read(root / LOCK_FILE)


def _read(path: Path) -> Holder:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return Holder()
    try:
        return named(handle)
    finally:
        os.close(handle)
