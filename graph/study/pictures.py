"""The pictures of a study's page as SVG files of their own, for a README or a paper: ``figures/*.svg``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from graph.study.effects import findings
from graph.study.figures import colour_of, forest, learning_curves
from graph.study.page import bar, budget_of, curves, maps
from graph.study.plan import Loaded
from graph.study.rows import Row
from trainer.files import write_atomic

STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#1d2420}
.grid{stroke:#e0e4dd}.zero{stroke:#66716a;stroke-width:1.5}.tick{font-size:11px;fill:#66716a}.figure{font-size:12px}
rect.heat{fill:#0b7a5b}.whisker{stroke-width:3}.good{stroke:#0b7a5b}.bad{stroke:#b3261e}.even{stroke:#7a7f86}
circle.good{fill:#0b7a5b}circle.bad{fill:#b3261e}circle.even{fill:#7a7f86}
"""
MARGIN, LINE, LETTER = 10, 18, 7
"""Pixels: around the picture, of a line of the key, of a letter in it (about)."""
Key = Sequence[tuple[str, str]]
"""Names and their colours."""


def write_pictures(loaded: Loaded, rows: Sequence[Row], directory: Path) -> None:
    """Write ``curves.svg``, ``forest.svg`` and ``configurations-ARM.svg``, those that the rows are enough for."""
    lines = curves(loaded, rows)
    arms = list(loaded.plan.arms)
    found: dict[str, tuple[str, Key]] = {
        "curves": (learning_curves(lines, "tokens charged", "anchor valid, %"), [(c.name, c.colour) for c in lines]),
        "forest": (forest([bar(one) for one in findings(loaded.plan, rows, budget_of(loaded))]), []),
        **{
            f"configurations-{one['arm']}": (str(one["svg"]), [(one["arm"], colour_of(arms.index(one["arm"])))])
            for one in maps(loaded, rows)
        },
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, (svg, key) in found.items():
        if svg:
            write_atomic(directory / f"{name}.svg", standalone(svg, key))


def standalone(svg: str, key: Key = ()) -> str:
    """Inline SVG of the page as a file: its colours and size in it, on white, with a key below.

    Raises:
        ValueError: it has no ``viewBox``.
    """
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    if box is None:
        msg = f"expected an SVG with a viewBox from 0 0, got {svg[:60]!r}"
        raise ValueError(msg)
    width, height = float(box[1]), float(box[2])
    entries, right, below = [], 0.0, height + LINE
    for name, colour in key:
        space = 16 + LETTER * len(name) + 14
        if right + space > width and right:
            right, below = 0.0, below + LINE
        entries.append(
            f'<rect x="{right:g}" y="{below - 9:g}" width="10" height="10" rx="3" fill="{colour}"/>'
            f'<text class="figure" x="{right + 16:g}" y="{below:g}">{escape(name)}</text>'
        )
        right += space
    whole = (below if key else height) + MARGIN
    inside = svg[svg.index(">") + 1 : svg.rindex("</svg>")]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * MARGIN:g}" height="{whole + MARGIN:g}" '
        f'viewBox="{-MARGIN} {-MARGIN} {width + 2 * MARGIN:g} {whole + MARGIN:g}"><style>{STYLE}</style>'
        f'<rect x="{-MARGIN}" y="{-MARGIN}" width="100%" height="100%" fill="#fff"/>{inside}{"".join(entries)}</svg>\n'
    )
