"""Files that are either whole or absent: written beside the target, flushed to disk, then renamed over it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_BLOCK = 1 << 20
_TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp")
"""The names that ``write_atomic`` gives, with the process that writes."""


class DirectoryError(OSError):
    """A directory that a command is to write into cannot be had."""


def make_directory(path: Path, flag: str = "--directory") -> None:
    """The directory that a command was given by a flag, made if need be. Raises DirectoryError in one line."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DirectoryError(f"{flag} {path} is a file or lies in one; name a directory") from error
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DirectoryError(f"{flag} {str(path)!r} cannot be used: {why}; name another") from error


def write_atomic(path: Path, text: str) -> None:
    """Write text so that a reader, or a crash, sees the old file or the new one and never a part.

    Raises:
        OSError: the directory is missing or not writable, or the disk is full; it names the target.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    sync(path.parent)


def remove_stale(directory: Path) -> None:
    """Remove what killed processes left of unfinished writes, anywhere below the directory."""
    for path in directory.rglob(".*.tmp"):
        named = _TEMPORARY.fullmatch(path.name)
        if named and not _lives(int(named[1])):
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def lock(path: Path) -> TextIO:
    """A lock on a file, which is made if need be; it ends when what is returned is closed, or with the process.

    Raises:
        BlockingIOError: another holds it.
    """
    file = path.open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def sync(path: Path) -> None:
    """Flush a file's bytes, or a directory's entries and renames, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(directory: Path) -> None:
    """Flush every file of a directory, and the directory itself, to disk."""
    for path in (*directory.iterdir(), directory):
        sync(path)


def publish(staged: Path, target: Path) -> None:
    """Give a directory its final name once its files are on disk; one that bears the name is removed.

    After a power cut the target is absent or whole.
    """
    sync_files(staged)
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)
    sync(target.parent)


def read_lines(path: Path) -> list[str]:
    """Whole lines of a UTF-8 file without their ends; a torn last line, which may end inside a character, is left out.

    Only a line feed ends a line: str.splitlines also cuts at U+0085, U+2028 and U+2029, which JSON strings hold raw.
    """
    return [line.decode("utf-8") for line in path.read_bytes().split(b"\n")[:-1]]


def hash_file(path: Path) -> str:
    """sha256 of a file's bytes, read in blocks of 1 MiB."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
