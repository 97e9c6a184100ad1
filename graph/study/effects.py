"""What the rows of a study say: each arm by itself, and each contrast with its interval and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from graph.settings import Frozen, SettingsError
from graph.study.plan import Contrast, Outcome, Plan
from graph.study.rows import Answers, Row, What, macro_of
from trainer.replicates import Arm, PairedTest, crossed_bootstrap, detectable, macro, paired_test, worst_decile
from trainer.statistics import holm

BOOTSTRAP_SEED = 20260617
RESAMPLES = 10_000


class ArmSummary(Frozen):
    """Means over the seeds of an arm; shares in [0, 1]."""

    arm: str
    seeds: list[int]
    outcomes: dict[Outcome, float]
    charged: float
    cpu_minutes: float
    stages: float
    kept: float
    """Share of the designed stages that were kept."""
    own: float
    """Share of the designed stages that trained on a proposal of the arm's designer itself."""
    reused: float
    """Share of the designed stages that no proposal of which passed."""


class Finding(Frozen):
    """A contrast. ``low`` and ``high`` are None with one seed, the rest too."""

    contrast: Contrast
    family: Literal["primary", "secondary", "exploratory"]
    seeds: list[int]
    delta: float
    low: float | None = None
    high: float | None = None
    test: PairedTest | None = None
    p_holm: float | None = None
    """Corrected within the secondary family."""
    detectable: float | None = None
    """The true difference that so many seeds find with 80 % power, from this spread."""


def value_of(row: Row, outcome: Outcome, budget: int) -> float | None:
    """An outcome of one run; None if it was not measured, or is one of pairs."""
    if outcome == "anchor_matched":
        return None
    if outcome == "anchor_area":
        return anchor_area(row, budget)
    if outcome == "stage_gain":
        last = row.stages[-1]
        return macro_of(last.anchor, "valid") - macro_of(origin_of(row), "valid") if last.stage > 0 else None
    if outcome == "test_worst_decile":
        return float(worst_decile(_shares([row])))
    name, what = _set_of(outcome)
    return macro_of(row.after[name], what) if name in row.after else None


def anchor_area(row: Row, budget: int) -> float:
    """Mean over the budget's tokens of the anchor validity of the checkpoint that the run had then.

    Between two measurements the curve is a straight line; after the last one it stays where it is.
    """
    tokens, valid = anchor_curve(row)
    places = np.unique([*(x for x in tokens if x < budget), float(budget)])
    return float(np.trapezoid(np.interp(places, tokens, valid), places) / budget)


def anchor_curve(row: Row) -> tuple[list[float], list[float]]:
    """Tokens charged, and the anchor validity of the checkpoint that the run had then."""
    tokens = [0.0, *(float(stage.tokens) for stage in row.stages)]
    return tokens, [macro_of(row.start_anchor, "valid"), *(stage.kept_valid for stage in row.stages)]


def anchor_matched(one: Row, other: Row) -> tuple[float, float]:
    """Anchor validity of two runs at the tokens of the one that ended first, between two measurements on a straight
    line."""
    tokens = min(one.charged, other.charged)
    first, second = (float(np.interp(tokens, *anchor_curve(row))) for row in (one, other))
    return first, second


def champion_anchor(row: Row) -> float:
    """Anchor validity of the run's champion."""
    champion = row.start_anchor if row.champion < 0 else row.stages[row.champion].anchor
    return macro_of(champion, "valid")


def origin_of(row: Row) -> Answers:
    """The anchor answers of the checkpoint that the last stage was trained from."""
    origin = row.stages[-1].origin
    return row.start_anchor if origin < 0 else row.stages[origin].anchor


def summaries(plan: Plan, rows: Sequence[Row], budget: int) -> list[ArmSummary]:
    """One for each arm that has rows, in the order of the plan."""
    found = []
    for arm in plan.arms:
        own = [row for row in rows if row.arm == arm]
        if own:
            found.append(_summary(arm, own, budget))
    return found


def _summary(arm: str, rows: Sequence[Row], budget: int) -> ArmSummary:
    designed = [stage for row in rows for stage in row.stages if stage.stage > 0]
    outcomes: dict[Outcome, float] = {}
    for outcome in Outcome.__args__:  # type: ignore[attr-defined]
        values = [value for row in rows if (value := value_of(row, outcome, budget)) is not None]
        if values:
            outcomes[outcome] = float(np.mean(values))
    outcomes["test_worst_decile"] = float(worst_decile(_shares(rows)))
    share = max(1, len(designed))
    return ArmSummary(
        arm=arm,
        seeds=sorted(row.seed for row in rows),
        outcomes=outcomes,
        charged=float(np.mean([row.charged for row in rows])),
        cpu_minutes=float(np.mean([row.cpu_seconds for row in rows])) / 60,
        stages=float(np.mean([len(row.stages) for row in rows])),
        kept=sum(stage.accepted for stage in designed) / share,
        own=sum(stage.own and stage.source != "reused" for stage in designed) / share,
        reused=sum(stage.source == "reused" for stage in designed) / share,
    )


