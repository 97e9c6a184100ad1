"""Curves of a run for people: the metrics lines that a worker writes, told to TensorBoard, W&B and trackio.

Trackers live in the process that supervises a stage, never in the worker: they follow the same JSONL that everything
else reads, so they cannot slow, break or change training. Each stage is a series of its own, in a group named after
the run, over the steps of the stage; one more series, ``run``, has a point a stage. Stages train on different tasks, so
their rewards lie over each other on one axis to be compared, and what the loop gains is seen in the series ``run``.

A series never holds a step twice: an attempt that repeats the steps of a killed one adds only those beyond them.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from trainer.attempts import attempts
from trainer.files import write_atomic
from trainer.metrics import Step, StepMetrics, curves, stage_rows
from trainer.spec import TrackerName, short

PROJECT = "envwright"
FOLDER = "tracking"
"""In the run's directory: what is known of each series, and the files of an offline W&B."""
RUN_SERIES = "run"


class TrackingError(ValueError):
    """A tracker that was asked for cannot be had."""


@dataclass(frozen=True)
class Series:
    """One curve of every metric: a stage's, or the run's."""

    root: Path
    """The run's directory, or the stage's where a stage is trained by itself."""
    name: str
    config: Mapping[str, Any]

    @property
    def group(self) -> str:
        return self.root.resolve().name


@dataclass(frozen=True)
class Point:
    """Values at one step, and the seconds since the epoch at which they were measured, if that is known."""

    step: int
    values: Mapping[str, float]
    time: float | None = None


class Tracker(Protocol):
    """Where points go. Steps come in rising order, none twice."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its methods raise when the tracker, and not we, fails."""
        ...

    def log(self, point: Point) -> None: ...

    def close(self) -> None: ...


Opened = tuple[Tracker, int]
"""A tracker, and the last step that it has: points up to it are not told again."""


class Ledger:
    """What trackers elsewhere were told of a series: their run's identity, and the last step.

    A step is written down before it is told, so a crash between the two loses a point of a curve and never doubles one.
    """

    def __init__(self, series: Series, tracker: TrackerName) -> None:
        self._path = series.root / FOLDER / f"{tracker}-{series.name}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            known = json.loads(self._path.read_text(encoding="utf-8"))
            self.identity, self.last = str(known["id"]), int(known["last_step"])
        else:
            self.identity, self.last = uuid.uuid4().hex[:12], -1
            self.claim(-1)

    def claim(self, step: int) -> None:
        self.last = step
        write_atomic(self._path, json.dumps({"id": self.identity, "last_step": step}) + "\n")


def check_trackers(names: Sequence[TrackerName]) -> None:
    """Raises TrackingError, in one line, if a tracker's package is not installed, or W&B has no key."""
    _check_installed(names)
    if "wandb" in names:
        from trainer.trackers import check_wandb  # noqa: PLC0415  what it imports takes up to a second

        check_wandb()


def _check_installed(names: Iterable[TrackerName]) -> None:
    missing = [name for name in names if not _installed(name)]
    if missing:
        raise TrackingError(
            f"tracking: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; "
            f"pip install {' '.join(missing)}, or take {'it' if len(missing) == 1 else 'them'} out of the setting"
        )


def _installed(package: str) -> bool:
    found = find_spec(package)
    # A folder of that name in the working directory, which W&B makes, passes for a package without an origin.
    return found is not None and found.origin is not None


class Curves:
    """A series in every tracker that was asked for. One that fails is told of once and left out from then on."""

    def __init__(
        self, opened: Mapping[TrackerName, Opened], trouble: Callable[[str], None], kind: type[Step] = StepMetrics
    ) -> None:
        self._trackers = {name: tracker for name, (tracker, _) in opened.items()}
        self._last = {name: last for name, (_, last) in opened.items()}
        self._trouble = trouble
        self._kind = kind

    def log(self, point: Point) -> None:
        """Tell the trackers that do not have the step yet."""
        for name in list(self._trackers):
            if point.step > self._last[name]:
                self._last[name] = point.step
                self._safely(name, lambda tracker: tracker.log(point))

    def step(self, metrics: Step) -> None:
        self.log(Point(metrics.step, curves(metrics), metrics.time))

    def event(self, event: Mapping[str, Any]) -> None:
        """Progress of a stage as `trainer.stage.run_stage` tells it; all but steps is passed over."""
        if event["event"] == "step":
            self.step(
                self._kind.model_validate({name: event[name] for name in self._kind.model_fields if name in event})
            )

    def close(self) -> None:
        for name in list(self._trackers):
            self._safely(name, lambda tracker: tracker.close())

    def _safely(self, name: TrackerName, act: Callable[[Tracker], None]) -> None:
        tracker = self._trackers[name]
        try:
            act(tracker)
        except tracker.errors as error:
            del self._trackers[name]
            self._trouble(
                f"tracking: {name} failed and gets no more points of this series, which trains on: {short(str(error))}"
            )


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr)


@contextmanager
def open_curves(
    names: Sequence[TrackerName],
    series: Series,
    history: Sequence[Point],
    *,
    kind: type[Step] = StepMetrics,
    trouble: Callable[[str], None] = to_stderr,
) -> Iterator[Curves]:
    """The series in the trackers, with what is known of it already.

    Args:
        names: the trackers.
        series: which series.
        history: all points so far, in order of their steps; the trackers are told those that they lack.
        kind: of the metrics that `Curves.event` is told.
        trouble: told in one line when a tracker fails later on.

    Raises:
        TrackingError: a package is missing, or a tracker cannot be opened, such as W&B without a key.
    """
    from trainer.trackers import OPENERS  # noqa: PLC0415  what the openers import takes up to a second

    _check_installed(names)
    with ExitStack() as stack:
        opened: dict[TrackerName, Opened] = {}
        for name in names:
            opened[name] = OPENERS[name](series)
            stack.callback(opened[name][0].close)
        told = Curves(opened, trouble, kind)
        # From here on closing is the curves' own, which tells of a failure instead of raising it.
        stack.pop_all()
        try:
            for point in history:
                told.log(point)
            yield told
        finally:
            told.close()


@contextmanager
def stage_curves(
    names: Sequence[TrackerName],
    root: Path,
    directory: Path,
    *,
    stage: int,
    config: Mapping[str, Any],
    kind: type[Step] = StepMetrics,
    trouble: Callable[[str], None] = to_stderr,
) -> Iterator[Curves]:
    """The series of a stage: what its attempts wrote so far, and then `Curves.event`. Raises TrackingError.

    Args:
        names: the trackers.
        root: the run's directory.
        directory: the stage's directory.
        stage: its number.
        config: what the trackers show as the series' configuration.
        kind: of the stage's metrics.
        trouble: told in one line when a tracker fails.
    """
    history = [Point(row.step, curves(row), row.time) for row in stage_rows(attempts(directory), kind)]
    series = Series(root, f"stage-{stage:03d}", config)
    with open_curves(names, series, history, trouble=trouble, kind=kind) as told:
        yield told
