"""A lake as pixels, and the window that shows them. Agents are discs, their goals rings of the same colour.

Colours and letters are those of the SVGs. The letter of a goal that somebody is at moves into the corner of its cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray

from envsim.lake.grid import HOLE, Cell
from envsim.lake.instance import LakeInstance
from envsim.lake.svg import PALETTE

try:
    from PIL import Image, ImageColor, ImageDraw, ImageFont
except ImportError as error:
    raise DependencyNotInstalled("pillow is not installed; pip install 'envwright[gym]'") from error

Colour = tuple[int, int, int]

COLOURS: tuple[tuple[Colour, Colour], ...] = tuple(
    (ImageColor.getrgb(disc)[:3], ImageColor.getrgb(letter)[:3]) for disc, letter in PALETTE
)
"""An agent's colour and that of its letter: those of the SVGs, so that an agent looks the same in all pictures."""
ICE, LINE, WATER, FAULT = (232, 243, 250), (188, 212, 227), (38, 58, 84), (220, 20, 30)
_SMOOTH = 3
"""Drawn so many times larger and scaled down, for smooth edges."""


def cell_pixels(rows: int, columns: int) -> int:
    """Side of a cell: at most 64 pixels, so that a picture is about 512, and never too small to see."""
    return max(8, min(64, 512 // max(rows, columns)))


def picture(instance: LakeInstance, agents: Sequence[Cell], fault: Cell | None = None) -> NDArray[np.uint8]:
    """The lake with its agents where they are, as (height, width, 3); the cell of a fault has a red frame."""
    rows, columns = len(instance.rows), len(instance.rows[0])
    pixels = cell_pixels(rows, columns)
    side = pixels * _SMOOTH
    image = Image.new("RGB", (columns * side, rows * side), ICE)
    pen = ImageDraw.Draw(image)
    pen.font = ImageFont.load_default(size=side * 0.4)
    for r, row in enumerate(instance.rows):
        for c, mark in enumerate(row):
            pen.rectangle(_box((r, c), side, 0), outline=LINE, width=_SMOOTH)
            if mark == HOLE:
                pen.rounded_rectangle(_box((r, c), side, 0.06), radius=side * 0.2, fill=WATER)
    for i, goal in enumerate(instance.goals):
        pen.ellipse(_box(goal, side, 0.06), outline=_colour(i), width=max(2, side // 12))
        if goal not in agents:
            _write(pen, goal, side, _letter(i).upper(), _colour(i))
    for i, cell in enumerate(instance.via or ()):
        _diamond(pen, cell, side, _colour(i))
    for i, cell in enumerate(agents):
        _disc(pen, cell, side, i, [j for j, other in enumerate(agents) if other == cell])
    for i, goal in enumerate(instance.goals):
        if goal in agents:
            _tag(pen, goal, side, i)
    if fault is not None:
        pen.rectangle(_box(fault, side, 0.02), outline=FAULT, width=max(3, side // 14))
    return np.array(image.reduce(_SMOOTH), dtype=np.uint8)


class Window:
    """A pygame window; opened by the first picture, resized by one of another size. May be closed twice."""

    def __init__(self, title: str, fps: int) -> None:
        self._title, self._fps = title, fps
        self._surface: Any = None
        self._clock: Any = None

    def show(self, pixels: NDArray[np.uint8]) -> None:
        """Show a picture for a frame's time.

        Raises
        ------
        DependencyNotInstalled
            There is no pygame.
        """
        try:
            import pygame  # noqa: PLC0415
        except ImportError as error:
            raise DependencyNotInstalled("pygame is not installed; pip install 'envwright[gym]'") from error
        height, width, _ = pixels.shape
        if self._surface is None or self._surface.get_size() != (width, height):
            pygame.display.init()
            pygame.display.set_caption(self._title)
            self._surface = pygame.display.set_mode((width, height))
            self._clock = pygame.time.Clock()
        self._surface.blit(pygame.image.frombuffer(pixels.tobytes(), (width, height), "RGB"), (0, 0))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        if self._surface is not None:
            import pygame  # noqa: PLC0415

            pygame.display.quit()
            self._surface = None


def _colour(agent: int) -> Colour:
    return COLOURS[agent % len(COLOURS)][0]


def _letter(agent: int) -> str:
    return chr(ord("a") + agent % 26)


def _box(cell: Cell, side: int, margin: float) -> tuple[float, float, float, float]:
    r, c = cell
    inset = margin * side
    return c * side + inset, r * side + inset, (c + 1) * side - 1 - inset, (r + 1) * side - 1 - inset


def _diamond(pen: ImageDraw.ImageDraw, cell: Cell, side: int, colour: Colour) -> None:
    left, top, right, bottom = _box(cell, side, 0.1)
    x, y = (left + right) / 2, (top + bottom) / 2
    pen.polygon([(x, top), (right, y), (x, bottom), (left, y)], outline=colour, width=max(2, side // 16))


def _disc(pen: ImageDraw.ImageDraw, cell: Cell, side: int, agent: int, company: Sequence[int]) -> None:
    """An agent; those that met in one cell lie side by side, each seen."""
    r, c = cell
    share = side / len(company)
    x, y = c * side + (company.index(agent) + 0.5) * share, (r + 0.5) * side
    radius = 0.32 * side if len(company) == 1 else 0.46 * share
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_colour(agent))
    pen.text((x, y), _letter(agent), fill=COLOURS[agent % len(COLOURS)][1], anchor="mm")


def _write(pen: ImageDraw.ImageDraw, cell: Cell, side: int, text: str, colour: Colour) -> None:
    r, c = cell
    pen.text(((c + 0.5) * side, (r + 0.5) * side), text, fill=colour, anchor="mm")


def _tag(pen: ImageDraw.ImageDraw, cell: Cell, side: int, agent: int) -> None:
    """The letter of a goal in the upper right corner of its cell, where no agent hides it."""
    r, c = cell
    half = 0.13 * side
    x, y = (c + 1) * side - 1.3 * half, r * side + 1.3 * half
    pen.ellipse((x - half, y - half, x + half, y + half), fill=ICE, outline=_colour(agent), width=max(1, side // 40))
    pen.text((x, y), _letter(agent).upper(), fill=_colour(agent), anchor="mm", font_size=side * 0.19)
