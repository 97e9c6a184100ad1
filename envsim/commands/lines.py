"""What the commands read and print, a JSON object a line, as data: ``python -m envsim schema`` prints their schemas.

Cells are [row, column]. Keys that a row has beside those named here are left alone, so that files with notes of their
own load; a key that changes the question and is not known is refused.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, Field

from envsim.api import Frozen
from envsim.lake.rows import Cell, Layout

__all__ = ["Cell", "Judgement", "Layout", "PlannedLayout", "Solution"]


class PlannedLayout(Layout):
    """A layout with a plan to judge: for each agent its cells, t = 0 first, one a step.

    A path may also be written as moves, a string of L D R U S. Without ``plan``, ``paths`` is read, or the plan of the
    row's certificate.
    """

    plan: list[list[Cell]]


class Solution(Frozen):
    """What ``solve`` prints. Costs are moves: an agent's is the time of its last arrival at its goal.

    ``paths`` are a plan of optimal makespan, the cheapest of those where that is known. With status ``limit``,
    ``open`` names what the node limit left open (it is null) and ``reason`` says why; other lines lack these two keys.
    """

    name: str
    status: Literal["solved", "unsolvable", "limit"]
    makespan: int | None = Field(None, description="Fewest steps until the last agent has arrived")
    sum_of_costs: int | None = Field(None, description="Smallest sum of the agents' costs, found independently")
    needs_wait_makespan: bool | None = Field(None, description="Every plan of optimal makespan has a wait")
    needs_wait_soc: bool | None = Field(None, description="Every plan of optimal sum of costs has a wait")
    paths: list[list[tuple[int, int]]] | None = Field(None, description="For each agent its cells, t = 0 first")
    open: list[str] | None = None
    reason: str | None = None

    def line(self) -> str:
        """The object as one line of JSON, in ASCII: names may hold what is no text."""
        return _line(self, set() if self.status == "limit" else {"open", "reason"})


class Judgement(Frozen):
    """What ``verify`` prints: ``optimal``, ``valid_suboptimal``, ``valid`` (the optimum is open), the first fault, or
    ``no_plan`` (the solver's own row says that there is none, or that it found none).

    ``agent``, ``time`` and ``cell`` belong to the first fault: the earliest; at one time the first in the order of the
    verdicts; of one kind that of the lowest agent. ``makespan`` and ``sum_of_costs`` are those of a valid plan.
    """

    name: str
    verdict: str
    agent: int | None = None
    time: int | None = None
    cell: tuple[int, int] | None = None
    makespan: int | None = None
    sum_of_costs: int | None = None

    def line(self) -> str:
        """The object as one line of JSON, in ASCII."""
        return _line(self, set())


def _line(row: BaseModel, without: set[str]) -> str:
    return json.dumps(row.model_dump(exclude=without), separators=(",", ":"))
