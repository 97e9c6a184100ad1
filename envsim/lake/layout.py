"""One random layout: a map of a topology, and agents placed on it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from envsim.lake.grid import FREE, HOLE, Board, lattice
from envsim.lake.instance import Labels
from envsim.lake.placement import place
from envsim.lake.topology import free_cells


@dataclass(frozen=True, slots=True)
class Kind:
    """What the instances of a group are beside their size and number of agents."""

    topology: str = "random"
    placement: str = "uniform"
    goals: int = 1
    success_rate: float = 1.0
    shaping: float = 0.0

    def labels(self) -> Labels:
        """What an instance says of it; two goals show by the via cells themselves."""
        return Labels(
            topology=self.topology,
            placement=self.placement,
            success_rate=self.success_rate,
            shaping=self.shaping,
        )

    def __str__(self) -> str:
        """What differs from a plain lake, by knob: ``topology.rooms, placement.far, goals.2``."""
        parts = (f"topology.{self.topology}", f"placement.{self.placement}", f"goals.{self.goals}")
        return ", ".join(part for part in parts if part not in ("topology.random", "placement.uniform", "goals.1"))


class Layout(NamedTuple):
    """Cells are numbers; ``marks`` are all rows joined; ``via`` is None where agents have one goal."""

    board: Board
    marks: str
    starts: list[int]
    goals: list[int]
    via: list[int] | None

    def rows(self) -> list[str]:
        columns = self.board.columns
        return [self.marks[v : v + columns] for v in range(0, self.board.n, columns)]

    def ends(self) -> list[tuple[int, ...]]:
        """(start, goal), or (start, goal, via), of each agent."""
        if self.via is None:
            return list(zip(self.starts, self.goals, strict=True))
        return list(zip(self.starts, self.goals, self.via, strict=True))


def lay_out(rng: random.Random, size: int, agents: int, holes: int, kind: Kind) -> Layout | None:
    """A random layout with exactly ``holes`` holes. None if the agents found no place."""
    free = free_cells(kind.topology, rng, size, holes)
    board = Board(lattice(size, size), free)
    ends = place(kind.placement, rng, board, agents, kind.goals)
    if ends is None:
        return None
    marks = "".join([FREE if free >> v & 1 else HOLE for v in range(size * size)])
    return Layout(board, marks, ends.starts, ends.goals, ends.via)


def draw(rng: random.Random, size: int, agents: int, holes: int) -> tuple[Board, str, list[int], list[int]] | None:
    """A random layout of holes and agents anywhere: board, marks, starts, goals. None if the agents found no place."""
    layout = lay_out(rng, size, agents, holes, Kind())
    return None if layout is None else layout[:4]
