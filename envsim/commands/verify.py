"""``verify``: plans judged, a line of JSON each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain

from envsim.api import EnvsimError
from envsim.commands import Commands, described
from envsim.commands.lines import Cell, Judgement, PlannedLayout
from envsim.commands.questions import add_node_limit, optimal_makespan
from envsim.commands.reading import JSON_SOURCE, carried, documents, name_of, refuse_twice
from envsim.lake.grid import FREE, HOLE
from envsim.lake.instance import Certificate
from envsim.lake.rows import validated
from envsim.lake.verifier import costs, verify

MAX_WORK = 10**8
"""Most agents x agents x steps of a plan: some ten seconds."""

DESCRIPTION = """Judge plans. Prints a line of JSON for each: its name, the verdict, the agent, time and cell of the
first fault, and the makespan and sum of costs of a valid plan.

A row is a layout and its plan, for each agent its cells from t = 0 on, one a step:
{"rows": ["..."], "starts": [[0, 0]], "goals": [[0, 2]], "plan": [[[0, 0], [0, 1], [0, 2]]]}. A shorter path stays in
its last cell. Verdicts, the first that holds: wrong_agent_count, wrong_start, out_of_bounds, illegal_move, hole,
vertex_conflict (two agents in one cell), edge_conflict (two swap their cells), goal_not_reached; a valid plan is
optimal (fewest steps), valid_suboptimal, or valid where the node limit leaves the optimum open."""

EXAMPLE = """echo '{"rows": ["..."], "starts": [[0, 0]], "goals": [[0, 2]], "plan": [[[0, 0], [0, 2]]]}' \\
    | python -m envsim verify -"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "verify", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("files", nargs="+", metavar="FILE", help=JSON_SOURCE)
    add_node_limit(parser, 0, " to find the optimum; 0 does not look for it")


def run(options: argparse.Namespace) -> None:
    """Answer row by row, so that all good rows before a bad one have their answer."""
    refuse_twice(options.files)
    for where, data in chain.from_iterable(map(documents, options.files)):
        row = validated(PlannedLayout, data, where)
        _check(row, where)
        certificate = carried(data, where)
        try:
            print(judgement(name_of(row, where), row, options.node_limit, certificate).line())
        except EnvsimError as error:
            raise EnvsimError(f"{where}: {error}") from error


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
