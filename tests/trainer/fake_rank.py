"""Stands in for a rank of trainer.worker: notes its process, then the second one does as it is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from trainer.launch.leash import follow_parent

follow_parent()
directory, how = Path(sys.argv[1]), sys.argv[2]
(directory / f"pid-{os.getpid()}").touch()
if os.environ["RANK"] == "1":
    if how.startswith("exit"):
        sys.exit(int(how.partition(" ")[2]))
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
