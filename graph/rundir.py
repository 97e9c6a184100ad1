"""The run directory: one lock, atomic files, an append-only event log, and "made once from the same inputs".

Files win over the checkpointer. ``once`` reads a file that was already made from the same inputs instead of making it
again, so a node may run any number of times. What a file was made from stands in ``made_from.json`` beside it, written
after the file: a kill between the two makes the file again, and never leaves a wrong claim.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from envsim.documents import DocumentError, parse_json, read_yaml
from graph.layout import DATABASE
from graph.lock import LOCK_FILE, locked
from graph.settings import SettingsError, differences
from trainer.files import remove_stale, write_atomic
from trainer.spec import canonical_hash

RUN_FILE = "run.yaml"
EVENTS_FILE = "events.jsonl"
MADE_FROM = "made_from.json"
ELSEWHERE = "settings.checkpoints "
"""A difference that says where something lies and not what the run computes."""
_BEFORE_BIRTH = re.compile(rf"{LOCK_FILE}|\.{re.escape(RUN_FILE)}\.\d+\.tmp|{re.escape(DATABASE)}(-wal|-shm)?")
"""What may lie in a run directory before ``run.yaml`` does: also what Studio opens before its first run."""


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
        """The JSON value of a file. Raises DocumentError if it is damaged, OSError if it cannot be read."""
        path = self.path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise DocumentError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from error
        return parse_json(text, str(path))

    def read_if_there(self, name: str) -> Any:
        return self.read(name) if self.exists(name) else None

    def read_if_whole(self, name: str) -> Any:
        """For what can be made again: None if the file is missing or was cut by a crash."""
        try:
            return self.read_if_there(name)
        except DocumentError:
            return None

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
        """Whether a file is there, whole, and was made from these inputs."""
        claimed = self._claims(name).get(self.path(name).name) == canonical_hash(inputs)
        return claimed and self.read_if_whole(name) is not None

    def claim(self, name: str, inputs: Any) -> None:
        path = self.path(name)
        claims = {**self._claims(name), path.name: canonical_hash(inputs)}
        write_atomic(path.parent / MADE_FROM, dump(dict(sorted(claims.items()))))

    def _claims(self, name: str) -> dict[str, str]:
        claims = self.read_if_whole(self.name(self.path(name).parent / MADE_FROM))
        return dict(claims) if isinstance(claims, dict) else {}

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
        Whether the run that the directory holds is continued; otherwise one is started in an empty or new directory.

    Raises
    ------
    SettingsError
        The directory cannot be made, another process holds the lock, there is no run to resume or one that was not to
        be resumed, or it belongs to another configuration. Nothing is written then.
    """
    run = RunDir(root.absolute())
    _refuse(run, identity, resume)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(root, error) from error
    with locked(run.root):
        # Once more: another process may have started a run here before the lock was ours.
        begin_run(run, identity, resume=resume)
        yield run


def open_directory(root: Path) -> RunDir:
    """A directory that holds a run or may hold one, made if it is missing. Raises SettingsError for any other."""
    run = RunDir(root.absolute())
    if not os.path.lexists(run.path(RUN_FILE)):
        _refuse(run, {}, False)
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(root, error) from error
    return run


def begin_run(run: RunDir, identity: dict[str, Any], *, resume: bool) -> None:
    """Write down a new run, or see that a resumed one is this one; the lock is held. Raises SettingsError."""
    _refuse(run, identity, resume)
    if not resume:
        write_atomic(run.path(RUN_FILE), yaml.safe_dump(identity, sort_keys=False, allow_unicode=True))
    remove_stale(run.root)


LISTED = "python -m graph.runs lists the runs below a directory"
TO_RESUME = "check --run-dir, or start a run without --resume"
"""What to do where a directory holds no run: for commands that look at one, and for those that would go on with it."""


def stored_identity(root: Path, *, otherwise: str = LISTED) -> dict[str, Any]:
    """What ``run.yaml`` of a run directory says. Raises SettingsError if there is none, with what to do ``otherwise``,
    or if it is damaged."""
    path = root / RUN_FILE
    if not os.path.lexists(path):
        raise SettingsError(f"{str(root)!r} holds no run: it has no {RUN_FILE}; {otherwise}")
    try:
        data = read_yaml(path)
    except DocumentError as error:
        raise SettingsError(f"{error}; restore it, or start a new run") from error
    if not isinstance(data, dict):
        raise SettingsError(f"{path} is damaged: expected a mapping, found {type(data).__name__}")
    settings = data.get("settings")
    if not isinstance(settings, dict):
        raise SettingsError(f"{path} is damaged: expected a mapping under 'settings', found {type(settings).__name__}")
    return data


def _refuse(run: RunDir, identity: dict[str, Any], resume: bool) -> None:
    """Everything that speaks against the directory, found without touching it. Raises SettingsError."""
    root = run.root
    if resume:
        stored = stored_identity(root, otherwise=TO_RESUME)
        changed = [line for line in differences(stored, identity) if not line.startswith(ELSEWHERE)]
        if changed:
            raise SettingsError(
                f"run directory {root} belongs to another configuration: {'; '.join(changed)}; "
                "resume it with its own, or start a new run with --run-dir"
            )
        return
    try:
        names = sorted(os.listdir(root))
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise SettingsError(
            f"run directory {root} is a file or lies in one; name a directory with --run-dir"
        ) from error
    except (OSError, ValueError) as error:
        raise _unusable(root, error) from error
    if RUN_FILE in names:
        raise SettingsError(
            f"run directory {root} already holds a run; continue it with --resume, or name another with --run-dir"
        )
    if names and not _killed_at_birth(run, names):
        raise SettingsError(
            f"run directory {root} is not empty and holds no run; name an empty or new one with --run-dir"
        )


def _killed_at_birth(run: RunDir, names: list[str]) -> bool:
    """Whether the directory holds no more than what is there before ``run.yaml``: a run killed early, Studio unused."""
    if not all(_BEFORE_BIRTH.fullmatch(name) for name in names):
        return False
    if LOCK_FILE not in names:
        return False
    try:
        text = run.path(LOCK_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    holder = _parsed(text)
    return not text or (holder is not None and {"pid", "host"} <= holder.keys() <= {"pid", "host", "what"})


def _unusable(root: Path, error: OSError | ValueError) -> SettingsError:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return SettingsError(f"run directory {str(root)!r} cannot be used: {why}; name another with --run-dir")
