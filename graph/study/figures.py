"""Pictures of a study as inline SVG: pure functions from numbers to markup, in the colours of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

COLOURS = (
    *("#0b7a5b", "#2b62b8", "#c2571a", "#9a5fc4", "#7a8b2d", "#b3261e"),
    *("#d0709b", "#5f6b73", "#8a5a3b", "#2f9aa0", "#d99a00", "#2d2a6e"),
)
"""Of the arms, in the order of the plan; they begin again after the last one."""
WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 34
LEAST_SPAN = 0.01
"""Of an axis: what differs by less looks the same."""


class Curve(NamedTuple):
    """One arm over the same places: the mean and a band around it, in percent; no band where its edges are empty."""

    name: str
    colour: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


class Bar(NamedTuple):
    """One line of a forest plot, in points; no interval where it is None."""

    label: str
    delta: float
    low: float | None
    high: float | None
    strong: bool


def colour_of(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover an interval; two of them at least."""
    span = max(high - low, LEAST_SPAN)
    rough = span / about
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(place * step, 10) for place in range(first, max(last, first + 1) + 1)]


def learning_curves(curves: Sequence[Curve], x_title: str, y_title: str) -> str:
    """Lines, and bands of those that have one, over a common axis; nothing for no curves."""
    if not curves:
        return ""
    across = ticks(0.0, max(max(curve.x) for curve in curves))
    heights = [value for curve in curves for value in (*curve.low, *curve.mean, *curve.high)]
    up = ticks(min(heights), max(heights))

    def px(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - across[0]) / (across[-1] - across[0])

    def py(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (up[-1] - value) / (up[-1] - up[0])

    parts = [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(at):.1f}" y2="{py(at):.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{py(at) + 4:.1f}" text-anchor="end">{at:g}</text>'
        for at in up
    ]
    parts += [
        f'<text class="tick" x="{px(at):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{thousands(at)}</text>'
        for at in across
    ]
    for curve in (curve for curve in curves if curve.low):
        upper = [f"{px(x):.1f},{py(y):.1f}" for x, y in zip(curve.x, curve.high, strict=True)]
        lower = [f"{px(x):.1f},{py(y):.1f}" for x, y in zip(curve.x, curve.low, strict=True)]
        parts.append(f'<polygon points="{" ".join([*upper, *reversed(lower)])}" fill="{curve.colour}" opacity=".13"/>')
    for curve in curves:
        line = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in zip(curve.x, curve.mean, strict=True))
        title = f"<title>{escape(curve.name)}: {curve.mean[-1]:.1f}</title>"
        stroke = f'fill="none" stroke="{curve.colour}" stroke-width="2"'
        parts.append(f'<polyline points="{line}" {stroke}>{title}</polyline>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{escape(x_title)}</text>')
    parts.append(f'<text class="tick" x="4" y="{HEIGHT - 3}">{escape(y_title)}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_title)}">{"".join(parts)}</svg>'


def thousands(value: float) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value / 1e3:g} k" if value >= 1e3 else f"{value:g}"


def heat_map(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], top: float) -> str:
    """A square a row and column, as dark as its value is large beside ``top``, with the value in percent inside."""
    cell, height, left = 42, 24, 58
    width = left + cell * len(columns)
    parts = []
    for down, (name, line) in enumerate(zip(rows, values, strict=True)):
        y = down * height
        parts.append(f'<text class="tick" x="{left - 6}" y="{y + 16}" text-anchor="end">{escape(name)}</text>')
        for along, value in enumerate(line):
            if value is None:
                continue
            x, depth = left + along * cell, 0 if top <= 0 else max(0.0, min(1.0, value / top))
            box = f'x="{x + 1}" y="{y + 1}" width="{cell - 2}" height="{height - 2}" rx="4"'
            ink = "#fff" if depth > 0.55 else "currentColor"
            parts.append(
                f'<rect {box} class="heat" fill-opacity="{0.06 + 0.94 * depth:.3f}"/>'
                f'<text x="{x + cell / 2}" y="{y + 16}" text-anchor="middle" class="figure" fill="{ink}">'
                f"{100 * value:.0f}</text>"
            )
    bottom = len(rows) * height
    parts += [
        f'<text class="tick" x="{left + along * cell + cell / 2}" y="{bottom + 14}" text-anchor="middle">'
        f"{escape(name)}</text>"
        for along, name in enumerate(columns)
    ]
    return f'<svg viewBox="0 0 {width} {bottom + 20}" style="max-width:{width}px" role="img">{"".join(parts)}</svg>'


def in_points(value: float) -> str:
    """With its sign; zero has one, whichever side it was rounded from."""
    return f"{round(value, 1) + 0.0:+.1f}"


def forest(bars: Sequence[Bar]) -> str:
    """Effects with their intervals, one below the other, on a common axis in points; nothing for no effects."""
    if not bars:
        return ""
    left, right, height = 300, 110, 26
    values = [value for bar in bars for value in (bar.low, bar.delta, bar.high, 0.0) if value is not None]
    across = ticks(min(values), max(values), 6)
    bottom = len(bars) * height

    def px(value: float) -> float:
        return left + (WIDTH + 160 - left - right) * (value - across[0]) / (across[-1] - across[0])

    parts = [
        f'<line class="{"zero" if at == 0 else "grid"}" x1="{px(at):.1f}" x2="{px(at):.1f}" y1="0" y2="{bottom}"/>'
        f'<text class="tick" x="{px(at):.1f}" y="{bottom + 14}" text-anchor="middle">{f"{at:+g}" if at else "0"}</text>'
        for at in across
    ]
    for down, bar in enumerate(bars):
        y = down * height + height / 2
        weight = "700" if bar.strong else "400"
        parts.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end" class="figure" font-weight="{weight}" '
            f'fill="currentColor">{escape(bar.label)}</text>'
        )
        text = in_points(bar.delta)
        if bar.low is not None and bar.high is not None:
            tone = "good" if bar.low > 0 else "bad" if bar.high < 0 else "even"
            parts.append(
                f'<line class="whisker {tone}" x1="{px(bar.low):.1f}" x2="{px(bar.high):.1f}" y1="{y}" y2="{y}"/>'
            )
            text += f" ({in_points(bar.low)} to {in_points(bar.high)})"
        else:
            tone = "even"
        parts.append(f'<circle class="{tone}" cx="{px(bar.delta):.1f}" cy="{y}" r="{5 if bar.strong else 4}"/>')
        parts.append(
            f'<text x="{WIDTH + 160 - right + 8}" y="{y + 4}" class="figure" fill="currentColor">{text}</text>'
        )
    return f'<svg viewBox="0 0 {WIDTH + 200} {bottom + 20}" role="img" aria-label="effects">{"".join(parts)}</svg>'
