"""A run's curves in the trackers: those of each stage, and the run's own, a point a decided stage, made from files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from typing import Any

from graph import layout
from graph.training import stage_result
from graph.work import Work
from trainer.stage import StageInputError
from trainer.tracking import RUN_SERIES, Curves, Point, Series, TrackingError, open_curves, stage_curves


@contextmanager
def stage_series(work: Work, stage: int) -> Iterator[Curves]:
    """The curves of a stage that is about to be trained. Raises StageInputError if a tracker cannot be opened."""
    with ExitStack() as stack:
        try:
            curves = stack.enter_context(
                stage_curves(
                    work.profile.tracking,
                    work.run.root,
                    work.run.path(layout.stage_dir(stage)),
                    stage=stage,
                    config=work.identity,
                    trouble=work.reporter.line,
                )
            )
        except TrackingError as error:
            raise StageInputError(str(error)) from error
        yield curves


def tell_run(work: Work) -> None:
    """Tell the trackers of every stage that they were not told of. A tracker that fails costs a line and no more."""
    series = Series(work.run.root, RUN_SERIES, work.identity)
    try:
        with open_curves(work.profile.tracking, series, run_points(work), trouble=work.reporter.line):
            pass
    except TrackingError as error:
        work.reporter.line(str(error), style="yellow")


def run_points(work: Work) -> list[Point]:
    """One point a decided stage, in order: what the anchor set says, and what training took."""
    decisions = (work.run.read_if_whole(layout.in_stage(n, "decision.json")) for n in range(work.settings.stages + 1))
    points, steps, tokens = list[Point](), 0, 0
    for stage, decision in enumerate(takewhile(lambda found: found is not None, decisions)):
        result = stage_result(work.run, stage)
        steps, tokens = steps + result.steps, tokens + result.generated_tokens
        points.append(Point(stage, {**_of_decision(decision), "run/steps": steps, "run/tokens": tokens}))
    return points


def _of_decision(decision: dict[str, Any]) -> dict[str, float]:
    return {
        "run/anchor_valid": decision["after"]["macro_valid"],
        "run/anchor_optimal": decision["after"]["macro_optimal"],
        "run/kept_valid": decision["current"]["anchor"],
        "run/accepted": float(decision["accepted"]),
    }
