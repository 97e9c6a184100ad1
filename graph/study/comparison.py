"""A run that was made again beside the published one: where they part, and how far apart they end.

On the same type of CPU a run is the same to the last answer. On another one numbers are rounded differently, sampled
answers part, and with them what a run accepts: it is then a new draw of its arm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from graph.settings import Frozen
from graph.study.effects import value_of
from graph.study.page import budget_of
from graph.study.plan import OUTCOMES, Loaded, Outcome
from graph.study.rows import Row
from trainer.replicates import t_quantile


class Comparison(Frozen):
    """A run beside the published one of its arm and seed."""

    arm: str
    seed: int
    parts: str | None
    """The first thing that is not the same; None if everything is."""
    code: tuple[str, str] | None
    """The two versions of the code, if they differ."""
    outcomes: dict[Outcome, tuple[float, float]]
    """Published and own, in [0, 1]."""


def compared(published: Row, own: Row, budget: int) -> Comparison:
    """Two runs of one arm and seed, side by side."""
    outcomes: dict[Outcome, tuple[float, float]] = {}
    for outcome in Outcome.__args__:  # type: ignore[attr-defined]
        pair = value_of(published, outcome, budget), value_of(own, outcome, budget)
        if pair[0] is not None and pair[1] is not None:
            outcomes[outcome] = pair[0], pair[1]
    return Comparison(
        arm=own.arm,
        seed=own.seed,
        parts=next((what for what, one, other in _pieces(published, own) if one != other), None),
        code=None if published.code == own.code else (published.code, own.code),
        outcomes=outcomes,
    )


def _pieces(published: Row, own: Row) -> Iterator[tuple[str, object, object]]:
    """Everything that two runs must agree in, in the order in which a run makes it."""
    yield "the starting checkpoint", published.start, own.start
    yield "the start's answers to the anchor set", published.start_anchor, own.start_anchor
    yield "the start's answers to the sealed sets", published.before, own.before
    for one, other in zip(published.stages, own.stages, strict=False):
        yield f"stage {one.stage:03d}", one, other
    yield "the number of stages", len(published.stages), len(own.stages)
    yield "the champion", published.champion, own.champion
    yield "the champion's answers to the sealed sets", published.after, own.after
    rest = {"code", "seconds", "cpu_seconds"}
    yield "tokens and fallbacks", published.model_dump(exclude=rest), own.model_dump(exclude=rest)


def tolerance(loaded: Loaded, rows: Sequence[Row], arm: str) -> float | None:
    """How far two draws of an arm lie apart at most in 95 % of cases, in points of the plan's primary outcome.

    t_0.975 x sqrt(2) x SD, with the standard deviation over the published seeds of the arm and as many less one degrees
    of freedom; None if there are fewer than two.
    """
    outcome = primary_of(loaded)
    values = [value_of(row, outcome, budget_of(loaded)) for row in rows if row.arm == arm]
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    return 100 * t_quantile(0.975, len(known) - 1) * math.sqrt(2) * float(np.std(known, ddof=1))


def primary_of(loaded: Loaded) -> Outcome:
    return loaded.plan.primary.outcome if loaded.plan.primary is not None else "test_valid"


def told(found: Comparison, loaded: Loaded, allowed: float | None) -> tuple[list[str], bool]:
    """What is said of a comparison, and whether it is as it should be; ``allowed`` in points, 0 = all must be equal."""
    head = f"{found.arm}, seed {found.seed}"
    if found.parts is None:
        return [f"{head}: the same to the last answer"], True
    lines = [f"{head}: parts from the published run at {found.parts}"]
    if found.code is not None:
        lines.append(f"  that one was made by the code {found.code[0]}, and this is {found.code[1]}")
    for outcome, (then, now) in found.outcomes.items():
        lines.append(f"  {OUTCOMES[outcome]}: {100 * then:.1f} -> {100 * now:.1f} % ({100 * (now - then):+.1f} points)")
    outcome = primary_of(loaded)
    if outcome not in found.outcomes:
        return [*lines, f"  {outcome} was not measured in both"], False
    if allowed is None:
        return [*lines, "  no tolerance: the arm has fewer than two published seeds; give --tolerance"], False
    then, now = found.outcomes[outcome]
    within = allowed > 0 and 100 * abs(now - then) <= allowed
    return [*lines, f"  {outcome} is {'within' if within else 'outside'} the tolerance of {allowed:.1f} points"], within
