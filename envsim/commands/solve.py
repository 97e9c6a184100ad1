"""``solve``: exact optima of layouts, a line of JSON each."""

from __future__ import annotations

import argparse
import json

from envsim.api import EnvsimError
from envsim.commands import Commands, described
from envsim.commands.questions import add_node_limit, certified, checked, solution
from envsim.commands.reading import SOURCE, add_agents, each_instance, layouts

DESCRIPTION = """Solve layouts exactly. Prints a line of JSON for each layout: its name, its status (solved,
unsolvable = proven to have no plan, or limit), the optimal makespan (steps until the last agent has arrived), the
optimal sum of costs (moves and waits of all agents), whether every optimal plan needs a wait, and a plan.

A layout is {"rows": ["..@", "..."], "starts": [[r, c], ...], "goals": [[r, c], ...]}: '.' is free, '@' a hole, cells
are [row, column] from the top left, and "name" and "via" (each agent's first goal) are optional. Files of many layouts
hold one a line, or a list. A MovingAI scenario (.scen) is one layout: its first agents, on the map it names."""

EXAMPLE = """echo '{"rows": ["...", "..."], "starts": [[0, 0], [0, 2]], "goals": [[0, 2], [0, 0]]}' \\
    | python -m envsim solve -
python -m envsim solve room-32-32-4-even-1.scen --agents 4"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "solve", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("file", metavar="FILE", help=f"{SOURCE}, or a MovingAI .scen")
    add_agents(parser)
    add_node_limit(parser, 1, "; where it stops a search the status is limit, and 'open' names what is null")
    parser.add_argument(
        "--certified",
        action="store_true",
        help="print instances with their certificates, as 'generate' writes them, instead of these lines",
    )


def run(options: argparse.Namespace) -> None:
    """Answer row by row, so that all good rows before a bad one have their answer."""
    if not options.certified:
        for where, name, layout in layouts(options.file, options.agents):
            print(solution(name, checked(layout, where), options.node_limit).line())
        return
    for where, instance in each_instance(options.file, options.agents):
        try:
            answer = certified(instance, options.node_limit)
            print(json.dumps(answer.model_dump(mode="json"), separators=(",", ":")))
        except EnvsimError as error:
            raise EnvsimError(f"{where}: {error}") from error
