"""One instance as a self-contained SVG, and the parts that a film is made of.

Free cells are ice, holes are water. Agent 0 is a disc ``a``, its goal a square ``A``, its first goal, where it
has one, a diamond ``A1``; agent 1 is ``b``, and so on. Shapes and letters tell everything that colours do. The picture
brings its own panel, light or dark as the reader prefers, holds no script and fetches nothing. Same instance, same
bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from envsim.lake.draw import agent_name, describe, goal_name, via_name
from envsim.lake.grid import HOLE, Cell
from envsim.lake.instance import LakeInstance

CELL = 40
"""Side of a cell in the picture's own units."""
MARGIN = 22
LEAST_WIDTH = 4 * CELL
SHOWN_SIDE, SHOWN_CELL = 480, (8, 64)
"""Pixels of the longer side of a board, and the least and most of a cell, where the page does not say otherwise."""
NUMBERS_APART = 20
"""Rows or columns from which on not every one is numbered."""

PALETTE = (("#0072b2", "#fff"), ("#d55e00", "#000"), ("#007a5a", "#fff"), ("#a8327d", "#fff"), ("#f0b429", "#000"))
"""An agent's colour and that of its letter: Okabe and Ito's palette, darkened where white would be hard to read."""

_STYLE = (
    ":root{color-scheme:light dark}"
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-weight:700;"
    "text-anchor:middle}"
    ".panel{fill:#fff;stroke:#d3dce2}.ice{fill:#dcecf5}.grid{fill:none;stroke:#fff;stroke-width:2}"
    ".number{fill:#5a6a75;font-weight:400}.label{fill:#1d2a33;text-anchor:start}.soft{fill:#5a6a75;font-weight:400}"
    ".goal{fill:#fff;stroke-width:3.5}.ink{fill:#17232b}.disc{stroke:#fff;stroke-width:2}"
)
_DARK = (
    ".panel{fill:#161d22;stroke:#2d3942}.ice{fill:#b9d0de}.grid{stroke:#d6e5ee}.label{fill:#e3ecf2}"
    ".number,.soft{fill:#9db0bd}"
)
_WATER = (
    '<radialGradient id="d" cy=".62" r=".7"><stop offset="0" stop-color="#06263f"/>'
    '<stop offset=".55" stop-color="#0d4674"/><stop offset="1" stop-color="#2f86bd"/></radialGradient>'
    '<g id="w"><rect x="1.5" y="1.5" width="37" height="37" rx="7" fill="#a9cbe0"/>'
    '<rect x="3" y="4" width="34" height="33.5" rx="6" fill="url(#d)"/>'
    '<path d="M9 13q4-3 8 0t8 0M17 20q3-2.4 6 0t6 0" fill="none" stroke="#8cc4e6" stroke-width="1.6" '
    'stroke-linecap="round" opacity=".75"/></g>'
)


def number(value: float) -> str:
    """A coordinate in at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value % 1 else str(int(value))


@dataclass(frozen=True, slots=True)
class Sheet:
    """Where things are: a board of ``rows`` x ``columns`` cells and ``footer`` lines of text below it."""

    rows: int
    columns: int
    footer: int = 0

    @property
    def width(self) -> int:
        return max(2 * MARGIN + self.columns * CELL, LEAST_WIDTH)

    @property
    def text_size(self) -> float:
        """Of the footer: it fills the same part of the width on every board."""
        return self.width / 22

    @property
    def height(self) -> float:
        return self.bottom + MARGIN + 1.5 * self.text_size * self.footer

    @property
    def left(self) -> float:
        return (self.width - self.columns * CELL) / 2

    @property
    def bottom(self) -> int:
        return MARGIN + self.rows * CELL

    def corner(self, cell: Cell) -> tuple[float, float]:
        return self.left + cell[1] * CELL, MARGIN + cell[0] * CELL

    def centre(self, row: float, column: float) -> tuple[float, float]:
        return self.left + (column + 0.5) * CELL, MARGIN + (row + 0.5) * CELL

    def baseline(self, line: int) -> float:
        """Of a line of the footer, the first is 0."""
        return self.bottom + MARGIN / 2 + (1.5 * line + 1) * self.text_size


def svg(instance: LakeInstance) -> str:
    """The instance as an SVG document: ice, water, every agent's start and goals, numbered rows and columns."""
    sheet = Sheet(len(instance.rows), len(instance.rows[0]))
    discs = [disc(i, *sheet.centre(*cell)) for i, cell in enumerate(instance.starts)]
    parts = [board(sheet, instance.rows), *goals(sheet, instance), *discs, *tags(sheet, instance)]
    return page(sheet, describe(instance), parts)


