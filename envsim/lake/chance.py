"""Chance that is the same on any machine: streams seeded by hash, and draws that use nothing but ``random()``."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def stream(*parts: object) -> random.Random:
    """A random stream of its own for every combination of parts."""
    return random.Random(int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()))


def shuffled(items: Iterable[T], rng: random.Random) -> list[T]:
    """The items in random order."""
    order = list(items)
    for i in range(len(order) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


def choose(items: Sequence[T], rng: random.Random) -> T:
    """One of the items, uniformly."""
    return items[int(rng.random() * len(items))]


def pick(rng: random.Random, cells: int) -> int:
    """One of a set of cells, as a bit, uniformly."""
    for _ in range(int(rng.random() * cells.bit_count())):
        cells &= cells - 1
    return cells & -cells


def members(cells: int) -> list[int]:
    """A set of cells as ascending numbers."""
    found = []
    while cells:
        low = cells & -cells
        found.append(low.bit_length() - 1)
        cells ^= low
    return found
