"""``report/index.html``: one self-contained page of a run, without a single external fetch.

Everything in it comes from the files of the run directory; a run that is not finished gives a report of what is there.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from envsim.api import Environment
from graph import charts, layout, words
from graph.rundir import RunDir
from graph.summary import replays, summarise
from graph.timing import TITLES
from trainer.evaluate import read_rollouts, rollouts_path
from trainer.files import write_atomic

GOOD_COLOURS = {"optimal": "#0b7a5b", "valid_suboptimal": "#62b796"}
SAME = 1e-6
"""Configurations are rounded to this."""
FAULT_COLOURS = ("#c2571a", "#e2a33c", "#9a5fc4", "#b3261e", "#2b62b8", "#7a8b2d", "#d0709b", "#5f6b73", "#8a5a3b")


def write_report(run: RunDir, environment: Environment, identity: dict[str, Any], instances: list[Any]) -> Path:
    """Write the page and return its path. ``instances`` is the validation set, for the replays."""
    summary = summarise(run, environment, identity)
    page = run.path(layout.REPORT)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(page, render(summary, films(run, environment, summary, instances)))
    return page


def films(run: RunDir, environment: Environment, summary: dict[str, Any], instances: list[Any]) -> list[dict[str, Any]]:
    """Replays of the start beside the last kept checkpoint; none before a stage was kept."""
    shown = shown_stage(summary)
    if shown < 0:
        return []
    before, after = (
        read_rollouts(rollouts_path(run.path(layout.eval_dir(origin)), "validation")) for origin in (-1, shown)
    )
    return replays(environment, instances, before, after)


def shown_stage(summary: dict[str, Any]) -> int:
    """The stage whose checkpoint stands for "after": the champion's, else the last stage's; -1 = none yet."""
    stages = summary["stages"]
    if not stages:
        return -1
    champion = int(stages[-1]["decision"]["champion"]["stage"])
    return champion if champion >= 0 else int(stages[-1]["stage"])


def render(summary: dict[str, Any], films: list[dict[str, Any]]) -> str:
    """The page of a summary, see ``graph.summary.summarise``."""
    templates = Templates(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        percent=words.percent, points=words.points, whole=words.whole, signed=words.signed, figure=_figure
    )
    stages = summary["stages"]
    final = _in_order(summary["final"]["sets"]["test"], summary["cells"]) if summary["final"] else None
    designed = [stage for stage in stages if stage["stage"] > 0]
    seconds = summary["time"]
    whole = sum(seconds.values())
    return templates.get_template("report.html.j2").render(
        title=f"Envwright: {summary['name']}",
        headline=_headline(summary),
        identity=summary["identity"],
        settings_text=yaml.safe_dump(summary["identity"], sort_keys=False, allow_unicode=True),
        stages=stages,
        final=final,
        benchmark=summary["final"]["benchmark"] if summary["final"] else [],
        designed=len(designed),
        champion=stages[-1]["decision"]["champion"]["stage"] if stages else -1,
        own_proposals=sum(stage["plan"]["own"] for stage in designed),
        kept=sum(stage["decision"]["accepted"] for stage in stages),
        role_fallbacks=summary["role_fallbacks"],
        after_label=_after_label(summary),
        multiples=_multiples(summary),
        panels=_panels(summary),
        legend=_legend(summary),
        mixes=_mixes(summary),
        times=[
            {"title": title, "seconds": seconds[name], "share": seconds[name] / whole if whole else 0.0}
            for name, title in TITLES.items()
        ],
        total_seconds=whole,
        tokens=summary["tokens"],
        films=films,
        picture=_data_url,
        caption=_caption,
        interval_bar=_markup(charts.interval_bar),
        words_of=words.answer,
    )


def _markup(draw: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *values: Markup(draw(*values))


def _data_url(svg: str) -> str:
    """A picture inside the page. As an ``img`` it runs no script and shares no style with the page."""
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


def _caption(take: dict[str, Any]) -> str:
    """How an answer ended, and where and when it went wrong."""
    fault = take["fault"] or {}
    step, location = fault.get("step"), fault.get("location")
    where = ", ".join(filter(None, ("" if step is None else f"step {step}", location)))
    return f"{take['outcome'].replace('_', ' ')}{f' ({where})' if where else ''}"


def _headline(summary: dict[str, Any]) -> str:
    final, stages = summary["final"], summary["stages"]
    if final:
        final = final["sets"]["test"]
        return (
            f"From {words.percent(final['before']['macro_valid'])} to {words.percent(final['after']['macro_valid'])} "
            f"valid plans in {_stages(stages)}{'' if final['valid']['low'] > 0 else ', within what chance may do'}"
        )
    return f"{_stages(stages)} so far"


def _stages(stages: list[Any]) -> str:
    return f"{len(stages)} stage{'' if len(stages) == 1 else 's'}"


def _in_order(comparison: dict[str, Any], cells: list[str]) -> dict[str, Any]:
    """A comparison with its cells easiest first."""
    return {**comparison, "cells": sorted(comparison["cells"], key=lambda one: cells.index(one["cell"]))}


def _after_label(summary: dict[str, Any]) -> str:
    shown = shown_stage(summary)
    return "starting checkpoint" if shown < 0 else f"checkpoint of stage {shown:03d}"


def _multiples(summary: dict[str, Any]) -> list[dict[str, Any]]:
    reports = [report for report in summary["anchor"] if report is not None]
    labels = ["start", *(str(stage["stage"]) for stage in summary["stages"])][: len(reports)]
    found = []
    for cell in summary["cells"]:
        measured = [report["cells"].get(cell) for report in reports]
        valid = [one["valid"] if one else None for one in measured]
        optimal = [one["optimal"] if one else None for one in measured]
        known = [value for value in valid if value is not None]
        if known:
            svg = Markup(charts.small_multiple(labels, valid, optimal))
            found.append({"cell": cell, "first": known[0], "last": known[-1], "svg": svg})
    return found


def _panels(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Heat maps, rows are cells and columns stages: the share of the data, then one map a kind of knob."""
    stages, cells = summary["stages"], summary["cells"]
    if not stages:
        return []
    shares = {cell: [stage["shares"].get(cell, 0.0) for stage in stages] for cell in cells}
    tallest = max(value for row in shares.values() for value in row)
    panels = [_panel("share of the data", stages, shares, max(tallest, 2 / len(cells)))]
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
            panels.append(_panel(kind.replace("_", " "), stages, values, top))
    return panels


