"""No process outlives the one that it works for: ``follow_parent()`` inside it, or ``python -m trainer.launch.leash``.

``python -m trainer.launch.leash [--grace SECONDS] ARGUMENTS`` runs this Python with the arguments in a session of its
own. It ends that session at once when its own parent is gone, with that grace when it is told to stop, and exits as the
command did.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from trainer.processes import GRACE_SECONDS, end_own, running

_POLL_SECONDS = 0.2


def follow_parent() -> None:
    """Kill this process as soon as its parent is gone. Its peers, which wait for it in a collective, cannot tell."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="leash", daemon=True).start()


def end_as(code: int) -> NoReturn:
    """Exit with a code, or by the signal that a negative one stands for."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def hold(
    command: Sequence[str], started: Callable[[int], None] | None = None, grace: float = GRACE_SECONDS
) -> NoReturn:
    """Run a command in a session of its own and exit as it does; ``started`` is told its process id.

    Told to stop, the command has ``grace`` seconds to end by itself.
    """
    parent, told = os.getppid(), threading.Event()
    if os.getpgrp() != os.getpid():
        # Whoever kills the group of its parent must not kill this one before what it holds.
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    child = subprocess.Popen(command, start_new_session=True)
    if started is not None:
        started(child.pid)
    while running(child):
        if os.getppid() != parent:
            os.killpg(child.pid, signal.SIGKILL)
        elif told.is_set():
            end_own(child, grace)
        else:
            time.sleep(_POLL_SECONDS)
    end_as(child.returncode)


def main(arguments: Sequence[str]) -> NoReturn:
    """Command line."""
    grace = GRACE_SECONDS
    if arguments[:1] == ["--grace"]:
        grace, arguments = float(arguments[1]), arguments[2:]
    hold([sys.executable, *arguments], grace=grace)


if __name__ == "__main__":
    main(sys.argv[1:])
