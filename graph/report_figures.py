"""Charts, heat maps and bars of the report, from a summary: which numbers are shown, and how they are named."""

from __future__ import annotations

import math
from typing import Any

from markupsafe import Markup

from graph import charts, words
from graph.charts import Estimate
from trainer.statistics import wilson

SAME = 1e-6
"""Configurations are rounded to this."""
GOOD = {"optimal": "o-optimal", "valid_suboptimal": "o-valid"}
FAULTS = 5
"""Kinds of failure with a colour of their own; what is rarer is shown together."""
OTHER = "other faults"
Z95 = 1.959964
DEEP = 88
"""Percent of the full colour beyond which text on it needs another colour than the page's."""


def checkpoints(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The start and every stage's checkpoint that the anchor set has measured: label, report, whether it was kept."""
    labels = ["start", *(str(stage["stage"]) for stage in summary["stages"])]
    kept = [True, *(stage["decision"]["accepted"] for stage in summary["stages"])]
    found = zip(labels, summary["anchor"], kept, strict=False)
    return [{"label": label, "report": report, "kept": keep} for label, report, keep in found if report is not None]


def anchor_chart(summary: dict[str, Any]) -> Markup:
    """The macro score of every checkpoint. Its interval is normal, of a mean over cells of binomial shares."""
    points = checkpoints(summary)
    values = [macro(point["report"]) for point in points]
    highs = [value["valid"].high for value in values if value["valid"] is not None]
    return Markup(
        charts.curve(
            [point["label"] for point in points],
            [value["valid"] for value in values],
            [value["optimal"] for value in values],
            kept=[point["kept"] for point in points],
            frame=charts.LARGE,
            top=charts.axis_end(highs),
            about="Valid answers on the anchor set, mean over cells.",
        )
    )


def macro(report: dict[str, Any]) -> dict[str, Any]:
    """Mean over cells with its 95 % interval."""
    cells = [cell for cell in report["cells"].values() if cell["n"]]
    if not cells:
        return {"valid": None, "optimal": None}
    k = len(cells)
    value = sum(cell["valid"] for cell in cells) / k
    half = Z95 * math.sqrt(sum(cell["valid"] * (1 - cell["valid"]) / cell["n"] for cell in cells)) / k
    valid = Estimate(value, max(0.0, value - half), min(1.0, value + half))
    return {"valid": valid, "optimal": sum(cell["optimal"] for cell in cells) / k}


def multiples(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """A small chart a cell, with Wilson intervals."""
    points = checkpoints(summary)
    found = []
    for cell in summary["cells"]:
        measured = [point["report"]["cells"].get(cell) for point in points]
        valid = [_estimate(one) if one else None for one in measured]
        known = [one for one, point in zip(valid, points, strict=True) if one is not None and point["kept"]]
        if known:
            svg = charts.curve(
                [point["label"] for point in points],
                valid,
                [one["optimal"] if one else None for one in measured],
                kept=[point["kept"] for point in points],
                about=f"Valid answers on {cell}.",
            )
            found.append({"cell": cell, "first": known[0].value, "last": known[-1].value, "svg": Markup(svg)})
    return found


def _estimate(cell: dict[str, Any]) -> Estimate:
    return Estimate(cell["valid"], *wilson(round(cell["valid"] * cell["n"]), cell["n"]))


def panels(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Heat maps, rows are cells and columns stages: the share of the data, then one map a kind of knob."""
    stages, cells = summary["stages"], summary["cells"]
    if not stages:
        return []
    shares = {cell: [stage["shares"].get(cell, 0.0) for stage in stages] for cell in cells}
    tallest = max(value for row in shares.values() for value in row)
    found = [_panel("share of the data", stages, shares, max(tallest, 2 / len(cells)))]
    kinds: dict[str, list[str]] = {}
    for path in stages[0]["knobs"]:
        kinds.setdefault(_kind_and_row(path, cells)[0], []).append(path)
    for kind, paths in kinds.items():
        values = {_kind_and_row(path, cells)[1]: [stage["knobs"][path]["value"] for stage in stages] for path in paths}
        same = values.keys() == shares.keys() and all(
            abs(x - y) < SAME for cell in cells for x, y in zip(values[cell], shares[cell], strict=True)
        )
        if not same:
            top = max(stage["knobs"][path]["high"] for stage in stages for path in paths)
            found.append(_panel(kind.replace("_", " "), stages, values, top))
    return found


def _kind_and_row(path: str, cells: list[str]) -> tuple[str, str]:
    """The panel that a knob is shown in and its row there: the knob's name by cell, or a mixture by choice."""
    owner, _, name = path.rpartition(".")
    return (name, owner) if owner in cells else (owner or path, name)


def _panel(title: str, stages: list[dict[str, Any]], values: dict[str, list[float]], top: float) -> dict[str, Any]:
    percent = top <= 1.0
    show = words.whole if percent else "{:.3g}".format
    top = top or 1.0

    def square(row: list[float], index: int) -> dict[str, Any]:
        value = row[index]
        depth = round(100 * value / top)
        moved = index > 0 and value != row[index - 1]
        css = [name for name, holds in (("deep", depth > DEEP), ("moved", moved)) if holds]
        return {"text": show(value), "depth": depth, "css": " ".join(css)}

    return {
        "title": title,
        "unit": "%" if percent else "",
        "columns": [str(stage["stage"]) for stage in stages],
        "rows": [{"cell": cell, "squares": [square(row, i) for i in range(len(row))]} for cell, row in values.items()],
    }


def colours(summary: dict[str, Any]) -> dict[str, str]:
    """The CSS class of every outcome that occurs: good ones first, then faults by how often they occur."""
    counts: dict[str, int] = {}
    for report in summary["validation"]:
        for name, n in (report["outcomes"] if report else {}).items():
            counts[name] = counts.get(name, 0) + n
    faults = sorted((name for name in counts if name not in GOOD), key=lambda name: -counts[name])
    found = {name: css for name, css in GOOD.items() if name in counts}
    return found | {name: f"o-fault{i + 1}" if i < FAULTS else "o-other" for i, name in enumerate(faults)}


def legend(summary: dict[str, Any]) -> list[dict[str, str]]:
    found = {css: OTHER if css == "o-other" else name.replace("_", " ") for name, css in colours(summary).items()}
    return [{"name": name, "css": css} for css, name in found.items()]


def mixes(summary: dict[str, Any], shown: int) -> dict[str, list[dict[str, Any]]]:
    """Bars of outcomes on the validation set: of every checkpoint, and by cell before and after.

    ``shown`` is the stage whose checkpoint stands for "after".
    """
    palette, reports = colours(summary), summary["validation"]
    labels = ["start", *(f"stage {stage['stage']:03d}" for stage in summary["stages"])]
    by_checkpoint = [
        {"label": label, "valid": _valid(report["outcomes"]), "bar": _bar(report["outcomes"], palette)}
        for label, report in zip(labels, reports, strict=False)
        if report is not None
    ]
    before, after = (reports[0], reports[shown + 1]) if reports else (None, None)
    by_cell = []
    if before is not None and after is not None:
        for cell in summary["cells"]:
            if cell in before["cells"] and cell in after["cells"]:
                pair = (before["cells"][cell]["outcomes"], after["cells"][cell]["outcomes"])
                bars = [_bar(outcomes, palette) for outcomes in pair]
                by_cell.append({"cell": cell, "before": bars[0], "after": bars[1]})
    return {"by_checkpoint": by_checkpoint, "by_cell": by_cell}


def _valid(outcomes: dict[str, int]) -> float:
    return sum(outcomes.get(name, 0) for name in GOOD) / (sum(outcomes.values()) or 1)


def _bar(outcomes: dict[str, int], palette: dict[str, str]) -> Markup:
    n = sum(outcomes.values()) or 1
    parts = [(name.replace("_", " "), outcomes.get(name, 0) / n, css) for name, css in palette.items()]
    return Markup(charts.stacked_bar(parts))
