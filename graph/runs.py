"""``python -m graph.runs``: the runs below a directory: list them, show one, compare two, give back disk space.

Reads files alone, so it may be used while runs are at work; only ``prune --delete`` changes anything. Exit codes: 0
done, 1 something could not be deleted, 2 bad input (two runs that cannot be compared too).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from graph import runs_tables
from graph.exits import Exit
from graph.run import Parser
from graph.runs_compare import compare_runs
from graph.runs_found import RUNS, named_run, read_run, run_directories
from graph.runs_prune import carry_out, plan
from graph.settings import SettingsError

PIPED = 160
"""Columns of a table that goes to a file or another program."""


def parser() -> argparse.ArgumentParser:
    flags = Parser(prog="python -m graph.runs", description=__doc__.splitlines()[0])
    commands = flags.add_subparsers(dest="command", parser_class=Parser)
    listing = commands.add_parser("list", help="every run in a line (the default)")
    showing = commands.add_parser("show", help="one run with its stages")
    showing.add_argument("run", type=Path, metavar="RUN", help="a name of the list or a run directory")
    comparing = commands.add_parser("compare", help="two runs: settings, curves, the same instances side by side")
    comparing.add_argument("a", type=Path, metavar="A", help="a name of the list or a run directory")
    comparing.add_argument("b", type=Path, metavar="B", help="another one; differences are B minus A")
    pruning = commands.add_parser("prune", help="what of finished runs is needed no more, and how large it is")
    pruning.add_argument("run", type=Path, nargs="*", metavar="RUN", help="names or run directories (default: all)")
    pruning.add_argument(
        "--keep",
        choices=["champion", "pointers", "kept"],
        default="pointers",
        help="weights that stay: the champion's; pointers: those that the run ended with too (default); "
        "kept: of every stage that was kept",
    )
    pruning.add_argument("--delete", action="store_true", help="delete it; without this nothing is touched")
    for command in (flags, listing, showing, comparing, pruning):
        # A default of a subcommand would hide what was given before it.
        place = RUNS if command is flags else argparse.SUPPRESS
        command.add_argument("--directory", type=Path, default=place, metavar="DIR", help="(default: runs)")
    for command in (flags, listing, showing, comparing, pruning):
        tables = False if command is flags else argparse.SUPPRESS
        command.add_argument("--json", action="store_true", default=tables, help="one JSON value instead of tables")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    try:
        options = parser().parse_args(arguments)
        width = None if sys.stdout.isatty() else PIPED
        return COMMANDS[options.command or "list"](options, Console(highlight=False, width=width))
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT


def list_runs(options: argparse.Namespace, console: Console) -> int:
    found = [read_run(root) for root in run_directories([options.directory])]
    if options.json:
        print(json.dumps([one.model_dump(mode="json") for one in found]))
    elif found:
        console.print(runs_tables.listing(found))
    else:
        console.print(f"no runs in {options.directory}")
    return Exit.DONE


def show(options: argparse.Namespace, console: Console) -> int:
    found = read_run(named_run(options.run, options.directory))
    if options.json:
        print(found.model_dump_json())
        return Exit.DONE
    for line in runs_tables.facts(found):
        console.print(line, markup=False, soft_wrap=True)
    console.print(runs_tables.stages(found.stages))
    for line in runs_tables.how_to_go_on(found):
        console.print(line, markup=False, soft_wrap=True)
    return Exit.DONE


def compare(options: argparse.Namespace, console: Console) -> int:
    found = compare_runs(*(named_run(run, options.directory) for run in (options.a, options.b)))
    if options.json:
        print(found.model_dump_json())
    else:
        runs_tables.tell_comparison(found, console)
    return Exit.DONE


def prune(options: argparse.Namespace, console: Console) -> int:
    everywhere = run_directories([options.directory]) if options.directory.is_dir() or not options.run else []
    chosen = [named_run(run, options.directory) for run in options.run] or everywhere
    plans = plan(chosen, options.keep, [*everywhere, *chosen])
    freed, faults = 0, list[str]()
    for one in plans if options.delete else []:
        try:
            freed += 0 if one.refused else carry_out(one)
        except (OSError, SettingsError) as error:
            faults.append(f"{one.path}: {error}")
    if options.json:
        print(
            json.dumps(
                {
                    "runs": [{**one.model_dump(mode="json"), "bytes": one.bytes()} for one in plans],
                    "bytes": sum(one.bytes() for one in plans),
                    "freed": freed,
                    "faults": faults,
                }
            )
        )
    else:
        runs_tables.tell_pruning(plans, console, freed=freed if options.delete else None)
    for fault in faults:
        print(f"error: {fault}", file=sys.stderr)
    return Exit.FAILED if faults else Exit.DONE


COMMANDS = {"list": list_runs, "show": show, "compare": compare, "prune": prune}

if __name__ == "__main__":
    sys.exit(main())
