"""``bench``: how fast the lake is on this machine."""

from __future__ import annotations

import argparse

from envsim.bench import bench
from envsim.commands import Commands, described

EXAMPLE = "python -m envsim bench --seconds 5"


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "bench", "Measure on one core what the lake does in a second.", EXAMPLE, run)
    parser.add_argument(
        "--seconds",
        type=float,
        default=2.0,
        metavar="S",
        help="processor time for each figure, in seconds (default: 2)",
    )


def run(options: argparse.Namespace) -> None:
    """Print a row a figure, with the project's goal where it has one."""
    print(f"{'on one core':<52}{'per second':>12}{'goal':>10}")
    for result in bench(options.seconds):
        goal = "" if result.goal is None else f"{result.goal:,.0f}"
        print(f"{result.what:<52}{result.per_second:>12,.0f}{goal:>10}")
