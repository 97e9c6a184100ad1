"""Inline SVG of the report: pure functions from numbers to markup, coloured by the page's own CSS variables.

Every picture says in words what it shows. Lines differ by dash and marks by shape, so that no colour has to be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

LEFT, RIGHT, TOP, BOTTOM = 40, 8, 10, 30
MOST_LABELS = 7


class Estimate(NamedTuple):
    """A share with its interval, all in [0, 1]."""

    value: float
    low: float
    high: float


class Frame(NamedTuple):
    """The size of a picture in its own units, about pixels on a phone."""

    width: int
    height: int


SMALL, LARGE = Frame(190, 128), Frame(420, 240)
TOPS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Where an axis of shares or of changes may end."""


def curve(
    labels: Sequence[str],
    valid: Sequence[Estimate | None],
    optimal: Sequence[float | None],
    *,
    kept: Sequence[bool],
    frame: Frame = SMALL,
    top: float = 1.0,
    about: str = "",
) -> str:
    """Shares in percent over the checkpoints of a run: valid with its interval, optimal dashed; None = not measured.

    ``top`` is where the axis, which begins at 0, ends. A checkpoint that was rolled back is hollow, and the line of
    what was kept passes it by. Empty if nothing is known.
    """
    known = [(index, found) for index, found in enumerate(valid) if found is not None]
    if not known:
        return ""
    base = frame.height - BOTTOM

    def x(index: int) -> float:
        return LEFT + (index + 0.5) * (frame.width - LEFT - RIGHT) / len(labels)

    def y(share: float) -> float:
        return TOP + (1 - share / top) * (base - TOP)

    def line(points: Sequence[tuple[int, float]], name: str) -> str:
        return f'<polyline class="{name}" points="{" ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in points)}"/>'

    parts = 2 if frame == SMALL else 4
    ticks = [top * part / parts for part in range(parts + 1)]
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{frame.width - RIGHT}" y1="{y(at):.1f}" y2="{y(at):.1f}"/>'
        f'<text class="tick" x="{LEFT - 5}" y="{y(at) + 3.5:.1f}" text-anchor="end">'
        f"{100 * at:.0f}{' %' * (at == top)}</text>"
        for at in ticks
    )
    every = -(-len(labels) // MOST_LABELS)
    names = "".join(
        f'<text class="tick" x="{x(index):.1f}" y="{base + 13}" text-anchor="middle">{escape(label)}</text>'
        for index, label in enumerate(labels)
        if index % every == 0 or index == len(labels) - 1
    )
    axes = (
        f'<text class="axis" x="{(LEFT + frame.width - RIGHT) / 2:.0f}" y="{frame.height - 4}" '
        'text-anchor="middle">checkpoint</text>'
    )
    whiskers = "".join(
        f'<path class="whisker" d="M{x(i):.1f},{y(one.low):.1f}V{y(one.high):.1f}'
        f'M{x(i) - 3:.1f},{y(one.low):.1f}h6M{x(i) - 3:.1f},{y(one.high):.1f}h6"/>'
        for i, one in known
    )
    dots = "".join(
        f'<circle class="{"dot" if kept[i] else "hollow"}" cx="{x(i):.1f}" cy="{y(one.value):.1f}" r="3.5">'
        f"<title>{escape(_told(labels[i], one, kept[i]))}</title></circle>"
        for i, one in known
    )
    best = [(index, share) for index, share in enumerate(optimal) if share is not None and kept[index]]
    told = "; ".join(_told(labels[i], one, kept[i]) for i, one in known)
    return (
        f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img" aria-label="{escape(f"{about} {told}".strip())}">'
        f"{grid}{axes}{line(best, 'optimal')}{whiskers}{line([(i, v.value) for i, v in known if kept[i]], 'valid')}"
        f"{dots}{names}</svg>"
    )


def _told(label: str, found: Estimate, kept: bool) -> str:
    interval = f"{100 * found.low:.0f} to {100 * found.high:.0f}"
    return f"{label}: {100 * found.value:.1f} % valid ({interval}){'' if kept else ', rolled back'}"


def axis_end(values: Sequence[float]) -> float:
    """The least round end of an axis that holds all values."""
    largest = max((abs(value) for value in values), default=1.0)
    return next((top for top in TOPS if largest <= top), 1.0)


def interval_bar(delta: float, low: float, high: float, reach: float) -> str:
    """A difference with its interval on an axis from -reach to reach in points, zero marked."""

    def x(value: float) -> float:
        return 110 + 100 * max(-1.0, min(1.0, value / reach))

    tone = "good" if low > 0 else "bad" if high < 0 else "even"
    return (
        f'<svg class="interval {tone}" viewBox="0 0 220 30" role="img" '
        f'aria-label="{100 * delta:+.1f} points, 95 % interval {100 * low:+.1f} to {100 * high:+.1f}">'
        '<line class="grid" x1="10" x2="210" y1="9" y2="9"/><line class="zero" x1="110" x2="110" y1="2" y2="16"/>'
        f'<line class="whisker" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="9" y2="9"/>'
        f'<circle cx="{x(delta):.1f}" cy="9" r="4.5"/>'
        f'<text class="tick" x="10" y="27">−{100 * reach:.0f}</text>'
        f'<text class="tick" x="110" y="27" text-anchor="middle">0</text>'
        f'<text class="tick" x="210" y="27" text-anchor="end">+{100 * reach:.0f} points</text></svg>'
    )


def stacked_bar(parts: Sequence[tuple[str, float, str]]) -> str:
    """One horizontal bar of (name, share, CSS class) parts; shares sum to at most 1."""
    offset, pieces = 0.0, []
    for name, share, css in parts:
        if share <= 0:
            continue
        pieces.append(
            f'<rect class="{css}" x="{100 * offset:.3f}" y="0" width="{100 * share:.3f}" height="10">'
            f"<title>{escape(name)}: {share:.1%}</title></rect>"
        )
        offset += share
    told = ", ".join(f"{name} {share:.0%}" for name, share, _ in parts if share >= 0.005)
    return (
        f'<svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{escape(told)}">'
        f"{''.join(pieces)}</svg>"
    )
