"""Processes that a test left behind."""

from __future__ import annotations

import os

import psutil


def end_left_by(test: str) -> list[int]:
    """Kill whatever was started while the test of this id was called, by itself or by what it started.

    pytest names the test that runs in an environment variable, which its processes inherit; what fixtures start bears
    another mark (``setup``) and lives on. Returns the ids of the killed processes.
    """
    ended = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("PYTEST_CURRENT_TEST") == f"{test} (call)":
                process.kill()
                ended.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return ended
