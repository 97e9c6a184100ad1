"""``show``: an instance as text, and its reference plan step by step."""

from __future__ import annotations

import argparse

from envsim.api import EnvsimError
from envsim.commands import Commands, described
from envsim.commands.reading import SOURCE, instances
from envsim.lake.draw import draw_instance, draw_map
from envsim.lake.reference import reference_plan
from envsim.lake.text import padded

EXAMPLE = "python -m envsim show anchor --index 3 --plan"


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "show", "Draw one instance as text, and its reference plan.", EXAMPLE, run)
    parser.add_argument("file", metavar="FILE", help=SOURCE)
    parser.add_argument("--index", type=int, default=0, metavar="I", help="which instance, from 0 on (default: 0)")
    parser.add_argument("--id", help="which instance, by its id")
    parser.add_argument("--plan", action="store_true", help="draw the reference plan too")


def run(options: argparse.Namespace) -> None:
    """Draw it."""
    found = instances(options.file)
    chosen = [
        instance
        for index, instance in enumerate(found)
        if (index == options.index if options.id is None else instance.id == options.id)
    ]
    if not chosen:
        wanted = f"id {options.id!r}" if options.id else f"index {options.index}"
        raise EnvsimError(f"{options.file} has no instance of {wanted}; it has {len(found)}")
    instance = chosen[0]
    print(draw_instance(instance))
    if options.plan:
        for t, cells in enumerate(zip(*padded(reference_plan(instance)), strict=True)):
            print(f"\nstep {t}\n{draw_map(instance.rows, cells, instance.goals)}")
