"""Stands in for a rank of trainer.worker: notes its process, then does as it is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from trainer.launch.leash import follow_parent
from trainer.processes import DRAIN_RANKS

follow_parent()
directory, how = Path(sys.argv[1]), sys.argv[2]
told: list[int] = []
if how == "drain":
    signal.signal(DRAIN_RANKS, lambda *_: told.append(1))
(directory / f"pid-{os.getpid()}").touch()
if os.environ["RANK"] == "1":
    if how.startswith("exit"):
        sys.exit(int(how.partition(" ")[2]))
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
if how == "drain":
    while not told:
        time.sleep(0.01)
    # The first takes longer, as it says why it ends.
    time.sleep(0 if os.environ["RANK"] == "1" else 1)
    sys.exit(0 if os.environ["RANK"] == "1" else 75)
time.sleep(60)
