"""Chance that is the same on any machine: streams seeded by hash, and draws that use nothing but ``random()``."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
_COUNTED_OFF = 10


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
    """One of a set of cells, as a bit, uniformly: halves the set until the rest is quicker to count off."""
    rank = int(rng.random() * cells.bit_count())
    shift = 0
    while rank > _COUNTED_OFF:
        half = cells.bit_length() >> 1
        low = cells & ((1 << half) - 1)
        if rank < (below := low.bit_count()):
            cells = low
        else:
            cells, rank, shift = cells >> half, rank - below, shift + half
    for _ in range(rank):
        cells &= cells - 1
    return (cells & -cells) << shift


def members(cells: int) -> list[int]:
    """A set of cells as ascending numbers."""
    found = []
    while cells:
        low = cells & -cells
        found.append(low.bit_length() - 1)
        cells ^= low
    return found
