"""Plans of an instance: the certificate's own, one drawn among the optimal ones, or one with delays in it.

The solver breaks ties by the order of the moves. Turning or mirroring the lake and renumbering the agents changes what
that order means, so solving the turned lake and turning the plan back draws another optimal plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from envsim.api import EnvsimError
from envsim.lake.grid import Cell
from envsim.lake.instance import LakeInstance
from envsim.lake.search import Solved
from envsim.lake.solver import analyse, path_of
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
    certificate = instance.certificate or analyse(instance.rows, instance.starts, instance.goals).certificate()
    if certificate.plan is None:
        raise EnvsimError(f"instance {instance.id} is proven unsolvable; it has no reference answer")
    return [path_of(start, moves) for start, moves in zip(instance.starts, certificate.plan, strict=True)]


def drawn_plan(instance: LakeInstance, seed: int) -> list[list[Cell]]:
    """One of the makespan-optimal plans, by seed; not uniformly. Raises EnvsimError if there is none."""
    rng = random.Random(seed)
    rows, columns = len(instance.rows), len(instance.rows[0])
    turn, swapped = TURNS[int(rng.random() * len(TURNS))]
    order = sorted(range(instance.agents), key=lambda _: rng.random())
    there = {(r, c): turn((r, c), rows, columns) for r in range(rows) for c in range(columns)}
    back = {image: cell for cell, image in there.items()}
    shape = (columns, rows) if swapped else (rows, columns)
    marks = [[instance.rows[p][q] for p, q in (back[r, c] for c in range(shape[1]))] for r in range(shape[0])]
    solved = analyse(
        ["".join(line) for line in marks],
        [there[instance.starts[agent]] for agent in order],
        [there[instance.goals[agent]] for agent in order],
    ).makespan()
    if not isinstance(solved, Solved):
        raise EnvsimError(f"instance {instance.id} has no optimal plan within the solver's limit")
    paths = {agent: [back[divmod(v, shape[1])] for v in path] for agent, path in zip(order, solved.plan, strict=True)}
    return [paths[agent] for agent in range(instance.agents)]


def demonstrated_plan(instance: LakeInstance, seed: int) -> list[list[Cell]]:
    """A drawn optimal plan in which now and then an agent stays one step longer somewhere on its way.

    A delay that makes the plan invalid is left out. Such plans are what a careless planner hands in: valid, and not
    always optimal. Raises EnvsimError if there is no plan.
    """
    plan = drawn_plan(instance, seed)
    rng = random.Random(f"delays/{instance.id}/{seed}")
    for _ in range(int(rng.random() * (MOST_DELAYS + 1))):
        agent = int(rng.random() * instance.agents)
        step = int(rng.random() * (len(plan[agent]) - 1)) if len(plan[agent]) > 1 else 0
        path = plan[agent]
        delayed = [*plan[:agent], [*path[: step + 1], *path[step:]], *plan[agent + 1 :]]
        if verify(instance.rows, instance.starts, instance.goals, delayed).valid:
            plan = delayed
    return plan
