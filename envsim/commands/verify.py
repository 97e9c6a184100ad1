"""``verify``: plans judged, a line of JSON each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from envsim.api import EnvsimError
from envsim.commands import Commands, described
from envsim.commands.lines import Cell, Judgement, PlannedLayout
from envsim.commands.plans import own, paired, planned, plans
from envsim.commands.questions import add_node_limit, optimal_makespan
from envsim.commands.reading import SOURCE, Asked, add_agents, layouts, refuse_twice
from envsim.lake.grid import FREE, HOLE
from envsim.lake.instance import Certificate
from envsim.lake.verifier import costs, verify

MAX_WORK = 10**8
"""Most agents x agents x steps of a plan: some ten seconds."""

DESCRIPTION = """Judge plans. Prints a line of JSON for each: its name, the verdict, the agent, time and cell of the
first fault, and the makespan and sum of costs of a valid plan.

A row is a layout and its plan, for each agent its cells from t = 0 on, one a step, or a string of moves L D R U S:
{"rows": ["..."], "starts": [[0, 0]], "goals": [[0, 2]], "plan": [[[0, 0], [0, 1], [0, 2]]]}. A shorter path stays in
its last cell. Instances with a certificate and no plan of their own are judged by the plan of the certificate. With
--plan the plans are in a file of their own: a list of paths alone, or rows with "plan" or "paths", as 'solve' prints
them, one for each layout, in their order.

Verdicts, the first that holds: wrong_agent_count, wrong_start, out_of_bounds, illegal_move, hole,
vertex_conflict (two agents in one cell), edge_conflict (two swap their cells), goal_not_reached; a valid plan is
optimal (fewest steps), valid_suboptimal, or valid where the node limit leaves the optimum open. no_plan is a row of
the solver that has none: the layout is proved unsolvable, or the node limit left it open."""

EXAMPLE = """echo '{"rows": ["..."], "starts": [[0, 0]], "goals": [[0, 2]], "plan": [[[0, 0], [0, 2]]]}' \\
    | python -m envsim verify -
python -m envsim verify bay.scen --plan mine.json
python -m envsim solve bay.scen | python -m envsim verify bay.scen --plan -
python -m envsim solve --certified layouts.jsonl | python -m envsim verify -"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "verify", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("files", nargs="+", metavar="FILE", help=SOURCE)
    add_agents(parser)
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="JSON or JSONL of the plans, '-' for stdin (default: each in the row of its layout)",
    )
    add_node_limit(parser, 0, " to find the optimum; 0 does not look for it")


def run(options: argparse.Namespace) -> None:
    """Answer row by row, so that all good rows before a bad one have their answer."""
    refuse_twice([*options.files, options.plan])
    asked = chain.from_iterable(layouts(file, options.agents) for file in options.files)
    for one, paths, where in _with_own(asked) if options.plan is None else _beside(asked, options.plan):
        if paths is None:
            print(Judgement(name=one.name, verdict="no_plan").line())
            continue
        row = planned(one.layout, paths, where)
        _check(row, one.where)
        try:
            print(judgement(one.name, row, options.node_limit, one.certificate).line())
        except EnvsimError as error:
            raise EnvsimError(f"{one.where}: {error}") from error


Pair = tuple[Asked, Any, str]
"""A layout, its plan as it was read, and where that stands; no plan where the solver says that it has none."""


def _with_own(asked: Iterator[Asked]) -> Iterator[Pair]:
    """Each layout with the plan in its row, or else in its certificate."""
    for one in asked:
        row = one.row or {}
        paths = own(row)
        if paths is None and one.certificate is not None:
            paths = one.certificate.plan
        elif paths is None and not ("certificate" in row and row["certificate"] is None):
            raise EnvsimError(f"{one.where}: plan is missing; write it into the row, or give --plan FILE")
        yield one, paths, one.where


def _beside(asked: Iterator[Asked], source: str) -> Iterator[Pair]:
    """Each layout with the plan in its place in a file."""
    for count, (one, plan) in enumerate(zip_longest(asked, plans(source))):
        if one is None:
            raise EnvsimError(f"{plan.where}: is a plan more than the {count} layouts; expected one for each")
        if plan is None:
            raise EnvsimError(
                f"{one.where}: has no plan in {source}, which holds {count}; expected one for each layout"
            )
        yield one, paired(one, plan), plan.where


def judgement(
    name: str, row: PlannedLayout, node_limit: int | None, certificate: Certificate | None = None
) -> Judgement:
    """The verdict on a row. Ends in holes, outside or shared are the plan's faults: no plan can do without one.

    Raises EnvsimError if a valid plan beats the certificate.
    """
    optimum = None if certificate is None else certificate.makespan
    verdict = verify(row.rows, row.starts, row.goals, row.plan, optimum, via=row.via)
    if not verdict.valid:
        agent, time = (None, None) if verdict.fault is None else (verdict.fault.agent, verdict.fault.step)
        return Judgement(name=name, verdict=verdict.outcome, agent=agent, time=time, cell=_cell(row.plan, agent, time))
    own = costs(row.goals, row.plan)
    optimum = optimal_makespan(row, node_limit, certificate)
    said = "valid" if optimum is None else "optimal" if max(own) == optimum else "valid_suboptimal"
    return Judgement(name=name, verdict=said, makespan=max(own), sum_of_costs=sum(own))


def _cell(plan: Sequence[Sequence[Cell]], agent: int | None, time: int | None) -> Cell | None:
    """Where an agent is at a time; a path stays in its last cell."""
    if agent is None or time is None or not plan[agent]:
        return None
    return plan[agent][min(time, len(plan[agent]) - 1)]


def _check(row: PlannedLayout, where: str) -> None:
    if row.variant is not None:
        raise EnvsimError(f"{where}: variant is {row.variant!r}; verify knows only agents that stay at their goals")
    if not row.rows or not row.rows[0] or len(set(map(len, row.rows))) > 1 or set("".join(row.rows)) - {FREE, HOLE}:
        raise EnvsimError(f"{where}: rows: expected one or more rows of one length, of '{FREE}' and '{HOLE}' only")
    ends = {"goals": row.goals} | ({} if row.via is None else {"via": row.via})
    for what, cells in ends.items():
        if len(cells) != len(row.starts) or not cells:
            raise EnvsimError(f"{where}: {len(row.starts)} starts and {len(cells)} {what}; expected one for each agent")
    work = len(row.starts) ** 2 * max(map(len, row.plan), default=0)
    if len(row.plan) == len(row.starts) and work > MAX_WORK:
        raise EnvsimError(f"{where}: agents x agents x steps of the plan is {work}; expected at most {MAX_WORK}")
