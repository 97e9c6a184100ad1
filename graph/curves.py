"""The run's own curve in the trackers: a point a stage, made from the files of the stages that are decided."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from graph import layout
from graph.training import stage_result
from graph.work import Work
from trainer.tracking import RUN_SERIES, Point, Series, TrackingError, open_curves


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
