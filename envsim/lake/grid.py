"""A lake as a networkx graph, and as the integer arrays that the hot loops use.

Cells are numbered row by row: ``v = row * columns + column``. The lattice graph of a size is built by networkx once; a
lake is that lattice without its holes. Sets of cells are bit masks, so one step of a breadth-first search over all
cells is a handful of integer operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import networkx as nx

Cell = tuple[int, int]
"""(row, column)."""

Axes = tuple[tuple[int, int, int], tuple[int, int, int]]

FREE, HOLE = ".", "@"


@dataclass(frozen=True, slots=True, eq=False)
class Lattice:
    """The integer arrays of one size without holes.

    ``cells[v]`` is (row, column). ``neighbours[v]`` is ascending; ``masks[v]`` are the same cells as bits. ``axes``
    groups the edges by how far apart their cells are: (distance, the cells with a neighbour at ``v + distance``, those
    with one at ``v - distance``).
    There are always two; an axis that a lattice of one row or one column lacks has no cells.
    """

    rows: int
    columns: int
    cells: tuple[Cell, ...]
    neighbours: tuple[tuple[int, ...], ...]
    masks: tuple[int, ...]
    axes: Axes


def graph(rows: Sequence[str]) -> nx.Graph[Cell]:
    """The lake's graph: nodes are the free cells (row, column), edges join cells that share a side."""
    lake = nx.grid_2d_graph(len(rows), len(rows[0]))
    lake.remove_nodes_from([(r, c) for r, row in enumerate(rows) for c, mark in enumerate(row) if mark == HOLE])
    return lake


@lru_cache(maxsize=256)
def lattice(rows: int, columns: int) -> Lattice:
    """Arrays of the hole-free lattice, read off networkx once a size."""
    full = graph([FREE * columns] * rows)
    neighbours = tuple(
        tuple(sorted(r * columns + c for r, c in full.adj[divmod(v, columns)])) for v in range(rows * columns)
    )
    sources: dict[int, int] = {}
    for v, adjacent in enumerate(neighbours):
        for u in adjacent:
            sources[u - v] = sources.get(u - v, 0) | 1 << v
    masks = tuple(sum(1 << u for u in adjacent) for adjacent in neighbours)
    distances = [*sorted(offset for offset in sources if offset > 0), 1, 1]
    first, second = ((d, sources.pop(d, 0), sources.pop(-d, 0)) for d in distances[:2])
    cells = tuple(divmod(v, columns) for v in range(rows * columns))
    return Lattice(rows, columns, cells, neighbours, masks, (first, second))


def free_mask(rows: Sequence[str]) -> int:
    """Bits of the free cells."""
    return int("".join(rows)[::-1].replace(FREE, "1").replace(HOLE, "0"), 2)


class Board:
    """A lake in integers: ``free`` has a bit for every free cell."""

    __slots__ = ("_neighbours", "columns", "free", "lattice", "n")

    def __init__(self, lattice_: Lattice, free: int) -> None:
        self.lattice = lattice_
        self.columns = lattice_.columns
        self.n = lattice_.rows * lattice_.columns
        self.free = free
        self._neighbours: list[tuple[int, ...]] | None = None

    @classmethod
    def of(cls, rows: Sequence[str]) -> Board:
        return cls(lattice(len(rows), len(rows[0])), free_mask(rows))

    @property
    def neighbours(self) -> list[tuple[int, ...]]:
        """Free neighbours of every free cell, ascending; empty for a hole."""
        if self._neighbours is None:
            free = self.free
            self._neighbours = [
                tuple([u for u in adjacent if free >> u & 1]) if free >> v & 1 else ()
                for v, adjacent in enumerate(self.lattice.neighbours)
            ]
        return self._neighbours

    def spread(self, cells: int) -> int:
        """The free cells one move away from a set of cells."""
        (d, ahead, back), (e, below, above) = self.lattice.axes
        return ((cells & ahead) << d | (cells & back) >> d | (cells & below) << e | (cells & above) >> e) & self.free

    def layers(self, origin: int, blocked: int = 0) -> list[int]:
        """``layers[d]`` are the cells at distance exactly d from a cell, going around ``blocked`` ones."""
        return flood(self.lattice.axes, self.free, 1 << origin, blocked)

    def distances(self, origin: int, blocked: int = 0) -> list[int]:
        """Distance to every cell; -1 where there is no way."""
        distance = [-1] * self.n
        for d, layer in enumerate(self.layers(origin, blocked)):
            rest = layer
            while rest:
                low = rest & -rest
                distance[low.bit_length() - 1] = d
                rest ^= low
        return distance

    def first_path(self, start: int, layers: Sequence[int]) -> list[int] | None:
        """The lexicographically first shortest path down the layers of a goal; None if there is none."""
        here = 1 << start
        distance = next((d for d, layer in enumerate(layers) if layer & here), None)
        return None if distance is None else self._down(start, layers[:distance])

    def path(self, start: int, goal: int) -> list[int] | None:
        """The lexicographically first shortest path; None if there is none. Looks no further than it must."""
        (d, ahead, back), (e, below, above) = self.lattice.axes
        here, frontier = 1 << start, 1 << goal
        unseen = self.free & ~frontier
        layers = []
        while not frontier & here:
            layers.append(frontier)
            frontier = (
                (frontier & ahead) << d | (frontier & back) >> d | (frontier & below) << e | (frontier & above) >> e
            ) & unseen
            unseen ^= frontier
            if not frontier:
                return None
        return self._down(start, layers)

    def _down(self, start: int, layers: Sequence[int]) -> list[int]:
        path = [start]
        masks = self.lattice.masks
        v = start
        for layer in reversed(layers):
            ahead = masks[v] & layer
            v = (ahead & -ahead).bit_length() - 1
            path.append(v)
        return path


def cell_of(v: int, columns: int) -> Cell:
    return divmod(v, columns)


def flood(axes: Axes, free: int, origin: int, blocked: int = 0) -> list[int]:
    """Breadth-first layers from the cells of ``origin`` through free cells that are not ``blocked``."""
    (d, ahead, back), (e, below, above) = axes
    frontier = origin
    unseen = free & ~(frontier | blocked)
    found = []
    while frontier:
        found.append(frontier)
        frontier = (
            (frontier & ahead) << d | (frontier & back) >> d | (frontier & below) << e | (frontier & above) >> e
        ) & unseen
        unseen ^= frontier
    return found


def collide(paths: Sequence[Sequence[int]]) -> bool:
    """Whether paths, each padded with its last cell, share a cell at one time or swap two."""
    for i, one in enumerate(paths):
        for other in paths[:i]:
            longer, shorter = (one, other) if len(one) > len(other) else (other, one)
            u, v = longer[0], shorter[0]
            for x, y in zip(longer, shorter, strict=False):
                if x == y or (x == v and y == u):
                    return True
                u, v = x, y
            if shorter[-1] in longer[len(shorter) :]:
                return True
    return False
