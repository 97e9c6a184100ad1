"""The run directory: one lock, atomic files, an append-only event log, and "made once from the same inputs".

Files win over the checkpointer. ``once`` reads a file that was already made from the same inputs instead of making it
again, so a node may run any number of times. What a file was made from stands in ``made_from.json`` beside it, written
after the file: a kill between the two makes the file again, and never leaves a wrong claim.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from graph.settings import SettingsError, differences
from trainer.files import write_atomic
from trainer.spec import canonical_hash

RUN_FILE = "run.yaml"
LOCK_FILE = "lock"
EVENTS_FILE = "events.jsonl"
MADE_FROM = "made_from.json"


def dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


class RunDir:
    """The files of one run. Names are relative to its root, with forward slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        return self.root / name

    def name(self, path: Path | str) -> str:
        """A path as written into files: relative if it lies inside, so that a run directory can be moved."""
        path = Path(path)
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def exists(self, name: str) -> bool:
        return self.path(name).is_file()

    def read(self, name: str) -> Any:
        return json.loads(self.path(name).read_text(encoding="utf-8"))

    def read_if_there(self, name: str) -> Any:
        return self.read(name) if self.exists(name) else None

    def write(self, name: str, value: Any) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, dump(value))

    def once(self, name: str, inputs: Any, make: Callable[[], Any]) -> Any:
        """The JSON value of a file: read if it was made from the same inputs, else made, written and claimed."""
        if self.made(name, inputs):
            return self.read(name)
        value = make()
        self.write(name, value)
        self.claim(name, inputs)
        return value

    def made(self, name: str, inputs: Any) -> bool:
        """Whether a file (or folder) is there and was made from these inputs."""
        claims = self._claims(name)
        return self.path(name).exists() and claims.get(self.path(name).name) == canonical_hash(inputs)

    def claim(self, name: str, inputs: Any) -> None:
        path = self.path(name)
        claims = {**self._claims(name), path.name: canonical_hash(inputs)}
        write_atomic(path.parent / MADE_FROM, dump(dict(sorted(claims.items()))))

    def _claims(self, name: str) -> dict[str, str]:
        file = self.path(name).parent / MADE_FROM
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}

    def append_event(self, event: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **event}, ensure_ascii=False, allow_nan=False)
        with self.path(EVENTS_FILE).open("a+b") as file:
            # A line that a crash tore must not take this one with it.
            torn = file.seek(0, os.SEEK_END) > 0 and _last_byte(file) != b"\n"
            file.write(b"\n" * torn + line.encode() + b"\n")

    def events(self) -> list[dict[str, Any]]:
        """All events; a line torn by a crash is left out."""
        path = self.path(EVENTS_FILE)
        # A tear may split a character; and str.splitlines would split at characters that JSON text may hold.
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if path.is_file() else []
        return [event for line in lines if (event := _parsed(line)) is not None]


def _last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read(1)


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except json.JSONDecodeError:
        return None
    return event if isinstance(event, dict) else None


@contextmanager
def open_run(root: Path, identity: dict[str, Any], *, resume: bool) -> Iterator[RunDir]:
    """The run directory under its lock, new or resumed.

    Parameters
    ----------
    root
        Where the run lies.
    identity
        Plain data that decides what the run computes; kept in ``run.yaml`` and compared on resume.
    resume
        Whether a directory that holds a run is continued. A directory that holds none is started.

    Raises
    ------
    SettingsError
        Another process holds the lock, the directory is not empty without ``resume``, it is no run directory, or it
        belongs to another configuration. Nothing is written then.
    """
    run = RunDir(root.absolute())
    _refuse_foreign(run)
    root.mkdir(parents=True, exist_ok=True)
    with _locked(run):
        if not run.exists(RUN_FILE):
            write_atomic(run.path(RUN_FILE), yaml.safe_dump(identity, sort_keys=False, allow_unicode=True))
        elif not resume:
            raise SettingsError(
                f"run directory {root} already holds a run; continue it with --resume, or name another with --run-dir"
            )
        else:
            changed = differences(stored_identity(root), identity)
            if changed:
                raise SettingsError(
                    f"run directory {root} belongs to another configuration: {'; '.join(changed)}; "
                    "resume it with its own, or start a new run with --run-dir"
                )
        yield run


def stored_identity(root: Path) -> dict[str, Any]:
    """What ``run.yaml`` of a run directory says. Raises SettingsError if there is none."""
    path = root / RUN_FILE
    if not path.is_file():
        raise SettingsError(f"{root} is no run directory: it has no {RUN_FILE}; check --run-dir")
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise SettingsError(f"{path} is damaged: expected a mapping, found {type(data).__name__}")
    return data


def _refuse_foreign(run: RunDir) -> None:
    if run.root.exists() and not run.root.is_dir():
        raise SettingsError(f"run directory {run.root} is a file; name a directory with --run-dir")
    known = (run.path(RUN_FILE), run.path(LOCK_FILE))
    if run.root.is_dir() and any(run.root.iterdir()) and not any(path.exists() for path in known):
        raise SettingsError(
            f"run directory {run.root} is not empty and holds no run; name an empty or new one with --run-dir"
        )


@contextmanager
def _locked(run: RunDir) -> Iterator[None]:
    """The run's lock. The kernel drops it with the process, so a kill never leaves a stale one."""
    handle = os.open(run.path(LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 4096, 0).decode(errors="replace").strip() or "unknown"
            raise SettingsError(f"run directory {run.root} is in use by another process ({holder})") from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield
    finally:
        os.close(handle)
