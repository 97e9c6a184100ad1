"""Several solvers on the same layouts in the same order, timed side by side, and their answers compared.

A solver's figure is layouts a second of processor time, those it gave up included, and the share it gave up. They take
turns of a few layouts, so that a busy machine slows all of them alike. Each stops when its time is used up; a ratio is
taken over the layouts that both have done. An answer that contradicts another is an error, in every run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from envsim.api import EnvsimError
from envsim.lake.chance import stream
from envsim.lake.instance import Certificate
from envsim.lake.layout import draw
from envsim.lake.search import LimitReached, Objective, Result, Solved
from envsim.lake.solver import Limits, analyse
from envsim.oracles import GAVE_UP, Answer, Layout, Solver, described, priced

TURN = 25
"""Layouts that a solver does before it is the next one's turn."""


class Row(NamedTuple):
    """Square lakes of one size, with so many agents and a share of holes."""

    size: int
    agents: int
    hole_ratio: float

    def __str__(self) -> str:
        return f"{self.size}x{self.size}/{self.agents}/{self.hole_ratio:.0%}"

    def layouts(self, n: int, seed: int = 0) -> list[Layout]:
        """n layouts as the generator draws them: each agent can reach its goal alone, not always all together."""
        rng = stream("bench", *self, *([seed] if seed else []))
        found: list[Layout] = []
        while len(found) < n:
            drawn = draw(rng, self.size, self.agents, round(self.hole_ratio * self.size**2))
            if drawn is not None:
                _, marks, *ends = drawn
                starts, goals = ([divmod(v, self.size) for v in cells] for cells in ends)
                rows = [marks[v : v + self.size] for v in range(0, len(marks), self.size)]
                found.append(Layout(rows, starts, goals))
        return found


class _Ours(Solver[Layout, Result]):
    """One question to the analysis of a new map; the verifier's check of the plan is part of the answer."""

    objective: Objective

    def prepare(self, layout: Layout) -> Layout:
        return layout

    def solve(self, problem: Layout) -> Result:
        analysis = analyse(*problem, Limits.affordable(len(problem.starts)))
        return analysis.makespan() if self.objective == "makespan" else analysis.soc()

    def read(self, found: Result) -> Answer:
        if isinstance(found, LimitReached):
            return GAVE_UP
        if not isinstance(found, Solved):
            return Answer(False)
        steps = len(found.plan[0]) - 1
        if self.objective == "makespan":
            return Answer(True, makespan=found.cost, steps=steps)
        return Answer(True, soc=found.cost, steps=steps)


class Makespan(_Ours):
    """The optimal makespan, or that there is no plan."""

    name = "makespan"
    objective = "makespan"


class SumOfCosts(_Ours):
    """The optimal sum of costs, or that there is no plan."""

    name = "sum of costs"
    objective = "soc"


class Full(Solver[Layout, Certificate | None]):
    """The whole certificate: both optima, the cheapest plan of the one, and whether either needs a wait."""

    name = "full certificate"

    def prepare(self, layout: Layout) -> Layout:
        return layout

    def solve(self, problem: Layout) -> Certificate | None:
        analysis = analyse(*problem, Limits.affordable(len(problem.starts)))
        return None if isinstance(analysis.makespan(), LimitReached) else analysis.certificate()

    def read(self, found: Certificate | None) -> Answer:
        if found is None:
            return GAVE_UP
        if not found.solvable:
            return Answer(False)
        told = (found.sum_of_costs, found.sum_of_costs_at_makespan, found.needs_wait_soc, found.needs_wait_makespan)
        return Answer(True, found.makespan, found.sum_of_costs, found.makespan, complete=None not in told)


@dataclass
class Lane:
    """What one solver has done so far."""

    solver: Solver[Any, Any]
    times: list[float] = field(default_factory=list)
    """Seconds of processor time for each layout."""
    spent: float = 0.0
    gave_up: int = 0

    def take(self, layout: Layout) -> Answer:
        problem = self.solver.prepare(layout)
        began = time.process_time()
        found = self.solver.solve(problem)
        self.times.append(time.process_time() - began)
        self.spent += self.times[-1]
        answer = self.solver.read(found)
        if answer.plan is not None:
            answer = priced(self.solver.name, layout, answer.plan)
        self.gave_up += not answer.complete
        return answer

    def per_second(self) -> float:
        return len(self.times) / self.spent

    def ratio(self, other: Lane) -> float:
        """How many times the speed of the other this has, on the layouts that both have done."""
        both = min(len(self.times), len(other.times))
        return sum(other.times[:both]) / sum(self.times[:both])


class Contest(NamedTuple):
    """``compared``: pairs of answers to one question, all of which agree."""

    lanes: dict[str, Lane]
    compared: int


def contest(row: Row, solvers: Sequence[Solver[Any, Any]], *, seconds: float, layouts: int, seed: int = 0) -> Contest:
    """Let every solver do the row's layouts until it is through or has used up its time, of the processor's.

    Raises
    ------
    EnvsimError
        If two answers contradict each other, or the verifier refuses a plan; it names the layout.
    """
    lanes = [Lane(solver) for solver in solvers]
    drawn = row.layouts(layouts + 1, seed)
    for solver in solvers:
        Lane(solver).take(drawn[-1])
    compared = 0
    for begin in range(0, layouts, TURN):
        end = min(begin + TURN, layouts)
        answers: list[dict[str, Answer]] = [{} for _ in range(begin, end)]
        for lane in lanes:
            for k in range(begin, end):
                if lane.spent >= seconds:
                    break
                answers[k - begin][lane.solver.name] = lane.take(drawn[k])
        for layout, given in zip(drawn[begin:end], answers, strict=True):
            compared += agreements(layout, given)
    return Contest({lane.solver.name: lane for lane in lanes}, compared)


def agreements(layout: Layout, answers: dict[str, Answer]) -> int:
    """How many pairs of answers are about the same thing. Raises EnvsimError if two contradict each other."""
    found = 0
    for (one, a), (other, b) in combinations(answers.items(), 2):
        same = _same(a, b)
        if same is False:
            raise EnvsimError(f"{one} says {_told(a)} and {other} says {_told(b)} of {described(layout)}")
        found += same is not None
    return found


def _same(a: Answer, b: Answer) -> bool | None:
    """None if the two say nothing about the same thing."""
    if a.solvable is None or b.solvable is None:
        return None
    if a.solvable != b.solvable:
        no, yes = (b, a) if a.solvable else (a, b)
        return None if no.within is not None and (yes.steps or 0) > no.within else False
    pairs = [(x, y) for x, y in ((a.makespan, b.makespan), (a.soc, b.soc)) if x is not None and y is not None]
    return all(x == y for x, y in pairs) if pairs or not a.solvable else None


def _told(answer: Answer) -> str:
    if not answer.solvable:
        return "unsolvable"
    told = (("makespan", answer.makespan), ("sum of costs", answer.soc))
    return " and ".join(f"{what} {cost}" for what, cost in told if cost is not None)