def findings(plan: Plan, rows: Sequence[Row], budget: int) -> list[Finding]:
    """The plan's contrasts that can be had from the rows, and every other arm beside the two of the primary."""
    asked: list[tuple[Contrast, Literal["primary", "secondary", "exploratory"]]] = []
    if plan.primary is not None:
        asked.append((plan.primary, "primary"))
    asked += [(contrast, "secondary") for contrast in plan.secondary]
    if plan.primary is not None:
        named, primary = {str(contrast) for contrast, _ in asked}, plan.primary
        arms = [arm for arm in plan.arms if arm not in (primary.treatment, primary.control)]
        # Runs end where another stage would not fit: what is left of the budget is not the same for all.
        others = [primary.model_copy(update={"outcome": "anchor_matched"})]
        others += [primary.model_copy(update={"control": arm}) for arm in arms]
        others += [primary.model_copy(update={"treatment": arm}) for arm in arms]
        asked += [(contrast, "exploratory") for contrast in others if not {str(contrast), _turned(contrast)} & named]
    found = [one for contrast, family in asked if (one := finding(contrast, family, rows, budget)) is not None]
    return corrected(found)


def _turned(contrast: Contrast) -> str:
    return str(contrast.model_copy(update={"treatment": contrast.control, "control": contrast.treatment}))


def corrected(found: Sequence[Finding]) -> list[Finding]:
    """With Holm's correction over the secondary family."""
    raw = {str(one.contrast): one.test.p_t for one in found if one.family == "secondary" and one.test}
    adjusted = holm(raw)
    return [
        one.model_copy(update={"p_holm": adjusted[str(one.contrast)]})
        if one.family == "secondary" and one.test
        else one
        for one in found
    ]


def finding(
    contrast: Contrast, family: Literal["primary", "secondary", "exploratory"], rows: Sequence[Row], budget: int
) -> Finding | None:
    """One contrast over the seeds that both arms have; None if there are none or the outcome was not measured."""
    sides = [{row.seed: row for row in rows if row.arm == arm} for arm in (contrast.treatment, contrast.control)]
    seeds = sorted(sides[0].keys() & sides[1].keys())
    treated, controls = ([side[seed] for seed in seeds] for side in sides)
    pairs = [
        anchor_matched(one, other)
        if contrast.outcome == "anchor_matched"
        else (value_of(one, contrast.outcome, budget), value_of(other, contrast.outcome, budget))
        for one, other in zip(treated, controls, strict=True)
    ]
    if not pairs or any(value is None for pair in pairs for value in pair):
        return None
    differences = [float(one) - float(other) for one, other in pairs if one is not None and other is not None]
    single = Finding(contrast=contrast, family=family, seeds=seeds, delta=float(np.mean(differences)))
    if len(seeds) < 2:
        return single
    test = paired_test(differences)
    least = detectable(test.sd, len(seeds))
    if contrast.outcome in ("anchor_area", "anchor_matched"):
        return single.model_copy(update={"low": test.low, "high": test.high, "test": test, "detectable": least})
    statistic = worst_decile if contrast.outcome == "test_worst_decile" else macro
    effect = crossed_bootstrap(
        *matrices(treated, controls, contrast.outcome), seed=BOOTSTRAP_SEED, statistic=statistic, resamples=RESAMPLES
    )
    update = {"delta": effect.delta, "low": effect.low, "high": effect.high, "test": test, "detectable": least}
    return single.model_copy(update=update)


def matrices(treated: Sequence[Row], controls: Sequence[Row], outcome: Outcome) -> tuple[Arm, Arm]:
    """Scores of shape (seeds, instances) by cell of both arms. Raises SettingsError if they answered different sets."""
    sides = [[_scored(row, outcome) for row in rows] for rows in (treated, controls)]
    sets = {answers.instances for side in sides for answers, _ in side}
    if len(sets) > 1:
        raise SettingsError(f"the rows of {outcome} are of {len(sets)} different sets of instances; they do not pair")
    cells = list(sides[0][0][0].cells)
    one, other = ({cell: np.stack([scores[cell] for _, scores in side]) for cell in cells} for side in sides)
    return one, other


def _scored(row: Row, outcome: Outcome) -> tuple[Answers, dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    if outcome == "stage_gain":
        last, before = row.stages[-1].anchor, _numbers(origin_of(row), "valid")
        return last, {cell: after - before[cell] for cell, after in _numbers(last, "valid").items()}
    name, what = _set_of(outcome)
    return row.after[name], _numbers(row.after[name], what)


def _numbers(answers: Answers, what: What) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    return {cell: answers.scores(cell, what) for cell in answers.cells}


def _shares(rows: Sequence[Row]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Test validity of shape (seeds, cells)."""
    return np.array([list(row.after["test"].shares("valid").values()) for row in rows])


def _set_of(outcome: Outcome) -> tuple[str, What]:
    if outcome == "test_sampled" or outcome.startswith("benchmark_"):
        return outcome, "valid"
    return "test", "optimal" if outcome == "test_optimal" else "valid"
