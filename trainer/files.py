"""Files that are either whole or absent: written beside the target, flushed to disk, then renamed over it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_BLOCK = 1 << 20


def write_atomic(path: Path, text: str) -> None:
    """Write text so that a reader, or a crash, sees the old file or the new one and never a part.

    Raises:
        OSError: the directory is missing or not writable.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and new entries of a directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
