"""Exit codes of the command line."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    """Unexpected: a worker or a model back end failed. Resuming tries again."""
    BAD_INPUT = 2
    WAITING = 3
    """A person must approve."""
    ROLE_FAILED = 4
    """A role gave nothing usable under ``on_failure: stop``."""
    DRAINED = 75
    """Stopped on request; the run can be resumed."""
