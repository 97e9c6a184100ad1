"""Processes that a test left behind."""

from __future__ import annotations

import os

import psutil

SESSION = "ENVWRIGHT_TEST_SESSION"
"""The variable that tells the processes of one run of pytest from those of another beside it."""


def mark_session() -> None:
    """Let all that is started from here on be known as of this run of pytest."""
    os.environ[SESSION] = str(os.getpid())


def end_left_by(test: str) -> list[int]:
    """Kill whatever this run of pytest started while the test of this id was called, by itself or by what it started.

    pytest names the test that runs in an environment variable, which its processes inherit; what fixtures start bears
    another mark (``setup``) and lives on. Returns the ids of the killed processes.
    """
    ended = []
    for process in psutil.process_iter():
        try:
            marks = process.environ()
            ours = process.pid != os.getpid() and marks.get(SESSION) == str(os.getpid())
            if ours and marks.get("PYTEST_CURRENT_TEST") == f"{test} (call)":
                process.kill()
                ended.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return ended
