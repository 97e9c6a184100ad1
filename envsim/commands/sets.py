"""``sets``: the frozen sets, made and checked."""

from __future__ import annotations

import argparse

from envsim.commands import Commands, described, progress
from envsim.commands.reading import frozen
from envsim.lake import sets

DESCRIPTION = """Make and check the frozen sets. They are generated on first use (the benchmark takes about a minute)
into the user's cache directory, the same bytes everywhere, compared with committed checksums. anchor, test and
validation have two agents on 3x3 to 10x10 maps, a third of them with few, some and many holes, half of them in need of
a wait; benchmark has 3, 4 and 5 agents, 150 instances for each number of agents and map size, 3,150 in all."""

EXAMPLE = "python -m envsim sets benchmark"


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "sets", DESCRIPTION, EXAMPLE, run)
    parser.add_argument(
        "names", nargs="*", metavar="SET", help=f"any of {', '.join(sets.NAMES)} (default: all but benchmark)"
    )
    parser.add_argument(
        "--write-checksums",
        action="store_true",
        help="for maintainers: make all sets and write what they are as the new truth",
    )


def run(options: argparse.Namespace) -> None:
    """Print a line a set."""
    if options.write_checksums:
        names = list(sets.write_checksums(progress).sets)
    else:
        names = options.names or list(sets.STRATIFIED)
        for name in names:
            frozen(name)
    for name in names:
        record = sets.sets_file().sets[name]
        print(f"{name:<11}{record.n:>6} instances, {record.distinct} up to symmetry, sha256 {record.sha256[:16]}")
    if not options.write_checksums:
        print(f"in {sets.cache_directory()}")
