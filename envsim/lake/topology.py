"""Where the holes of a lake lie: ``free_cells`` draws a square lake of a topology with exactly as many holes as asked.

``random``: anywhere. The others draw a structure first and meet the number of holes so:

- ``rooms``: evenly spaced walls with a door between neighbouring rooms, as in the room maps of the MovingAI benchmark.
  Of all ways to space the walls one is drawn whose number of holes is nearest to what is asked for. Too many: doors get
  wider. Too few: doors are closed, but those of a spanning tree stay; then cells of the rooms become holes.
- ``corridor``: a maze of passages one cell wide, grown depth first, with dead ends as pockets. Too many holes: the maze
  opens from one side or corner on, so that the rest of it stays narrow. Too few: dead ends become shorter.
- ``warehouse``: shelf blocks between straight aisles. Of all ways to space the shelves one is drawn with about the
  number of holes. Too many: some blocks are missing, and one may be in part. Too few: cells of the aisles become holes.

The free cells of all three are connected, whatever the number of holes. A structure needs holes to be seen: a maze
that leaves no open ground has a third of the map or more as holes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from envsim.api import EnvsimError
from envsim.lake.chance import choose, members, pick, shuffled
from envsim.lake.config import TOPOLOGIES, nearest
from envsim.lake.grid import Board, lattice


def free_cells(topology: str, rng: random.Random, size: int, holes: int) -> int:
    """The free cells, as bits, of a drawn size x size lake with exactly ``holes`` holes.

    Raises EnvsimError for an unknown topology, or a number of holes that leaves no cell.
    """
    if topology not in _DRAWERS:
        raise EnvsimError(f"unknown topology {topology!r}; {nearest(topology, list(TOPOLOGIES))}")
    if not 0 <= holes < size * size:
        raise EnvsimError(f"{holes} holes on a {size}x{size} lake; expected 0 to {size * size - 1}")
    return _DRAWERS[topology](rng, size, holes)


def connected(size: int, free: int) -> bool:
    """Whether the free cells hang together."""
    board = Board(lattice(size, size), free)
    seen = frontier = free & -free
    while frontier:
        frontier = board.spread(frontier) & ~seen
        seen |= frontier
    return seen == free


def _random(rng: random.Random, size: int, holes: int) -> int:
    free = (1 << size * size) - 1
    for _ in range(holes):
        free ^= pick(rng, free)
    return free


def _filled(size: int, free: int, order: Sequence[int], count: int) -> int:
    """``free`` without ``count`` more cells: always the first in order that leaves the rest connected."""
    rest = list(order)
    for _ in range(count):
        cell = next(v for v in rest if connected(size, free & ~(1 << v)))
        rest.remove(cell)
        free ^= 1 << cell
    return free


class _Walls(NamedTuple):
    """A way to space walls: the rows and columns that are walls, and the fewest and most holes that it makes."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    fewest: int
    most: int
    oddity: int
    """Rooms of width 1, and more walls one way than the other: what a room map should have little of."""


def _spaced(size: int) -> set[tuple[int, ...]]:
    """All sets of evenly spaced lines with a cell on either side of each."""
    found: set[tuple[int, ...]] = {()}
    for period in range(2, size):
        for first in range(1, period + 1):
            found.add(tuple(range(first, size - 1, period)))
    return found


@lru_cache(maxsize=256)
def _walls(size: int, holes: int) -> tuple[_Walls, ...]:
    """The ways to space walls that fit a number of holes best, in a fixed order."""
    lines = sorted(_spaced(size))
    ways = [_way(size, rows, columns) for rows in lines for columns in lines if rows or columns]
    cost = {way: 2 * max(way.fewest - holes, holes - way.most, 0) + way.oddity for way in ways}
    return tuple(way for way in ways if cost[way] <= min(cost.values()) + 1)


def _way(size: int, rows: tuple[int, ...], columns: tuple[int, ...]) -> _Walls:
    walls = size * (len(rows) + len(columns)) - len(rows) * len(columns)
    high, wide = len(rows) + 1, len(columns) + 1
    doors = len(rows) * wide + len(columns) * high
    narrow = sum(b - a == 2 for lines in (rows, columns) if lines for a, b in pairwise((-1, *lines, size)))
    oddity = narrow + max(abs(len(rows) - len(columns)) - 1, 0)
    return _Walls(rows, columns, walls - doors, walls - (high * wide - 1), oddity)


def _rooms(rng: random.Random, size: int, holes: int) -> int:
    everything = (1 << size * size) - 1
    if not holes:
        return everything
    way = choose(_walls(size, holes), rng)
    walls = sum(1 << r * size + c for r in range(size) for c in range(size) if r in way.rows or c in way.columns)
    segments = shuffled(_segments(size, way), rng)
    doors = {choose(cells, rng): rooms for rooms, cells in segments}
    spare = _redundant(doors)
    free = everything & ~walls | sum(1 << v for v in doors)
    missing = holes - (size * size - free.bit_count())
    if missing < 0:
        return _widened(rng, size, free, [cells for _, cells in segments], -missing)
    for v in spare[:missing]:
        free ^= 1 << v
    rooms = shuffled(members(everything & ~walls), rng)
    return _filled(size, free, [*rooms, *doors], max(missing - len(spare), 0))


_Room = tuple[int, int]


