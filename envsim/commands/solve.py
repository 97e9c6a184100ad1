"""``solve``: exact optima of layouts, a line of JSON each."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import NamedTuple

from envsim.api import EnvsimError
from envsim.commands import Commands, described
from envsim.commands.questions import OpenError, add_node_limit, certified, checked, solution
from envsim.commands.reading import SOURCE, Asked, add_agents, each_instance, layouts, refuse_twice
from envsim.documents import DocumentError
from envsim.lake.instance import LakeInstance
from envsim.parallel import ordered

DESCRIPTION = """Solve layouts exactly. Prints a line of JSON for each layout: its name, its status (solved,
unsolvable = proven to have no plan, or limit), the optimal makespan (steps until the last agent has arrived), the
optimal sum of costs (moves and waits of all agents), whether every optimal plan needs a wait, and a plan.

A layout is {"rows": ["..@", "..."], "starts": [[r, c], ...], "goals": [[r, c], ...]}: '.' is free, '@' a hole, cells
are [row, column] from the top left, and "name" and "via" (each agent's first goal) are optional. Files of many layouts
hold one a line, or a list. A MovingAI scenario (.scen) is one layout: its first agents, on the map it names."""

EXAMPLE = """echo '{"rows": ["...", "..."], "starts": [[0, 0], [0, 2]], "goals": [[0, 2], [0, 0]]}' \\
    | python -m envsim solve -
python -m envsim solve room-32-32-4-even-1.scen --agents 4
python -m envsim solve one.jsonl two.jsonl --processes 4"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "solve", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("files", nargs="+", metavar="FILE", help=SOURCE)
    add_agents(parser)
    add_node_limit(parser, 1, "; where it stops a search the status is limit, and 'open' names what is null")
    parser.add_argument(
        "--certified",
        action="store_true",
        help="print instances with their certificates, as 'generate' writes them, instead of these lines; one whose "
        "makespan stays open has none, and stderr says why",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        metavar="P",
        help="processes over which the layouts are spread; what is printed is the same for any number of them, but "
        "with more than one nothing is before all is read (default: 1)",
    )


class _Answer(NamedTuple):
    """The line to print, and what is to be said of it on stderr."""

    line: str
    note: str | None = None

    def show(self) -> None:
        print(self.line)
        if self.note is not None:
            print(f"envsim: {self.note}", file=sys.stderr)


class _Task(NamedTuple):
    """One row to answer."""

    row: Asked | LakeInstance
    where: str
    node_limit: int | None

    def answer(self) -> _Answer:
        """Raises EnvsimError that begins with where the row stands."""
        if isinstance(self.row, Asked):
            _, name, layout, certificate, _ = self.row
            return _Answer(solution(name, checked(layout, self.where), self.node_limit, certificate).line())
        answer, note = self.row, None
        try:
            answer = certified(self.row, self.node_limit)
        except OpenError as error:
            note = f"{self.where}: {error}"
        except EnvsimError as error:
            raise EnvsimError(f"{self.where}: {error}") from error
        # In ASCII, as the other lines: a label may hold anything.
        return _Answer(json.dumps(answer.model_dump(mode="json"), separators=(",", ":")), note)


def run(options: argparse.Namespace) -> None:
    """Answer row by row, so that all good rows before a bad one have their answer."""
    refuse_twice(options.files)
    if options.processes == 1:
        for task in _tasks(options):
            task.answer().show()
        return
    tasks: list[_Task] = []
    refused = None
    try:
        for task in _tasks(options):
            tasks.append(task)
    except (EnvsimError, DocumentError) as error:
        refused = error
    for answer in ordered(_Task.answer, tasks, processes=options.processes):
        answer.show()
    if refused is not None:
        raise refused


def _tasks(options: argparse.Namespace) -> Iterator[_Task]:
    for file in options.files:
        if options.certified:
            for where, instance, _ in each_instance(file, options.agents):
                yield _Task(instance, where, options.node_limit)
        else:
            for asked in layouts(file, options.agents):
                # A worker needs what was read, not what it was read from.
                yield _Task(asked._replace(row=None), asked.where, options.node_limit)