def _kind_and_row(path: str, cells: list[str]) -> tuple[str, str]:
    """The panel that a knob is shown in and its row there: the knob's name by cell, or a mixture by choice."""
    owner, _, name = path.rpartition(".")
    return (name, owner) if owner in cells else (owner or path, name)


def _panel(title: str, stages: list[dict[str, Any]], values: dict[str, list[float]], top: float) -> dict[str, Any]:
    percent = top <= 1.0
    return {
        "title": f"{title}, %" if percent else title,
        "columns": [f"{stage['stage']:03d}" for stage in stages],
        "rows": [{"cell": cell, "figures": row} for cell, row in values.items()],
        "top": top or 1.0,
        "show": words.whole if percent else "{:.3g}".format,
    }


def _colours(summary: dict[str, Any]) -> dict[str, str]:
    """Every outcome that occurs, with its colour: good ones first, then faults by how often they occur at the start."""
    counts: dict[str, int] = {}
    for report in summary["validation"]:
        for name, n in (report["outcomes"] if report else {}).items():
            counts[name] = counts.get(name, 0) + n
    faults = sorted((name for name in counts if name not in GOOD_COLOURS), key=lambda name: -counts[name])
    colours = {name: colour for name, colour in GOOD_COLOURS.items() if name in counts}
    return {**colours, **{name: FAULT_COLOURS[i % len(FAULT_COLOURS)] for i, name in enumerate(faults)}}


def _legend(summary: dict[str, Any]) -> list[dict[str, str]]:
    return [{"name": name.replace("_", " "), "colour": colour} for name, colour in _colours(summary).items()]


def _mixes(summary: dict[str, Any]) -> list[dict[str, Any]]:
    reports = summary["validation"]
    before, after = reports[0], reports[shown_stage(summary) + 1]
    if before is None or after is None:
        return []
    colours = _colours(summary)

    def bar(outcomes: dict[str, int]) -> Markup:
        n = sum(outcomes.values()) or 1
        parts = [(name.replace("_", " "), outcomes.get(name, 0) / n, colour) for name, colour in colours.items()]
        return Markup(charts.stacked_bar(parts))

    pairs = [("all", before["outcomes"], after["outcomes"])]
    for cell in summary["cells"]:
        if cell in before["cells"] and cell in after["cells"]:
            pairs.append((cell, before["cells"][cell]["outcomes"], after["cells"][cell]["outcomes"]))
    return [{"cell": cell, "before": bar(old), "after": bar(new)} for cell, old, new in pairs]


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
