"""``report.html`` of a study: one self-contained page, without a single external fetch, made from the rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from graph.study.effects import ArmSummary, Finding, anchor_curve, findings, summaries
from graph.study.figures import Bar, Curve, colour_of, forest, heat_map, in_points, learning_curves
from graph.study.plan import CONFIRMING, OUTCOMES, Loaded, Plan
from graph.study.rows import Row, What
from trainer.files import write_atomic
from trainer.replicates import t_quantile

GRID = 61
"""Places of a learning curve."""
MOST_BANDS = 4
"""Arms whose bands one picture can show."""


def write_page(loaded: Loaded, rows: Sequence[Row], path: Path, *, owed: int) -> None:
    """Write the page of the rows there are. ``owed`` runs of the plan have no row yet."""
    write_atomic(path, render(loaded, rows, owed=owed))


def render(loaded: Loaded, rows: Sequence[Row], *, owed: int) -> str:
    plan, budget = loaded.plan, budget_of(loaded)
    found, arms = findings(plan, rows, budget), summaries(plan, rows, budget)
    templates = Templates(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("page.html.j2").render(
        plan=plan,
        hash=loaded.hash,
        codes=sorted({row.code for row in rows}),
        kinds=kinds(rows),
        rows=len(rows),
        owed=owed,
        budget=budget,
        verdict=None
        if plan.primary is None
        else verdict(next((one for one in found if one.family == "primary"), None)),
        findings=found,
        outcomes=OUTCOMES,
        sampled=plan.samples > 0,
        arms=[(one, colour_of(list(plan.arms).index(one.arm))) for one in arms],
        few_bands=len(banded(plan)) < len(plan.arms),
        curves=Markup(learning_curves(curves(loaded, rows), "tokens charged", "anchor valid, %")),
        forest=Markup(forest([bar(one) for one in found])),
        maps=maps(loaded, rows),
        benchmarks=benchmarks(arms, rows),
        plan_text=yaml.safe_dump(plan.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        points=points,
        signed=signed,
        probability=probability,
    )


def points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def signed(value: float | None) -> str:
    return "–" if value is None else in_points(100 * value)


def probability(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if value >= 1e-4 else "< 0.0001"


def budget_of(loaded: Loaded) -> int:
    """The tokens that the curves go to: the largest budget of an arm."""
    return max(settings.token_budget or 0 for settings in loaded.arms.values())


def kinds(rows: Sequence[Row]) -> str:
    """Which seeds the rows are of, in a word that says what they can prove."""
    confirming = sum(row.seed in CONFIRMING for row in rows)
    if not rows:
        return "no runs yet"
    return "confirming" if confirming == len(rows) else "mixed" if confirming else "development"


def bar(one: Finding) -> Bar:
    name = str(one.contrast)
    scaled = [None if value is None else 100 * value for value in (one.low, one.high)]
    return Bar(name, 100 * one.delta, scaled[0], scaled[1], one.family == "primary")


def banded(plan: Plan) -> list[str]:
    """The arms whose curves have a band."""
    arms, primary = list(plan.arms), plan.primary
    return arms if primary is None or len(arms) <= MOST_BANDS else [primary.treatment, primary.control]


def curves(loaded: Loaded, rows: Sequence[Row]) -> list[Curve]:
    """The anchor validity of the kept checkpoint over tokens: mean of the seeds and its 95 % t interval.

    Of many arms the primary's two alone have a band, since more of them hide each other.
    """
    arms, bands = list(loaded.plan.arms), banded(loaded.plan)
    places = np.linspace(0, budget_of(loaded), GRID)
    found = []
    for index, arm in enumerate(arms):
        own = [row for row in rows if row.arm == arm]
        if not own:
            continue
        lines = np.array([_line(row, places) for row in own]) * 100
        mean = lines.mean(axis=0)
        edges: list[list[float]] = [[], []]
        if arm in bands and len(own) > 1:
            half = t_quantile(0.975, len(own) - 1) * lines.std(axis=0, ddof=1) / np.sqrt(len(own))
            edges = [list(mean - half), list(mean + half)]
        found.append(Curve(arm, colour_of(index), list(places), list(mean), *edges))
    return found


def _line(row: Row, places: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Any:
    return np.interp(places, *anchor_curve(row))


def maps(loaded: Loaded, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """By arm: the mean share of the data by cell and stage, over the seeds that have the stage."""
    found = []
    top = max((share for row in rows for stage in row.stages for share in stage.shares.values()), default=1.0)
    for arm in loaded.plan.arms:
        own = [row for row in rows if row.arm == arm]
        if not own:
            continue
        cells, most = list(own[0].stages[0].shares), max(len(row.stages) for row in own)
        means: list[list[float | None]] = [
            [
                float(np.mean([row.stages[stage].shares.get(cell, 0.0) for row in own if stage < len(row.stages)]))
                for stage in range(most)
            ]
            for cell in cells
        ]
        columns = [f"{stage:03d}" for stage in range(most)]
        found.append({"arm": arm, "svg": Markup(heat_map(cells, columns, means, top))})
    return found


def benchmarks(arms: Sequence[ArmSummary], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The paper's table by number of agents: valid / optimal in percent, a row an arm, a column a cell, and their
    mean."""
    names = sorted({name for row in rows for name in row.after if name.startswith("benchmark_")})
    tables = []
    for name in names:
        measured = [row for row in rows if name in row.after]
        cells = by_size(measured[0].after[name].cells)
        lines = [("start", measured[:1], "before")]
        lines += [(arm.arm, [row for row in measured if row.arm == arm.arm], "after") for arm in arms]
        tables.append(
            {
                "title": f"{name.removeprefix('benchmark_')} agents",
                "cells": cells,
                "lines": [(label, _figures(own, side, name, cells)) for label, own, side in lines if own],
            }
        )
    return tables


def by_size(cells: Any) -> list[str]:
    return sorted(cells, key=lambda cell: (len(cell), cell))


def _figures(rows: Sequence[Row], side: str, name: str, cells: Sequence[str]) -> list[str]:
    kinds: tuple[What, What] = ("valid", "optimal")
    sums = {}
    for what in kinds:
        shares = [getattr(row, side)[name].shares(what) for row in rows]
        by_cell = np.mean([[one[cell] for cell in cells] for one in shares], axis=0)
        sums[what] = [*by_cell, by_cell.mean()]
    return [f"{100 * v:.2f} / {100 * o:.2f}" for v, o in zip(sums["valid"], sums["optimal"], strict=True)]


def verdict(one: Finding | None) -> str:
    """The primary outcome in words."""
    if one is None:
        return "The primary contrast has no pair of runs yet."
    contrast = f"{one.contrast.treatment} - {one.contrast.control}"
    head = f"{contrast}: {signed(one.delta)} points of {OUTCOMES[one.contrast.outcome]}"
    if one.low is None or one.high is None:
        return f"{head}, one seed, no interval."
    side = "above 0" if one.low > 0 else "below 0" if one.high < 0 else "which includes 0"
    return f"{head}, 95 % interval {signed(one.low)} to {signed(one.high)}, {side}; {len(one.seeds)} seeds."
