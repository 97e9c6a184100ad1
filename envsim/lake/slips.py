"""Action noise N1 as data: what may happen to a plan, its moves, and where each action leads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from envsim.lake.grid import HOLE

DIRECTIONS = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Left, down, right, up: neighbours in this order are perpendicular."""
STAY = 4
CAUSES = ("hole", "vertex_conflict", "edge_conflict", "goal_not_reached")
"""What may fail, in the order that decides where two happen at one step."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Success:
    """``probability`` and the masses in ``failures`` (one for each of ``CAUSES``) sum to 1."""

    probability: float
    failures: dict[str, float]
    interval: tuple[float, float] | None = None
    """95 % interval of the probability; None where it is exact."""


@dataclass(frozen=True, slots=True)
class Task:
    """A plan as directions: ``actions[t][i]`` is what agent i issues at step t. Cells are numbered row by row."""

    rows: tuple[str, ...]
    starts: tuple[int, ...]
    goals: tuple[int, ...]
    via: tuple[int, ...] | None
    actions: tuple[tuple[int, ...], ...]
    q: float

    @property
    def moves(self) -> int:
        return sum(action != STAY for step in self.actions for action in step)


@lru_cache(maxsize=64)
def targets_of(height: int, width: int) -> Ints:
    """Where each of the five actions leads from each cell, shape (5, cells); off the map = nowhere."""
    r, c = np.divmod(np.arange(height * width), width)
    moved = [np.clip(r + y, 0, height - 1) * width + np.clip(c + x, 0, width - 1) for y, x in DIRECTIONS]
    return np.stack([*moved, r * width + c])


def holes_of(rows: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([mark == HOLE for row in rows for mark in row])
