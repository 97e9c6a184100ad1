"""Why a stage is not done, as its supervisor says it."""

from __future__ import annotations

from trainer.outcomes import Outcome


class StageError(RuntimeError):
    """A stage cannot be done: bad input, another stage's directory, or a failed worker; ``outcome`` names which."""

    def __init__(self, message: str, outcome: Outcome = "failed") -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome


class StageInputError(StageError):
    """The caller must change the spec or the directory; no worker was to blame."""

    def __init__(self, message: str, outcome: Outcome = "bad_input") -> None:
        super().__init__(message, outcome)


class StageCancelled(StageError):
    """The caller asked to stop; the worker is gone and the stage can be resumed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "terminated")
