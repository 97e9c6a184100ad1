"""The solver's questions about one layout, asked inside bounds of memory and time.

The solver's own limit is a count of states, and says nothing of what a state costs: these bounds keep a map of a
million cells or a hundred agents from taking the machine. What is beyond them is left open, never guessed.
"""

from __future__ import annotations

import argparse
from math import comb

from envsim.api import EnvsimError
from envsim.commands.lines import Layout, Solution
from envsim.lake.instance import LakeInstance, check_layout, make_instance
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable, search
from envsim.lake.solver import LIMIT, Analysis, Limits, analyse, path_of

MAX_CELLS = 128 * 128
MAX_AGENTS = 8
MAX_JOINT_CELLS = 16 * 2**20
"""Entries in the tables of all pairs of agents, which three and more agents need: about 0.3 GB and half a minute."""

Questions = dict[str, int | bool | None]


def add_node_limit(parser: argparse.ArgumentParser, least: int, also: str = "") -> None:
    """The option that bounds every search."""

    def count(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} states; expected at least {least}")
        return value

    parser.add_argument(
        "--node-limit",
        type=count,
        default=LIMIT,
        metavar="N",
        help=f"most states that one search may expand (default: {LIMIT:,}){also}",
    )


def too_large(layout: Layout) -> str | None:
    """Why the solver is not asked at all about a layout."""
    cells = len(layout.rows) * len(layout.rows[0])
    if cells > MAX_CELLS:
        return f"the map has {cells} cells; the solver takes at most {MAX_CELLS}"
    if len(layout.starts) > MAX_AGENTS:
        return f"there are {len(layout.starts)} agents; the solver takes at most {MAX_AGENTS}"
    return None


def too_interlocked(layout: Layout, analysis: Analysis) -> str | None:
    """Why the solver is not asked for more than the agents' shortest paths."""
    agents = len(layout.starts)
    cells = len(layout.rows) * len(layout.rows[0])
    joint = comb(agents, 2) * cells * cells
    if analysis.collides and agents > 2 and joint > MAX_JOINT_CELLS:
        return f"{agents} agents on {cells} cells need tables of {joint} entries; expected at most {MAX_JOINT_CELLS}"
    return None


def checked(layout: Layout, where: str) -> Layout:
    """The layout, if it is one. Raises EnvsimError that begins with ``where``."""
    try:
        check_layout(layout.rows, layout.starts, layout.goals, layout.via)
    except EnvsimError as error:
        raise EnvsimError(f"{where}: {error}") from error
    return layout


def optimal_makespan(layout: Layout, node_limit: int) -> int | None:
    """None where it is open: at the limits, or where there is no plan."""
    if node_limit == 0 or too_large(layout):
        return None
    analysis = _analysis(layout, node_limit)
    if too_interlocked(layout, analysis):
        return None
    found = analysis.makespan()
    return found.cost if isinstance(found, Solved) else None


def solution(name: str, layout: Layout, node_limit: int) -> Solution:
    """Everything that the contract of ``solve`` asks of a layout."""
    refused = too_large(layout)
    if refused is None and layout.variant is not None:
        return _disappearing(name, layout, node_limit)
    if refused is None:
        analysis = _analysis(layout, node_limit)
        refused = too_interlocked(layout, analysis)
    if refused is not None:
        return _told(name, {}, None, refused)
    makespan, soc = analysis.makespan(), analysis.soc()
    if isinstance(makespan, Unsolvable) or isinstance(soc, Unsolvable):
        return Solution(name=name, status="unsolvable")
    paths = None
    if isinstance(makespan, Solved):
        moves = analysis.certificate().plan or []
        paths = [path_of(start, letters) for start, letters in zip(layout.starts, moves, strict=True)]
    elif isinstance(soc, Solved):
        paths = _cells(soc, analysis.board.columns)
    found: Questions = {
        "makespan": _cost(makespan),
        "sum_of_costs": _cost(soc),
        "needs_wait_makespan": analysis.needs_wait_makespan(),
        "needs_wait_soc": analysis.needs_wait_soc(),
    }
    return _told(name, found, paths, _bounds(node_limit, makespan, soc))


def certified(layout: Layout, node_limit: int) -> LakeInstance:
    """The layout as an instance with its certificate. Raises EnvsimError if the makespan stays open."""
    if layout.variant is not None:
        raise EnvsimError(f"there are no certificates of the variant {layout.variant!r}")
    refused = too_large(layout)
    if refused is None:
        analysis = _analysis(layout, node_limit)
        refused = too_interlocked(layout, analysis)
    if refused is not None:
        raise EnvsimError(refused)
    return make_instance(layout.rows, layout.starts, layout.goals, analysis.certificate(), via=layout.via)


def _analysis(layout: Layout, node_limit: int) -> Analysis:
    return analyse(layout.rows, layout.starts, layout.goals, Limits(node_limit, node_limit))


def _disappearing(name: str, layout: Layout, node_limit: int) -> Solution:
    """The variant in which agents leave the map at their last arrival."""
    analysis = _analysis(layout, node_limit)

    def ask(objective: Objective, *, waits: bool = True, most: int | None = None) -> Result:
        ends = (analysis.board, analysis.starts, analysis.goals, objective)
        return search(*ends, limit=node_limit, waits=waits, most=most, disappear=True)

    def needs_wait(objective: Objective, optimal: Result) -> bool | None:
        if not isinstance(optimal, Solved):
            return None
        without = ask(objective, waits=False, most=optimal.cost)
        return None if isinstance(without, LimitReached) else isinstance(without, Unsolvable)

    makespan, soc = ask("makespan"), ask("soc")
    if isinstance(makespan, Unsolvable) or isinstance(soc, Unsolvable):
        return Solution(name=name, status="unsolvable")
    plan = next((result for result in (makespan, soc) if isinstance(result, Solved)), None)
    found: Questions = {
        "makespan": _cost(makespan),
        "sum_of_costs": _cost(soc),
        "needs_wait_makespan": needs_wait("makespan", makespan),
        "needs_wait_soc": needs_wait("soc", soc),
    }
    paths = None if plan is None else _cells(plan, analysis.board.columns)
    return _told(name, found, paths, _bounds(node_limit, makespan, soc))


def _told(name: str, found: Questions, paths: list[list[tuple[int, int]]] | None, reason: str) -> Solution:
    """Solved if every question has its answer, else ``limit`` with what is open."""
    asked = ("makespan", "sum_of_costs", "needs_wait_makespan", "needs_wait_soc")
    left = [question for question in asked if found.get(question) is None]
    if paths is None:
        left.append("paths")
    if not left:
        return Solution.model_validate({"name": name, "status": "solved", **found, "paths": paths})
    return Solution.model_validate(
        {"name": name, "status": "limit", **found, "paths": paths, "open": left, "reason": reason}
    )


def _bounds(node_limit: int, makespan: Result, soc: Result) -> str:
    said = [f"the node limit of {node_limit} states"]
    for objective, result in (("makespan", makespan), ("sum of costs", soc)):
        if isinstance(result, LimitReached):
            said.append(f"{objective} at least {result.lower_bound}")
    return ", ".join(said)


def _cost(result: Result) -> int | None:
    return result.cost if isinstance(result, Solved) else None


def _cells(result: Solved, columns: int) -> list[list[tuple[int, int]]]:
    return [[divmod(v, columns) for v in path] for path in result.plan]
