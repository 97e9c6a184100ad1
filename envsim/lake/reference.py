"""Plans of an instance: the certificate's own, one drawn among the optimal ones, or one of an imperfect demonstrator.

The solver breaks ties by the order of the moves. Turning or mirroring the lake and renumbering the agents changes what
that order means, so solving the turned lake and turning the plan back draws another optimal plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

from envsim.api import EnvsimError
from envsim.lake.grid import FREE, Cell
from envsim.lake.instance import LakeInstance
from envsim.lake.search import Solved
from envsim.lake.solver import Analysis, analyse, path_of
from envsim.lake.verifier import verify

MOST_DELAYS = 2
"""Delays that a demonstration may hold."""

Turn = Callable[[Cell, int, int], Cell]
TURNS: tuple[tuple[Turn, bool], ...] = (
    (lambda x, _r, _c: x, False),
    (lambda x, _r, c: (x[0], c - 1 - x[1]), False),
    (lambda x, r, _c: (r - 1 - x[0], x[1]), False),
    (lambda x, r, c: (r - 1 - x[0], c - 1 - x[1]), False),
    (lambda x, _r, _c: (x[1], x[0]), True),
    (lambda x, r, _c: (x[1], r - 1 - x[0]), True),
    (lambda x, _r, c: (c - 1 - x[1], x[0]), True),
    (lambda x, r, c: (c - 1 - x[1], r - 1 - x[0]), True),
)
"""The symmetries of a cell (row, column) given the rectangle's rows and columns, and whether they swap those."""


def reference_plan(instance: LakeInstance) -> list[list[Cell]]:
    """The makespan-optimal plan of the certificate, or a fresh one. Raises EnvsimError if there is none."""
    certificate = instance.certificate or _analysed(instance).certificate()
    if certificate.plan is None:
        raise EnvsimError(f"instance {instance.id} is proven unsolvable; it has no reference answer")
    return [path_of(start, moves) for start, moves in zip(instance.starts, certificate.plan, strict=True)]


def _analysed(instance: LakeInstance) -> Analysis:
    return analyse(instance.rows, instance.starts, instance.goals, via=instance.via)


def drawn_plan(instance: LakeInstance, seed: int) -> list[list[Cell]]:
    """One of the makespan-optimal plans, by seed; not uniformly. Raises EnvsimError if there is none."""
    plan = _drawn(instance.rows, list(zip(*_stops(instance), strict=True)), seed)
    if plan is None:
        raise EnvsimError(f"instance {instance.id} has no optimal plan within the solver's limit")
    return plan


def _stops(instance: LakeInstance) -> list[list[Cell]]:
    """The agents' starts, their via cells if any, and their goals."""
    return [instance.starts, *([] if instance.via is None else [instance.via]), instance.goals]


def _drawn(rows: Sequence[str], agents: Sequence[Sequence[Cell]], seed: int) -> list[list[Cell]] | None:
    """An optimal plan by seed for agents given as (start, goal) or (start, via, goal)."""
    if len(agents) == 1 and len(agents[0]) > 2:
        # Alone, a shortest way to each stop is a shortest way.
        legs = [_drawn(rows, [leg], seed) for leg in pairwise(agents[0])]
        return [_joined([leg[0] for leg in legs if leg])] if all(legs) else None
    rng = random.Random(seed)
    height, width = len(rows), len(rows[0])
    turn, swapped = TURNS[int(rng.random() * len(TURNS))]
    order = sorted(range(len(agents)), key=lambda _: rng.random())
    there = {(r, c): turn((r, c), height, width) for r in range(height) for c in range(width)}
    back = {image: cell for cell, image in there.items()}
    shape = (width, height) if swapped else (height, width)
    marks = [[rows[p][q] for p, q in (back[r, c] for c in range(shape[1]))] for r in range(shape[0])]
    starts, *via, goals = [[there[cell] for cell in cells] for cells in zip(*(agents[a] for a in order), strict=True)]
    solved = analyse(["".join(line) for line in marks], starts, goals, via=via[0] if via else None).makespan()
    if not isinstance(solved, Solved):
        return None
    paths = {agent: [back[divmod(v, shape[1])] for v in path] for agent, path in zip(order, solved.plan, strict=True)}
    return [paths[agent] for agent in range(len(agents))]


def _joined(legs: Sequence[Sequence[Cell]]) -> list[Cell]:
    return [*legs[0], *(cell for leg in legs[1:] for cell in leg[1:])]


def demonstrated_plan(instance: LakeInstance, seed: int, careless: float = 0.0) -> list[list[Cell]]:
    """A drawn optimal plan in which now and then an agent stays one step longer somewhere on its way.

    A delay that makes the plan invalid is left out. With probability ``careless`` each, and independently, the
    demonstrator does not look at the holes, and does not look from one agent at another: then the plan is the best one
    of an easier task, and often not valid for this one. Raises EnvsimError if there is no plan.
    """
    rng = random.Random(f"demonstration/{instance.id}/{seed}")
    blind, alone = rng.random() < careless, rng.random() < careless
    rows = [FREE * len(row) for row in instance.rows] if blind else list(instance.rows)
    tasks = [[agent] for agent in range(instance.agents)] if alone else [list(range(instance.agents))]
    plan: list[list[Cell]] = []
    for agents in tasks:
        paths = _drawn(rows, [[cells[a] for cells in _stops(instance)] for a in agents], seed)
        if paths is None:
            raise EnvsimError(f"instance {instance.id} has no optimal plan within the solver's limit")
        plan += paths
    if blind or alone:
        return plan
    for _ in range(int(rng.random() * (MOST_DELAYS + 1))):
        agent = int(rng.random() * instance.agents)
        step = int(rng.random() * (len(plan[agent]) - 1)) if len(plan[agent]) > 1 else 0
        path = plan[agent]
        delayed = [*plan[:agent], [*path[: step + 1], *path[step:]], *plan[agent + 1 :]]
        if verify(instance.rows, instance.starts, instance.goals, delayed, via=instance.via).valid:
            plan = delayed
    return plan
