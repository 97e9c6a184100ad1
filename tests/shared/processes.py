"""Processes of this machine, as /proc tells of them."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def lives(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX"


def children(process: int) -> list[int]:
    """Processes that a process started and that still run."""
    return [pid for pid in everybody() if (fields := _stat(pid)) and int(fields[1]) == process and fields[0] != "Z"]


def named(*words: str) -> list[int]:
    """Processes that live and whose command line has all of these in it."""
    return [pid for pid in everybody() if lives(pid) and all(word in _line(pid) for word in words)]


def everybody() -> list[int]:
    return sorted(int(entry.name) for entry in PROC.glob("[0-9]*"))


def _stat(pid: int) -> list[str] | None:
    """State, parent and so on; None once it is gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _line(pid: int) -> str:
    """Empty once it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
