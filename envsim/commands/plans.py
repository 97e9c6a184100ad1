"""Plans of people and of the solver: with their layout in one row, or in a file of their own beside the layouts.

A plan is a list of paths, one for each agent: its cells from time 0 on, or its moves as a string of L D R U S. In a row
it stands under ``plan``, or under ``paths`` as ``solve`` prints it; what ``solve --certified`` prints has one in its
certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envsim.api import EnvsimError
from envsim.commands.lines import PlannedLayout
from envsim.commands.reading import Asked, rows_of, values
from envsim.lake.rows import Layout, shown, validated
from envsim.lake.scoring import AnswerRow
from envsim.lake.solver import MOVES, path_of

KEYS = ("plan", "paths")
LETTERS = "".join(MOVES.values())


class Plan(NamedTuple):
    """A plan as it was read, and where; ``paths`` is None where it is said that there is none."""

    where: str
    name: str | None
    paths: Any


def plans(source: str, *, answers: bool = False) -> Iterator[Plan]:
    """The plans of a file: bare lists of paths, or rows that hold one under ``plan`` or ``paths``.

    With ``answers`` also what models answered, each as an ``AnswerRow`` in place of paths.

    Raises EnvsimError or DocumentError that begins with where it stands.
    """
    for where, value in values(source):
        if isinstance(value, list) and value and not all(isinstance(part, dict) for part in value):
            yield Plan(where, None, value)
            continue
        for here, row in rows_of(value, where):
            if answers and ("answer" in row or not any(key in row for key in KEYS)):
                answer = validated(AnswerRow, row, here)
                yield Plan(here, answer.id, answer)
                continue
            if "answer" in row and not any(key in row for key in KEYS):
                raise EnvsimError(f"{here}: is the answer of a model; 'benchmark --score' grades it, 'render' draws it")
            if not any(key in row for key in KEYS):
                raise EnvsimError(f"{here}: has no plan; expected a list of paths, or an object with it under 'plan'")
            yield Plan(here, row.get("name") or row.get("id"), own(row))


def own(row: Mapping[str, Any]) -> Any:
    """The plan that a row holds beside its layout, as it was read; None if there is none."""
    return next((row[key] for key in KEYS if row.get(key) is not None), None)


def planned(layout: Layout, paths: Any, where: str) -> PlannedLayout:
    """The layout with a plan, moves turned into cells. Raises EnvsimError that begins with ``where``."""
    if isinstance(paths, list):
        paths = [_cells(layout, agent, path, where) for agent, path in enumerate(paths)]
    return validated(PlannedLayout, layout.model_dump() | {"plan": paths}, where)


def paired(asked: Asked, plan: Plan) -> Any:
    """The plan that a file has for a layout. Raises EnvsimError if it is named after another one."""
    if plan.name is not None and plan.name not in (asked.name, asked.layout.name, asked.layout.id):
        raise EnvsimError(
            f"{plan.where}: is the plan of {shown(plan.name)}, but the layout in its place is {shown(asked.name)}; "
            "expected a plan for each layout, in their order"
        )
    return plan.paths


def _cells(layout: Layout, agent: int, path: Any, where: str) -> Any:
    if not isinstance(path, str):
        return path
    if agent >= len(layout.starts):
        raise EnvsimError(f"{where}: the plan has moves for agent {agent}, but there are {len(layout.starts)} starts")
    strange = sorted(set(path) - set(LETTERS))
    if strange:
        raise EnvsimError(f"{where}: plan.{agent}: {shown(strange[0])} is no move; expected letters of {LETTERS}")
    return path_of(layout.starts[agent], path)
