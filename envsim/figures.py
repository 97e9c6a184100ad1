"""What ``bench`` measures, as data, and what the project promises of it.

``Report`` is the whole of a run and what ``--json`` writes.
"""

from __future__ import annotations

from envsim.api import Frozen
from envsim.contest import Makespan
from envsim.oracles import ORACLES, W9CBS

PARTS = ("solving", "generating", "checking")
DENSE = 0.5
"""Share of holes of the rows that have a goal for the ratio."""
MOST_OPEN = 0.01


class Settings(Frozen):
    """How long to measure. ``seconds`` of processor time for each figure, over at most ``layouts`` layouts, which are
    drawn by ``seed``.

    Other people's solvers give up a layout after ``patience`` seconds. Spreading over processes is measured with
    ``instances`` instances, ``repeats`` times each way.
    """

    seconds: float = 2.0
    layouts: int = 400
    seed: int = 0
    patience: float = 1.0
    instances: int = 20_000
    repeats: int = 3
    parts: tuple[str, ...] = PARTS
    against: tuple[str, ...] = tuple(ORACLES)

    @classmethod
    def quick(cls) -> Settings:
        """Some seconds in all: enough to see that everything works, too little for figures to quote."""
        return cls(seconds=0.05, layouts=20, patience=0.05, instances=300, repeats=1)


class Machine(Frozen):
    """Where it was measured. ``load`` is the number of busy processes of the last minute, others' included."""

    python: str
    processor: str
    cores: int
    load: float


class Figure(Frozen):
    """One solver on one row. ``gave_up`` is a share of ``layouts``; ``ratio`` our sum of costs' speed over its own."""

    solver: str
    layouts: int
    per_second: float
    gave_up: float
    ratio: float


class Solving(Frozen):
    """One row. ``compared`` pairs of answers to one question, all of which agree."""

    row: str
    size: int
    agents: int
    hole_ratio: float
    compared: int
    figures: dict[str, Figure]


class Rate(Frozen):
    """So many a second of processor time."""

    what: str
    per_second: float


class Spreading(Frozen):
    """The same instances by one process and by several, wall time of every repeat, the starting of processes included.

    ``ratio`` is that of the shortest times, ``efficiency`` ratio / N. ``capacity`` is what the machine had to give just
    before each repeat: how many times the counting of one process N processes got done.
    """

    instances: int
    processes: int
    seconds_alone: list[float]
    seconds_together: list[float]
    capacity: list[float]
    ratio: float
    efficiency: float

    def at_hand(self) -> float:
        """The capacity before the shortest repeat."""
        return self.capacity[self.seconds_together.index(min(self.seconds_together))]


class Goal(Frozen):
    """Something that the project promises itself; ``measured`` is None if this run did not measure it."""

    what: str
    at_least: float
    measured: float | None
    met: bool | None


class Report(Frozen):
    """All of a run. ``oracles`` are versions of what others made, or how to get it."""

    machine: Machine
    settings: Settings
    oracles: dict[str, str]
    solving: list[Solving]
    generating: list[Rate]
    spreading: Spreading | None
    checking: list[Rate]
    goals: list[Goal]


def goals(
    solving: list[Solving], generating: list[Rate], spreading: Spreading | None, checking: list[Rate]
) -> list[Goal]:
    """The project's goals beside what was measured; a part that was not measured has none."""
    found = []

    def goal(what: str, at_least: float, measured: float | None, *, also: bool = True) -> None:
        met = None if measured is None else measured >= at_least and also
        found.append(Goal(what=what, at_least=at_least, measured=measured, met=met))

    for row in solving:
        if (row.size, row.hole_ratio) == (10, 0.3):
            figure = row.figures[Makespan.name]
            what = f"{row.row} makespans a second, at most {MOST_OPEN:.0%} open ({figure.gave_up:.1%} are)"
            goal(what, 65, figure.per_second, also=figure.gave_up <= MOST_OPEN)
        if row.hole_ratio == DENSE:
            rival = row.figures.get(W9CBS.name)
            goal(f"{row.row} sums of costs, times {W9CBS.name}", 10, None if rival is None else rival.ratio)
    for made, at_least in zip(generating[:1], (1_500,), strict=False):
        goal(f"{made.what}, a second", at_least, made.per_second)
    for made, at_least in zip(checking, (50_000, 50_000), strict=False):
        goal(f"{made.what}, a second", at_least, made.per_second)
    if spreading is not None:
        there = spreading.at_hand() / spreading.processes
        what = f"generation on {spreading.processes} processes, times one / N (the machine had {there:.2f} to give)"
        goal(what, 0.9, spreading.efficiency)
    return found
