"""A test that ignores a signal does not make the tests after it, and what they start, deaf to it."""

from __future__ import annotations

import signal
import subprocess
import sys

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def test_one_ignores_a_signal() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_what_the_next_starts_is_ended_by_it() -> None:
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        try:
            assert process.wait(timeout=20) == -signal.SIGTERM
        finally:
            process.kill()