def page(sheet: Sheet, title: str, parts: Sequence[str], style: str = "") -> str:
    """A whole document of parts, drawn in their order on a panel. ``title`` is what a screen reader says."""
    side = max(sheet.rows, sheet.columns)
    scale = min(max(SHOWN_SIDE / side, SHOWN_CELL[0]), SHOWN_CELL[1]) / CELL
    width, height = sheet.width, sheet.height
    colours = "".join(
        f".f{i}{{fill:{colour}}}.s{i}{{stroke:{colour}}}.l{i}{{fill:{letter}}}"
        for i, (colour, letter) in enumerate(PALETTE)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" '
        f'width="{number(width * scale)}" height="{number(height * scale)}" role="img" aria-label="{escape(title)}">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{_STYLE}{colours}{style}@media (prefers-color-scheme:dark){{{_DARK}}}</style>\n"
        f"<defs>{_WATER}</defs>\n"
        f'<rect class="panel" x=".5" y=".5" width="{number(width - 1)}" height="{number(height - 1)}" rx="10"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def board(sheet: Sheet, rows: Sequence[str]) -> str:
    """Ice with holes in it, and the numbers of rows and columns."""
    left, bottom, right = sheet.left, sheet.bottom, sheet.left + sheet.columns * CELL
    lines = "".join(f"M{number(left + c * CELL)} {MARGIN}V{bottom}" for c in range(1, sheet.columns))
    lines += "".join(f"M{number(left)} {MARGIN + r * CELL}H{number(right)}" for r in range(1, sheet.rows))
    holes = [sheet.corner((r, c)) for r, row in enumerate(rows) for c, mark in enumerate(row) if mark == HOLE]
    water = "".join(f'<use href="#w" x="{number(x)}" y="{number(y)}"/>' for x, y in holes)
    every = -(-max(sheet.rows, sheet.columns) // NUMBERS_APART)
    columns = [(sheet.centre(0, c)[0], MARGIN - 6.0, c) for c in range(0, sheet.columns, every)]
    numbers = [*columns, *((left - 11, sheet.centre(r, 0)[1] + 4, r) for r in range(0, sheet.rows, every))]
    text = "".join(f'<text x="{number(x)}" y="{number(y)}">{i}</text>' for x, y, i in numbers)
    text = text.replace("<text", '<text class="number" font-size="12"')
    return (
        f'<rect class="ice" x="{number(left)}" y="{MARGIN}" width="{sheet.columns * CELL}" '
        f'height="{sheet.rows * CELL}" rx="6"/><path class="grid" d="{lines}"/>{water}\n{text}'
    )


def goals(sheet: Sheet, instance: LakeInstance) -> list[str]:
    """Every agent's goal and first goal, with its letter where nothing else is in the cell."""
    crowded = _crowded(instance)
    return [_shape(sheet, mark) + ("" if mark.cell in crowded else _centred(sheet, mark)) for mark in _marks(instance)]


def tags(sheet: Sheet, instance: LakeInstance) -> list[str]:
    """The letters of the goals in other cells, in a corner where no disc hides them."""
    crowded = _crowded(instance)
    placed: Counter[Cell] = Counter()
    found = []
    for mark in _marks(instance):
        if mark.cell in crowded:
            found.append(_tag(sheet, mark, placed[mark.cell]))
            placed[mark.cell] += 1
    return found


def disc(agent: int, x: float, y: float) -> str:
    """An agent with its letter, at a point."""
    colour, name = agent % len(PALETTE), agent_name(agent)
    circle = f'<circle class="disc f{colour}" cx="{number(x)}" cy="{number(y)}" r="12.5"/>'
    rise = 0 if name[0] in "bdfhklt" else 1
    return circle + letters(name, f"l{colour}", x, y - rise, 16 if len(name) == 1 else 12)


def letters(text: str, style: str, x: float, y: float, size: float) -> str:
    """Text centred on a point."""
    place = f'x="{number(x)}" y="{number(y + 0.36 * size)}" font-size="{number(size)}"'
    return f'<text class="{style}" {place}>{escape(text)}</text>'


@dataclass(frozen=True, slots=True)
class _Mark:
    """A goal, or the first of two goals."""

    agent: int
    cell: Cell
    name: str
    first: bool = False

    @property
    def colour(self) -> int:
        return self.agent % len(PALETTE)


def _marks(instance: LakeInstance) -> list[_Mark]:
    last = [_Mark(i, cell, goal_name(i)) for i, cell in enumerate(instance.goals)]
    return last + [_Mark(i, cell, via_name(i), first=True) for i, cell in enumerate(instance.via or ())]


def _crowded(instance: LakeInstance) -> set[Cell]:
    """Cells with more in them than one goal."""
    there = Counter([*instance.starts, *instance.goals, *(instance.via or ())])
    return {cell for cell, n in there.items() if n > 1}


def _shape(sheet: Sheet, mark: _Mark) -> str:
    """A square, or a diamond for a first goal; smaller for every second agent, for two may share theirs."""
    x, y = sheet.corner(mark.cell)
    if not mark.first:
        place = f'x="{number(x + 4)}" y="{number(y + 4)}" width="32" height="32" rx="5"'
        return f'<rect class="goal s{mark.colour}" {place}/>'
    half = 17 - 4 * (mark.agent % 2)
    path = f"M{number(x + 20)} {number(y + 20 - half)}l{half} {half}l-{half} {half}l-{half} -{half}z"
    return f'<path class="goal s{mark.colour}" d="{path}"/>'


def _centred(sheet: Sheet, mark: _Mark) -> str:
    x, y = sheet.corner(mark.cell)
    size = 12 if mark.first else 19 if len(mark.name) == 1 else 14
    return letters(mark.name, "ink", x + 20, y + 20, size)


def _tag(sheet: Sheet, mark: _Mark, place: int) -> str:
    """In the first corner of the cell, or the next where others are."""
    x, y = sheet.corner(mark.cell)
    width = 5 + 8 * len(mark.name)
    right, low = ((0, 0), (1, 1), (1, 0), (0, 1))[place % 4]
    x, y = x + (CELL - 0.5 - width if right else 0.5), y + (CELL - 14.5 if low else 0.5)
    box = f'x="{number(x)}" y="{number(y)}" width="{width}" height="14" rx="3"'
    return f'<rect class="f{mark.colour}" {box}/>' + letters(mark.name, f"l{mark.colour}", x + width / 2, y + 7, 11.5)
