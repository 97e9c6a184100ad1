"""The three trackers: TensorBoard's event files, W&B, trackio. Each package is imported when its series is opened."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from trainer.spec import TrackerName
from trainer.tracking import FOLDER, PROJECT, Ledger, Opened, Point, Series, TrackingError

TENSORBOARD_FOLDER = "tensorboard"
_FLUSH_SECONDS = 5


class TensorBoard:
    """Event files in ``<run>/tensorboard/<series>/``, made anew from the history whenever the series is opened.

    So they hold every step once whatever was killed before. A viewer that has the removed file in memory is told by
    the session's start to drop what it has.
    """

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, series: Series) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # noqa: PLC0415
        from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
        from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

        self._event, self._summary = Event, Summary
        folder = series.root / TENSORBOARD_FOLDER / series.name
        try:
            for path in folder.glob("events.out.tfevents.*"):
                path.unlink()
            self._writer = EventFileWriter(str(folder), flush_secs=_FLUSH_SECONDS)
        except OSError as error:
            raise TrackingError(f"tracking: tensorboard cannot write to {folder}: {error.strerror}") from error
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=0, session_log=start))

    def log(self, point: Point) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
        wall = time.time() if point.time is None else point.time
        self._writer.add_event(self._event(wall_time=wall, step=point.step, summary=self._summary(value=values)))

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A W&B run; ``WANDB_MODE=offline`` and the rest of W&B's own settings hold.

    A series that goes on offline leaves a second directory with the same run id; ``wandb sync`` joins them.
    """

    def __init__(self, series: Series, ledger: Ledger) -> None:
        import wandb  # noqa: PLC0415

        self.errors: tuple[type[Exception], ...] = (wandb.Error, OSError)
        self._ledger = ledger
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                group=series.group,
                name=series.name,
                id=ledger.identity,
                job_type=series.name.partition("-")[0],
                config=dict(series.config),
                dir=str(series.root / FOLDER),
                resume="allow",
                reinit="create_new",
                # The console and the machine's figures are this process's, not the training worker's.
                settings=wandb.Settings(console="off", x_disable_stats=True, silent=True),
            )
        except (wandb.Error, OSError) as error:
            raise _wandb_cannot_start(error) from error

    def log(self, point: Point) -> None:
        self._ledger.claim(point.step)
        # Committed at once: without it a row waits for the next one, and a kill would take it.
        self._run.log(dict(point.values), step=point.step, commit=True)

    def close(self) -> None:
        self._run.finish()


def check_wandb() -> None:
    """What W&B needs besides the network: a key, which it asks for at a terminal. Raises TrackingError without one."""
    import wandb  # noqa: PLC0415

    try:
        if wandb.setup().settings.mode not in {"offline", "dryrun", "disabled"}:
            wandb.login(verify=False)
    except (wandb.Error, OSError) as error:
        raise _wandb_cannot_start(error) from error


def _wandb_cannot_start(error: Exception) -> TrackingError:
    return TrackingError(
        f"tracking: wandb cannot start: {' '.join(str(error).split())}; log in, or set WANDB_MODE=offline"
    )


class Trackio:
    """A trackio run in its local store, or wherever trackio's own settings send it."""

    errors: tuple[type[Exception], ...] = (OSError, RuntimeError, ValueError, sqlite3.Error)

    def __init__(self, series: Series, ledger: Ledger) -> None:
        import trackio  # noqa: PLC0415

        self._trackio, self._ledger = trackio, ledger
        try:
            # It greets and takes leave on the standard output, which belongs to what the command prints.
            with redirect_stdout(sys.stderr):
                self._run: Any = trackio.init(
                    project=PROJECT,
                    # A name is all that tells trackio's runs apart, and two run directories may be called the same.
                    name=trackio_name(series, ledger),
                    group=series.group,
                    config=dict(series.config),
                    resume="allow",
                    embed=False,
                    auto_log_gpu=False,
                    auto_log_cpu=False,
                )
        except self.errors as error:
            raise TrackingError(f"tracking: trackio cannot start: {' '.join(str(error).split())}") from error

    def log(self, point: Point) -> None:
        self._ledger.claim(point.step)
        self._run.log(dict(point.values), step=point.step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            # Not the run's own method, after which trackio would finish the run again when the process ends.
            self._trackio.finish()


def trackio_name(series: Series, ledger: Ledger) -> str:
    return f"{series.group}-{ledger.identity[:6]}/{series.name}"


def _tensorboard(series: Series) -> Opened:
    return TensorBoard(series), -1


def _wandb(series: Series) -> Opened:
    ledger = Ledger(series, "wandb")
    return WandB(series, ledger), ledger.last


def _trackio(series: Series) -> Opened:
    ledger = Ledger(series, "trackio")
    return Trackio(series, ledger), ledger.last


OPENERS: dict[TrackerName, Callable[[Series], Opened]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "trackio": _trackio,
}
