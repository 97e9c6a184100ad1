"""Plot what a certificate costs against the size of the map, the number of agents and the share of holes.

``python docs/cost/make.py`` measures, writes ``data.json`` beside itself and draws it; ``--from data.json`` draws what
was measured before. ``--out DIR`` writes elsewhere. Drawing needs the extra ``docs``. Same data, same bytes.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from envsim.api import Frozen
from envsim.contest import Full, Makespan, Row, contest

HERE = Path(__file__).resolve().parent
SIZES = range(3, 11)
AGENTS = range(2, 6)
HOLES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
USUAL_HOLES = 0.2
USUAL_SIZE = 8
QUESTIONS = {Makespan.name: "Makespan alone", Full.name: "Full certificate"}
COLOURS = dict(zip(AGENTS, ("#0072b2", "#009e73", "#d55e00", "#7b3294"), strict=True))
INK, PALE = "#222222", "#dddddd"
OPEN = 0.01
"""Points of which more than this share stayed open are drawn hollow."""


class Point(Frozen):
    """What one question about lakes of one kind costs: the mean over ``layouts``, of which ``gave_up`` stayed open."""

    size: int
    agents: int
    hole_ratio: float
    question: str
    layouts: int
    milliseconds: float
    gave_up: float


class Data(Frozen):
    """All that is drawn, and where and how it was measured."""

    python: str
    processor: str
    seconds: float
    points: list[Point]


def rows() -> list[Row]:
    """Every kind of lake that some plot shows, once."""
    by_size = [Row(size, agents, USUAL_HOLES) for agents in AGENTS for size in SIZES]
    by_holes = [Row(USUAL_SIZE, agents, holes) for agents in AGENTS for holes in HOLES if holes != USUAL_HOLES]
    return by_size + by_holes


def measure(seconds: float, layouts: int) -> Data:
    """Processor time on one core; ``seconds`` for each point, over at most so many layouts."""
    points: list[Point] = []
    for row in rows():
        print(row, flush=True)
        run = contest(row, [Makespan(), Full()], seconds=seconds, layouts=layouts)
        points += [
            Point(
                **row._asdict(),
                question=name,
                layouts=len(lane.times),
                milliseconds=round(1000 / lane.per_second(), 5),
                gave_up=round(lane.gave_up / len(lane.times), 4),
            )
            for name, lane in run.lanes.items()
        ]
    return Data(python=platform.python_version(), processor=platform.machine(), seconds=seconds, points=points)


def plot(data: Data, label: str, ticks: dict[float, str], along: Callable[[Point], float | None]) -> Figure:
    """Both questions side by side, a line for each number of agents; ``along`` is None for points to leave out."""
    figure, both = plt.subplots(1, 2, figsize=(8.4, 3.7), sharey=True, layout="constrained")
    for axes, (question, title) in zip(both, QUESTIONS.items(), strict=True):
        for agents in AGENTS:
            chosen = [point for point in data.points if (point.question, point.agents) == (question, agents)]
            found = [(x, point) for point in chosen if (x := along(point)) is not None]
            _line(axes, sorted(found, key=lambda pair: pair[0]), agents)
        axes.set_title(title, loc="left", fontsize=11, color=INK)
        axes.set_xlabel(label)
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.set_yscale("log")
        axes.margins(x=0.04)
        axes.grid(axis="y", color=PALE, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    both[0].set_ylabel("milliseconds a layout")
    handles, names = both[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside upper left", ncols=len(names), fontsize=9.5)
    return figure


def _line(axes: Axes, found: Sequence[tuple[float, Point]], agents: int) -> None:
    colour = COLOURS[agents]
    axes.plot(
        [x for x, _ in found],
        [point.milliseconds for _, point in found],
        color=colour,
        linewidth=1.8,
        label=f"{agents} agents",
    )
    for x, point in found:
        fill = "white" if point.gave_up > OPEN else colour
        axes.plot([x], [point.milliseconds], "o", color=colour, markerfacecolor=fill, markersize=5)


def plots(data: Data) -> Iterator[tuple[str, Figure]]:
    """Name and figure of each plot."""
    sizes = {float(size): f"{size}x{size}" for size in SIZES}
    yield "size", plot(data, f"map, {USUAL_HOLES:.0%} holes", sizes, lambda p: p.size if p.hole_ratio == 0.2 else None)
    shares = {share: f"{share:.0%}" for share in HOLES}
    yield (
        "holes",
        plot(
            data, f"holes, {USUAL_SIZE}x{USUAL_SIZE}", shares, lambda p: p.hole_ratio if p.size == USUAL_SIZE else None
        ),
    )


STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cost",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="draw this data, measure nothing")
    parser.add_argument("--seconds", type=float, default=1.0, help="processor time for each point (default: 1)")
    parser.add_argument("--layouts", type=int, default=300, help="most layouts for each point (default: 300)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where to write (default: beside this)")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="of the plots (default: svg)")
    options = parser.parse_args()
    if options.source is None:
        data = measure(options.seconds, options.layouts)
        (options.out / "data.json").write_text(data.model_dump_json(indent=1) + "\n", encoding="utf-8")
    else:
        data = Data.model_validate_json(options.source.read_text(encoding="utf-8"))
    mpl.use("agg")
    with mpl.rc_context(STYLE):
        for name, figure in plots(data):
            metadata = {"Date": None} if options.format == "svg" else None
            figure.savefig(options.out / f"{name}.{options.format}", metadata=metadata, dpi=130)
            plt.close(figure)


if __name__ == "__main__":
    main()
