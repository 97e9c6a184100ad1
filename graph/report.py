"""``report/index.html``: one self-contained page of a run, without a single external fetch.

Everything in it comes from the files of the run directory; a run that is not finished gives a page of what is there,
which loads itself again. The page's policy allows no script but its own and no fetch at all.
"""

from __future__ import annotations

import hashlib
import time
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined
from markupsafe import Markup

from envsim.api import Environment
from graph import charts, layout, report_figures, report_story, words
from graph.report_state import At
from graph.rundir import RunDir
from graph.summary import answers, replays, summarise
from graph.timing import TITLES
from trainer.evaluate import read_rollouts, rollouts_path
from trainer.files import write_atomic

RELOAD_SECONDS = 10
"""How often the page of a run at work loads itself again."""
STATES = {
    "running": ("at work", "even"),
    "done": ("done", "good"),
    "waiting": ("waiting for approval", "warn"),
    "drained": ("stopped on request", "even"),
    "failed": ("failed", "bad"),
}


def write_report(
    run: RunDir, environment: Environment, identity: dict[str, Any], instances: list[Any], *, at: At | None = None
) -> Path:
    """Write the page and return its path.

    Parameters
    ----------
    run, environment, identity
        The run and what it works with.
    instances
        The validation set, for the replays; none are drawn without it.
    at
        What the run does at this moment, None if it is not known.
    """
    summary = summarise(run, environment, identity)
    page = run.path(layout.REPORT)
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(page, render(summary, films(run, environment, summary, instances), at=at))
    return page


def films(run: RunDir, environment: Environment, summary: dict[str, Any], instances: list[Any]) -> list[dict[str, Any]]:
    """Replays of the start beside the last kept checkpoint; none before a stage was kept."""
    shown = shown_stage(summary)
    if shown < 0 or not instances:
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


@lru_cache(maxsize=1)
def templates() -> Templates:
    found = Templates(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(
        percent=words.percent,
        points=words.points,
        whole=words.whole,
        signed=words.signed,
        figure=_figure,
        seconds=words.seconds,
        name=lambda text: str(text).replace("_", " "),
    )
    return found


def render(summary: dict[str, Any], films: list[dict[str, Any]], *, at: At | None = None) -> str:
    """The page of a summary, see ``graph.summary.summarise``."""
    stages = summary["stages"]
    final = _in_order(summary["final"]["sets"]["test"], summary["cells"]) if summary["final"] else None
    designed = [stage for stage in stages if stage["stage"] > 0]
    seconds = summary["time"]
    whole = sum(seconds.values())
    now = time.time()
    how = "running" if at is not None else summary["how"]
    live = how == "running"
    script = (Path(__file__).parent / "report.js.j2").read_text(encoding="utf-8").strip()
    return (
        templates()
        .get_template("report.html.j2")
        .render(
            title=f"Envwright: {summary['name']}",
            name=summary["name"],
            headline=_headline(summary, live=live),
            state=dict(zip(("text", "tone"), STATES[how], strict=True)),
            why=summary["why"],
            live=live,
            reload_seconds=RELOAD_SECONDS,
            script=Markup(script),
            script_hash=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            written=int(now),
            written_text=report_story.moment(now),
            now=report_story.now_card(at, now),
            identity=summary["identity"],
            designer=words.designer(summary["identity"]["settings"]["designer"]),
            settings_text=yaml.safe_dump(summary["identity"], sort_keys=False, allow_unicode=True),
            stages=stages,
            final=final,
            benchmark=summary["final"]["benchmark"] if summary["final"] else [],
            designed=len(designed),
            champion=stages[-1]["decision"]["champion"]["stage"] if stages else -1,
            own_proposals=sum(stage["plan"]["own"] for stage in designed),
            kept=sum(stage["decision"]["accepted"] for stage in stages),
            role_answers=sum(len(answers(stage)) for stage in stages),
            role_fallbacks=summary["role_fallbacks"],
            after_label=_after_label(summary),
            anchor=report_figures.anchor_chart(summary),
            multiples=report_figures.multiples(summary),
            panels=report_figures.panels(summary),
            legend=report_figures.legend(summary),
            mixes=report_figures.mixes(summary, shown_stage(summary)),
            gates=report_story.gate_table(summary),
            lanes=report_story.lanes(summary["spans"], at, now),
            talk=report_story.talk(summary),
            provenance=report_story.provenance(summary),
            times=[
                {"title": title, "seconds": seconds[name], "share": seconds[name] / whole if whole else 0.0}
                for name, title in TITLES.items()
            ],
            total_seconds=whole,
            tokens=summary["tokens"],
            read=summary["read"],
            films=films,
            picture=_data_url,
            caption=_caption,
            interval_bar=_markup(charts.interval_bar),
            stage_reach=_reach([stage["decision"] for stage in stages]),
            final_reach=_reach([final] if final else []),
            words_of=words.answer,
        )
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


def _headline(summary: dict[str, Any], *, live: bool) -> str:
    final, stages = summary["final"], summary["stages"]
    if final:
        final = final["sets"]["test"]
        return (
            f"From {words.percent(final['before']['macro_valid'])} to {words.percent(final['after']['macro_valid'])} "
            f"valid plans in {_stages(len(stages))}{'' if final['valid']['low'] > 0 else ', within what chance may do'}"
        )
    if live:
        return f"{len(stages)} of {_stages(summary['identity']['settings'].get('stages', 0) + 1)} done"
    return f"{_stages(len(stages))} so far"


def _stages(n: int) -> str:
    return f"{n} stage{'' if n == 1 else 's'}"


def _in_order(comparison: dict[str, Any], cells: list[str]) -> dict[str, Any]:
    """A comparison with its cells easiest first."""
    return {**comparison, "cells": sorted(comparison["cells"], key=lambda one: cells.index(one["cell"]))}


def _after_label(summary: dict[str, Any]) -> str:
    shown = shown_stage(summary)
    return "starting checkpoint" if shown < 0 else f"checkpoint of stage {shown:03d}"


def _reach(comparisons: list[dict[str, Any]]) -> float:
    """The end of the axis on which all changes of these comparisons are shown."""
    ends = [one[score][end] for one in comparisons for score in ("valid", "optimal") for end in ("low", "high")]
    return charts.axis_end(ends)


def _figure(value: float | None, beside: float | None = None) -> str:
    """A figure, with as many digits as tell it from the one that it stands beside."""
    if value is None:
        return "–"
    differs = (n for n in range(3, 9) if beside in (None, value) or f"{value:.{n}g}" != f"{beside:.{n}g}")
    return f"{value:.{next(differs, 9)}g}"
