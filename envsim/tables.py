"""Valid and optimal answers in percent by cell and over all: the columns of every table of results here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Scored(Protocol):
    """One answer, as far as a table needs it."""

    @property
    def cell(self) -> str: ...

    @property
    def valid(self) -> bool: ...

    @property
    def optimal(self) -> bool: ...


class Share(NamedTuple):
    """Percent of answers that are valid (``acc``) and optimal (``opt``)."""

    acc: float
    opt: float


def share(rows: Sequence[Scored]) -> Share:
    """Of at least one answer."""
    return Share(*(100 * sum(values) / len(rows) for values in ([r.valid for r in rows], [r.optimal for r in rows])))


def columns(rows: Sequence[Scored], cells: Sequence[str]) -> list[Share]:
    """The share in each cell, all of which must occur, and last the share of all answers together.

    Where every cell has as many answers, as in the benchmark, the last is the mean of the others: the paper's Sum.
    """
    return [share([row for row in rows if row.cell == cell]) for cell in cells] + [share(rows)]
