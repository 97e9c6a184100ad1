"""What both faces do with a render mode: text, pixels or a window."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envsim.api import EnvsimError
from envsim.faces.episode import Episode
from envsim.lake.draw import draw_map
from envsim.lake.simulator import NAMES

MODES = ("human", "ansi", "rgb_array")
FPS = 4


class Renderer:
    """Renders episodes in one mode; ``None`` renders nothing.

    Raises
    ------
    EnvsimError
        The mode is none of ``MODES``.
    """

    def __init__(self, mode: str | None, title: str) -> None:
        if mode is not None and mode not in MODES:
            raise EnvsimError(f"render_mode is {mode!r}; expected one of {', '.join(MODES)}, or None")
        self.mode = mode
        self._title = title
        self._window: Any = None

    def render(self, episode: Episode) -> str | NDArray[np.uint8] | None:
        """Text, an (height, width, 3) array, or None where a window shows it."""
        if self.mode == "ansi":
            return text(episode)
        # Pillow and pygame are needed only by those who look.
        from envsim.faces.picture import Window, picture  # noqa: PLC0415

        failure = episode.simulator.failure
        pixels = picture(episode.instance, episode.simulator.cells(), None if failure is None else failure.cell)
        if self.mode == "rgb_array":
            return pixels
        self._window = self._window or Window(self._title, FPS)
        self._window.show(pixels)
        return None

    def close(self) -> None:
        if self._window is not None:
            self._window.close()


def text(episode: Episode) -> str:
    """The step, what was done in it, what went wrong, and the map."""
    simulator = episode.simulator
    head = f"step {simulator.time}"
    if simulator.executed:
        head += ": " + " ".join(f"{chr(ord('a') + i)} {NAMES[a]}" for i, a in enumerate(simulator.executed))
    if simulator.over:
        head += f"  [{episode.outcome()}]"
    return f"{head}\n{draw_map(episode.instance.rows, simulator.cells(), episode.instance.goals)}\n"