def _segments(size: int, way: _Walls) -> list[tuple[tuple[_Room, _Room], list[int]]]:
    """The wall between each two neighbouring rooms: the rooms and the wall's cells."""
    found = []
    spans = [list(pairwise((-1, *lines, size))) for lines in (way.rows, way.columns)]
    for i, (top, bottom) in enumerate(spans[0]):
        for j, (left, right) in enumerate(spans[1]):
            if right < size:
                found.append((((i, j), (i, j + 1)), [r * size + right for r in range(top + 1, bottom)]))
            if bottom < size:
                found.append((((i, j), (i + 1, j)), [bottom * size + c for c in range(left + 1, right)]))
    return found


def _redundant(doors: dict[int, tuple[_Room, _Room]]) -> list[int]:
    """The doors beyond a spanning tree of the rooms, which takes the first."""
    root: dict[_Room, _Room] = {}

    def find(room: _Room) -> _Room:
        while room in root:
            room = root[room]
        return room

    spare = []
    for v, (one, other) in doors.items():
        a, b = find(one), find(other)
        if a == b:
            spare.append(v)
        else:
            root[a] = b
    return spare


def _widened(rng: random.Random, size: int, free: int, segments: list[list[int]], count: int) -> int:
    """``count`` more free cells: wall cells beside a door, of a drawn segment; crossings of walls come last."""
    for _ in range(count):
        closed = [[v for v in cells if not free >> v & 1] for cells in segments]
        pool = choose([cells for cells in closed if cells], rng) if any(closed) else members(~free & (1 << size**2) - 1)
        masks = lattice(size, size).masks
        free |= 1 << choose([v for v in pool if masks[v] & free], rng)
    return free


def _corridor(rng: random.Random, size: int, holes: int) -> int:
    grid = lattice(size, size)
    free, want = _maze(rng, size), size * size - holes
    while free.bit_count() > want:
        ends = [v for v in members(free) if (grid.masks[v] & free).bit_count() <= 1]
        long = [v for v in ends if (grid.masks[(grid.masks[v] & free).bit_length() - 1] & free).bit_count() <= 2]
        free ^= 1 << choose(long or ends, rng)
    down, right = choose([(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b], rng)
    order = sorted(shuffled(range(size * size), rng), key=lambda v: v // size * down + v % size * right)
    while free.bit_count() < want:
        free |= 1 << next(v for v in order if not free >> v & 1 and grid.masks[v] & free)
    return free


def _maze(rng: random.Random, size: int) -> int:
    """A tree of passages grown depth first: each new cell touches exactly one that is there, until none can."""
    grid = lattice(size, size)
    path = [int(rng.random() * size * size)]
    free = 1 << path[0]
    while path:
        ahead = [v for v in grid.neighbours[path[-1]] if not free >> v & 1 and (grid.masks[v] & free).bit_count() == 1]
        if ahead:
            path.append(choose(ahead, rng))
            free |= 1 << path[-1]
        else:
            path.pop()
    return free


class _Shelves(NamedTuple):
    """A way to space shelves: the runs of rows and of columns that hold them."""

    rows: tuple[tuple[int, ...], ...]
    columns: tuple[tuple[int, ...], ...]
    cells: int


def _runs(size: int, shelf: int, aisle: int) -> set[tuple[tuple[int, ...], ...]]:
    """All ways to cut a side into runs of ``shelf`` with ``aisle`` between; those at the border may be shorter."""
    found = set()
    for first in range(shelf + aisle):
        runs: list[list[int]] = []
        for v in range(size):
            if (v + first) % (shelf + aisle) < shelf:
                if runs and runs[-1][-1] == v - 1:
                    runs[-1].append(v)
                else:
                    runs.append([v])
        if runs and sum(map(len, runs)) < size:
            found.add(tuple(map(tuple, runs)))
    return found


@lru_cache(maxsize=256)
def _shelves(size: int, holes: int) -> tuple[_Shelves, ...]:
    """The ways to space shelves that fit a number of holes best, in a fixed order."""
    ways: set[_Shelves] = set()
    for aisle in (1, 2):
        for deep in (1, 2):
            for long in range(deep + 1, 6):
                for rows in _runs(size, deep, aisle):
                    for columns in _runs(size, long, aisle):
                        cells = sum(map(len, rows)) * sum(map(len, columns))
                        ways |= {_Shelves(rows, columns, cells), _Shelves(columns, rows, cells)}
    enough = [way for way in ways if holes <= way.cells <= holes + size]
    most = max(way.cells for way in ways)
    return tuple(sorted(enough or [way for way in ways if way.cells == most or holes <= way.cells <= holes + 2 * size]))


def _warehouse(rng: random.Random, size: int, holes: int) -> int:
    free = (1 << size * size) - 1
    way = choose(_shelves(size, holes), rng)
    blocks = [[r * size + c for c in columns for r in rows] for rows in way.rows for columns in way.columns]
    missing = holes
    for cells in shuffled(blocks, rng):
        if len(cells) > missing:
            return _filled(size, free, choose([cells, cells[::-1]], rng), missing)
        free &= ~sum(1 << v for v in cells)
        missing -= len(cells)
    return _filled(size, free, shuffled(members(free), rng), missing)


_DRAWERS: dict[str, Callable[[random.Random, int, int], int]] = {
    "random": _random,
    "rooms": _rooms,
    "corridor": _corridor,
    "warehouse": _warehouse,
}
