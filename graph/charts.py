"""Inline SVG of the report: pure functions from numbers to markup, coloured by the page's own CSS variables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 220, 92
LEFT, RIGHT, TOP, BOTTOM = 8, 8, 8, 16


def small_multiple(labels: Sequence[str], valid: Sequence[float | None], optimal: Sequence[float | None]) -> str:
    """Two lines (valid filled, optimal dashed) over the checkpoints of a run; values in [0, 1], None = not measured."""
    step = (WIDTH - LEFT - RIGHT) / max(len(labels) - 1, 1)

    def point(index: int, value: float) -> tuple[float, float]:
        return LEFT + index * step, TOP + (1 - value) * (HEIGHT - TOP - BOTTOM)

    def line(values: Sequence[float | None]) -> list[tuple[float, float]]:
        return [point(index, value) for index, value in enumerate(values) if value is not None]

    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{point(0, at)[1]:.1f}" y2="{point(0, at)[1]:.1f}"/>'
        for at in (0.0, 0.5, 1.0)
    )
    ticks = "".join(
        f'<text class="tick" x="{LEFT + index * step:.1f}" y="{HEIGHT - 3}" '
        f'text-anchor="{_anchor(index, len(labels))}">{escape(label)}</text>'
        for index, label in enumerate(labels)
    )
    points = line(valid)
    if not points:
        return ""
    base = point(0, 0.0)[1]
    area = f"M{points[0][0]:.1f},{base:.1f} " + " ".join(f"L{x:.1f},{y:.1f}" for x, y in points)
    area += f" L{points[-1][0]:.1f},{base:.1f}Z"
    dots = "".join(
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3">'
        f"<title>{escape(label)}: {value:.1%} valid</title></circle>"
        for (x, y), label, value in zip(points, labels, [v for v in valid if v is not None], strict=False)
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="success over stages">{grid}'
        f'<path class="area" d="{area}"/><polyline class="valid" points="{_points(points)}"/>'
        f'<polyline class="optimal" points="{_points(line(optimal))}"/>{dots}{ticks}</svg>'
    )


def interval_bar(delta: float, low: float, high: float, reach: float) -> str:
    """A difference with its interval on an axis from -reach to reach, zero marked."""

    def x(value: float) -> float:
        return 110 + 104 * max(-1.0, min(1.0, value / reach))

    tone = "good" if low > 0 else "bad" if high < 0 else "even"
    return (
        f'<svg class="interval {tone}" viewBox="0 0 220 22" role="img" '
        f'aria-label="{delta:+.1%}, interval {low:+.1%} to {high:+.1%}">'
        '<line class="grid" x1="4" x2="216" y1="11" y2="11"/><line class="zero" x1="110" x2="110" y1="2" y2="20"/>'
        f'<line class="whisker" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="11" y2="11"/>'
        f'<circle cx="{x(delta):.1f}" cy="11" r="5"/></svg>'
    )


def stacked_bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """One horizontal bar of (name, share, CSS colour) parts; shares sum to at most 1."""
    offset, pieces = 0.0, []
    for name, share, colour in parts:
        pieces.append(
            f'<rect x="{100 * offset:.3f}" y="0" width="{100 * share:.3f}" height="10" style="fill:{colour}">'
            f"<title>{escape(name)}: {share:.1%}</title></rect>"
        )
        offset += share
    return f'<svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img">{"".join(pieces)}</svg>'


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _anchor(index: int, n: int) -> str:
    return "start" if index == 0 else "end" if index == n - 1 else "middle"
