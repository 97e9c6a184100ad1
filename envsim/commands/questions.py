"""The solver's questions about one layout, asked inside bounds of memory and time.

The solver's own limit is a count of states, and says nothing of what a state costs: the bounds here keep a map of a
million cells or a hundred agents from taking the machine. What is beyond them is left open, never guessed. Joint spaces
too large for the solver's tables go to plain joint search, which keeps only what it has seen.
"""

from __future__ import annotations

import argparse
from functools import cached_property
from math import comb, isqrt

from envsim.api import EnvsimError
from envsim.commands.lines import Layout, Solution
from envsim.commands.reading import layout_of
from envsim.lake.grid import Board, Cell
from envsim.lake.instance import Certificate, LakeInstance, check_layout
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable, search
from envsim.lake.solver import LIMIT, PAIR_LIMIT, Analysis, Limits, moves_of, path_of
from envsim.lake.verifier import costs, has_wait, verify

QUESTIONS = ("makespan", "sum_of_costs", "needs_wait_makespan", "needs_wait_soc")
MAX_CELLS = 128 * 128
MAX_AGENTS = 200
MAX_COLLIDING = 8
"""Most agents where the shortest paths collide, so that there is something to search."""
MAX_JOINT_CELLS = 5 * 2**20
"""Joint cells of two agents that the solver keeps as bits, a layer a step: at worst about 1 GB and ten seconds."""
MAX_TABLES = 11 * 2**20
"""Joint cells of all pairs together, which it keeps as numbers: five agents on 32x32. At worst about half a minute."""


class OpenError(EnvsimError):
    """The limits leave open whether there is a plan, or of what makespan."""


