"""``python -m trainer.serving.hold RECORD PYTHON ARGUMENTS``: a server on a leash, with a record of its process.

The server is ended gently when this process is told to stop, and at once when whoever started it is gone. Should this
process be killed as well, the record says which process is left: `trainer.serving.server.end_orphan` ends that one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pydantic import ValidationError

from trainer.attempts import WorkerRecord, process_started
from trainer.files import write_atomic
from trainer.frozen import Frozen
from trainer.launch.leash import hold


class Held(Frozen):
    """A server and the process that holds its leash, each with when it started."""

    server: WorkerRecord
    holder: WorkerRecord


def read_held(record: Path) -> Held | None:
    """What a record says; None if there is none or it was damaged."""
    try:
        return Held.model_validate_json(record.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def lives(process: WorkerRecord) -> bool:
    """Whether that very process still runs, and not another of its id."""
    return process_started(process.pid) == process.started


def _record(path: Path, server: int) -> None:
    started, own = process_started(server), process_started(os.getpid())
    if started is not None and own is not None:
        held = Held(server=WorkerRecord(pid=server, started=started), holder=WorkerRecord(pid=os.getpid(), started=own))
        write_atomic(path, held.model_dump_json())


if __name__ == "__main__":
    record = Path(sys.argv[1])
    hold(sys.argv[2:], lambda server: _record(record, server))
