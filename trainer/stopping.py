"""SIGTERM and SIGINT to a command that supervises: it ends what it started and leaves with exit code 75."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_DRAINED = 75


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """What SIGTERM and SIGINT set, in place of what they do otherwise."""
    stop = threading.Event()
    before = {sign: signal.signal(sign, lambda *_: stop.set()) for sign in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