def most_cells(agents: int) -> int:
    """The largest map on which agents that collide are searched by the solver's tables."""
    return isqrt(min(MAX_JOINT_CELLS, MAX_TABLES // max(1, comb(agents, 2))))


def add_node_limit(parser: argparse.ArgumentParser, least: int, also: str) -> None:
    """The option that bounds every search."""

    def count(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"is {value}, expected at least {least}")
        return value

    parser.add_argument(
        "--node-limit",
        type=count,
        metavar="N",
        help=f"most states that one search may expand (default: {LIMIT:,}; for two agents {PAIR_LIMIT:,} on maps of up "
        f"to {most_cells(2):,} cells, where a state is a bit){also}",
    )


def checked(layout: Layout, where: str) -> Layout:
    """The layout, if it is one. Raises EnvsimError that begins with ``where``."""
    try:
        check_layout(layout.rows, layout.starts, layout.goals, layout.via)
    except EnvsimError as error:
        raise EnvsimError(f"{where}: {error}") from error
    return layout


def optimal_makespan(layout: Layout, node_limit: int | None, certificate: Certificate | None = None) -> int | None:
    """That of the certificate, if there is one; None where it is open: at the limits, or where there is no plan."""
    if certificate is not None and certificate.makespan is not None:
        return certificate.makespan
    asked = None if node_limit == 0 else _asked(layout, node_limit)
    found = None if asked is None or isinstance(asked, str) else asked.makespan()
    return found.cost if isinstance(found, Solved) else None


def certified(instance: LakeInstance, node_limit: int | None) -> LakeInstance:
    """The instance with a certificate in which what it carried stays, and what that left open is looked for.

    Raises OpenError if the makespan stays open, EnvsimError if what it carried is contradicted.
    """
    old = instance.certificate
    if old is not None and (not old.solvable or None not in old.model_dump().values()):
        return instance
    layout = layout_of(instance)
    asked = _asked(layout, node_limit)
    why = asked if isinstance(asked, str) else _left_open(asked.makespan())
    if isinstance(asked, str) or why is not None:
        if old is not None:
            return instance
        raise OpenError(f"no certificate: {why}")
    new = asked.certificate() if isinstance(asked, Analysis) else _from_search(asked, layout)
    return instance.model_copy(update={"certificate": new if old is None else _joined(old, new, instance.id)})


def _from_search(asked: Searched, layout: Layout) -> Certificate:
    """What plain joint search proves, of a makespan that is not open."""
    makespan, soc, alone = asked.makespan(), asked.soc(), asked.analysis
    if not isinstance(makespan, Solved):
        return Certificate(solvable=False, distances=alone.distances, paths_collide=alone.collides)
    plan = _cells(makespan, len(layout.rows[0]))
    cheapest = soc.cost if isinstance(soc, Solved) else None
    return Certificate(
        solvable=True,
        distances=alone.distances,
        makespan=makespan.cost,
        sum_of_costs=cheapest,
        sum_of_costs_at_makespan=cheapest if sum(costs(layout.goals, plan)) == cheapest else None,
        needs_wait_soc=asked.needs_wait_soc(),
        needs_wait_makespan=asked.needs_wait_makespan(),
        reference_has_wait=has_wait(layout.goals, plan),
        paths_collide=alone.collides,
        coordination_cost=None if cheapest is None else cheapest - sum(alone.distances),
        plan=[moves_of(path) for path in plan],
    )


def _joined(old: Certificate, new: Certificate, name: str) -> Certificate:
    """Both together, the plan with what is said of it. Raises EnvsimError if they contradict each other."""
    mine, other = old.model_dump(), new.model_dump()
    of_plan = ("plan", "sum_of_costs_at_makespan", "reference_has_wait")
    for field in mine:
        if field not in of_plan and None not in (mine[field], other[field]) and mine[field] != other[field]:
            raise EnvsimError(
                f"the certificate of {name} says that {field} is {mine[field]}, the solver that it is {other[field]}; "
                "remove the certificate to have a new one"
            )
    better = old.sum_of_costs_at_makespan is None and new.plan is not None
    chosen = {field: other[field] if mine[field] is None else mine[field] for field in mine}
    return Certificate.model_validate(chosen | {field: (other if better else mine)[field] for field in of_plan})


def solution(name: str, layout: Layout, node_limit: int | None, certificate: Certificate | None = None) -> Solution:
    """Everything that the contract of ``solve`` asks of a layout. What a certificate says is not asked again."""
    known = _known(certificate)
    if certificate is not None and not certificate.solvable:
        return Solution(name=name, status="unsolvable")
    paths = None
    if certificate is not None and certificate.plan is not None:
        paths = [path_of(start, moves) for start, moves in zip(layout.starts, certificate.plan, strict=True)]
        if None not in known.values():
            return _told(name, known, paths, "")
    asked = _asked(layout, node_limit)
    if isinstance(asked, str):
        return _told(name, known, paths, asked)
    said = ["the node limit" if isinstance(asked, Analysis) else f"the node limit of plain joint search ({asked.why})"]
    for question, objective, answer in (
        ("makespan", "makespan", asked.makespan),
        ("sum_of_costs", "sum of costs", asked.soc),
    ):
        if known[question] is None:
            result = answer()
            if isinstance(result, Unsolvable):
                return Solution(name=name, status="unsolvable")
            if isinstance(result, LimitReached):
                said.append(f"{objective} at least {result.lower_bound} after {result.expanded} states")
            else:
                known[question] = result.cost
    for question, wait in (
        ("needs_wait_makespan", asked.needs_wait_makespan),
        ("needs_wait_soc", asked.needs_wait_soc),
    ):
        if known[question] is None:
            known[question] = wait()
    return _told(name, known, paths or _paths(asked, layout), ", ".join(said))


def _known(certificate: Certificate | None) -> dict[str, int | bool | None]:
    """The answers of a certificate by question."""
    return {question: None if certificate is None else getattr(certificate, question) for question in QUESTIONS}


def _beyond(layout: Layout) -> str | None:
    """Why nobody is asked about a layout at all."""
    cells, agents = len(layout.rows) * len(layout.rows[0]), len(layout.starts)
    if cells > MAX_CELLS:
        return f"the map has {cells} cells; the solver takes at most {MAX_CELLS}"
    if agents > MAX_AGENTS:
        return f"there are {agents} agents; the solver takes at most {MAX_AGENTS}"
    if layout.variant is not None and layout.via is not None:
        return f"the variant {layout.variant!r} is not solved with via cells"
    if layout.via is not None and agents != 2:
        return f"{agents} agents have via cells; the solver takes them for 2 agents"
    return None


def _asked(layout: Layout, node_limit: int | None) -> Analysis | Searched | str:
    """Who answers about a layout, or why nobody does."""
    beyond = _beyond(layout)
    if beyond is not None:
        return beyond
    cells, agents = len(layout.rows) * len(layout.rows[0]), len(layout.starts)
    columns = len(layout.rows[0])
    starts, goals = ([r * columns + c for r, c in ends] for ends in (layout.starts, layout.goals))
    via = None if layout.via is None else [r * columns + c for r, c in layout.via]
    board = Board.of(layout.rows)
    limit = node_limit or (PAIR_LIMIT if agents == 2 else LIMIT)
    analysis = Analysis(board, layout.rows, starts, goals, Limits(limit, limit), via=via)
    if analysis.collides and agents > MAX_COLLIDING:
        return f"there are {agents} agents whose shortest paths collide; the solver takes at most {MAX_COLLIDING} such"
    small = cells <= most_cells(agents)
    if layout.variant is None and (small or not analysis.collides):
        return analysis
    if via is not None:
        return f"two agents with via cells on {cells} cells; the solver takes at most {most_cells(2)}"
    return Searched(analysis, layout, node_limit or LIMIT)


def _left_open(makespan: Result) -> str | None:
    if not isinstance(makespan, LimitReached):
        return None
    return f"the makespan is at least {makespan.lower_bound} after {makespan.expanded} states; raise --node-limit"


class Searched:
    """Plain joint search, also for the variant in which agents leave the map at their last arrival."""

    def __init__(self, analysis: Analysis, layout: Layout, limit: int) -> None:
        self.analysis, self._layout, self._limit = analysis, layout, limit
        cells, agents = analysis.board.n, len(analysis.starts)
        self.why = (
            f"{cells} cells, and tables for {agents} agents take at most {most_cells(agents)}"
            if layout.variant is None
            else f"for the variant {layout.variant}"
        )

    @cached_property
    def _optimal(self) -> dict[Objective, Result]:
        return {"makespan": self._search("makespan"), "soc": self._search("soc")}

    def makespan(self) -> Result:
        return self._optimal["makespan"]

    def soc(self) -> Result:
        return self._optimal["soc"]

    def needs_wait_makespan(self) -> bool | None:
        return self._needs_wait("makespan")

    def needs_wait_soc(self) -> bool | None:
        return self._needs_wait("soc")

    def _needs_wait(self, objective: Objective) -> bool | None:
        optimal = self._optimal[objective]
        if not isinstance(optimal, Solved):
            return None
        without = self._search(objective, waits=False, most=optimal.cost)
        return None if isinstance(without, LimitReached) else isinstance(without, Unsolvable)

    def _search(self, objective: Objective, *, waits: bool = True, most: int | None = None) -> Result:
        disappear = self._layout.variant is not None
        alone = self.analysis
        ends = (alone.board, alone.starts, alone.goals, objective)
        found = search(*ends, limit=self._limit, waits=waits, most=most, disappear=disappear)
        if isinstance(found, Solved) and not disappear:
            layout = self._layout
            verdict = verify(layout.rows, layout.starts, layout.goals, _cells(found, alone.board.columns))
            if not verdict.valid:
                raise EnvsimError(f"the solver's plan for {objective} {found.cost} is {verdict}: this is a defect")
        return found


def _paths(asked: Analysis | Searched, layout: Layout) -> list[list[Cell]] | None:
    """A plan of optimal makespan, else one of optimal sum of costs, else None."""
    makespan, soc = asked.makespan(), asked.soc()
    if isinstance(asked, Analysis) and isinstance(makespan, Solved):
        moves = asked.certificate().plan or []
        return [path_of(start, letters) for start, letters in zip(layout.starts, moves, strict=True)]
    plan = next((result for result in (makespan, soc) if isinstance(result, Solved)), None)
    return None if plan is None else _cells(plan, len(layout.rows[0]))


def _told(name: str, found: dict[str, int | bool | None], paths: list[list[Cell]] | None, reason: str) -> Solution:
    """Solved if every question has its answer, else ``limit`` with what is open."""
    left = [question for question in QUESTIONS if found.get(question) is None]
    if paths is None:
        left.append("paths")
    status = {"status": "limit", "open": left, "reason": reason} if left else {"status": "solved"}
    return Solution.model_validate({"name": name, **found, "paths": paths, **status})


def _cells(result: Solved, columns: int) -> list[list[Cell]]:
    return [[divmod(v, columns) for v in path] for path in result.plan]
