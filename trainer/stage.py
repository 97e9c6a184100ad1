"""One stage as a job: `run_stage` and its like train it in its directory, or return the result that lies there.

Running a stage twice never trains it twice, and no exit code is trusted; how that is kept, `trainer.supervision` says.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from trainer.consistency import check_spec
from trainer.failures import StageCancelled, StageError, StageInputError
from trainer.launch.contract import Launcher
from trainer.launch.local import LocalLauncher
from trainer.results import AnyResult, SftResult, StageResult
from trainer.spec import AnySpec, SftSpec, StageSpec
from trainer.supervision import OnProgress, Supervision

__all__ = [
    "STALE_SECONDS",
    "OnProgress",
    "StageCancelled",
    "StageError",
    "StageInputError",
    "check_spec",
    "run_any",
    "run_sft",
    "run_stage",
]
STALE_SECONDS = 900.0
_POLL_SECONDS = 0.2


def run_stage(
    spec: StageSpec,
    directory: Path,
    *,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    stale_seconds: float = STALE_SECONDS,
    retries: int | None = None,
    launcher: Launcher | None = None,
) -> StageResult:
    """As `run_any`, for a stage of GRPO."""
    result = run_any(
        spec,
        directory,
        on_progress=on_progress,
        stop=stop,
        stale_seconds=stale_seconds,
        retries=retries,
        launcher=launcher,
    )
    assert isinstance(result, StageResult)
    return result


def run_sft(
    spec: SftSpec,
    directory: Path,
    *,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    launcher: Launcher | None = None,
) -> SftResult:
    """As `run_any`, for a supervised stage."""
    result = run_any(spec, directory, on_progress=on_progress, stop=stop, launcher=launcher)
    assert isinstance(result, SftResult)
    return result


def run_any(
    spec: AnySpec,
    directory: Path,
    *,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    stale_seconds: float = STALE_SECONDS,
    retries: int | None = None,
    launcher: Launcher | None = None,
) -> AnyResult:
    """Train the stage in its directory, or return the result that lies there.

    Args:
        spec: the stage.
        directory: ``stages/NNN``; created if missing.
        on_progress: told of the start, each step and the end.
        stop: when set, the worker is ended and StageCancelled raised. So it is on any exception, KeyboardInterrupt too.
        stale_seconds: a worker without a heartbeat for so long is ended.
        retries: new attempts in a row after workers that were killed or hung and came no further than the one before;
            one that failed by itself would fail again. None = the launcher's number. Memory that ran out is another
            matter: each attempt then puts half as many rows through the model at once, the batch staying as it
            is, down to one.
        launcher: starts the workers; None = this machine.

    Raises:
        LaunchError: the launcher cannot start a worker.
        StageError: bad spec, a directory of another spec, or a failed worker; with the end of its log.
    """
    launcher = launcher or LocalLauncher()
    retries = launcher.retries if retries is None else retries
    supervision = Supervision(spec, directory, on_progress, stale_seconds, retries=retries, launcher=launcher)
    try:
        while (result := supervision.step()) is None:
            if stop is not None and stop.is_set():
                raise StageCancelled(f"stage {spec.stage} was stopped; run it again to go on from its last checkpoint")
            time.sleep(_POLL_SECONDS)
    finally:
        supervision.close()
    return result
