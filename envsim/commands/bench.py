"""``bench``: how fast the lake is on this machine, beside what else there is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from envsim.bench import bench
from envsim.commands import Commands, described
from envsim.commands.writing import out_path, refuse_existing
from envsim.contest import Full, Makespan, SumOfCosts
from envsim.figures import PARTS, Figure, Report, Settings, Spreading
from envsim.oracles import ORACLES
from envsim.whole import write_whole

DESCRIPTION = """Measure what the lake does in a second, side by side with other people's solvers. Every figure is of
this run on this machine; compare ratios, not runs.

A row of the tables is size/agents/holes: random layouts in which each agent can reach its goal alone. All solvers get
the same ones in the same order, build their own map, and take turns; a layout that a solver gives up counts with the
time it took. Ours gives up at its node limit, the others after a second. All answers are compared: a difference is an
error that names the layout. The others are installed by pip install 'envwright[oracle]'."""

EXAMPLE = """python -m envsim bench --quick
python -m envsim bench --seconds 5 --json bench.json
python -m envsim bench --only solving --against w9"""
OURS = (Makespan.name, SumOfCosts.name, Full.name)


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "bench", DESCRIPTION, EXAMPLE, run)
    usual, quick = Settings(), Settings.quick()
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help=f"processor time for each figure (default: {usual.seconds:g}; the whole takes about 100 times that)",
    )
    parser.add_argument(
        "--layouts",
        type=int,
        metavar="N",
        help=f"most layouts of a row that a solver is given (default: {usual.layouts})",
    )
    parser.add_argument("--seed", type=int, metavar="S", help=f"of the layouts of all rows (default: {usual.seed})")
    parser.add_argument(
        "--instances",
        type=int,
        metavar="N",
        help=f"instances to generate on one core and on all of them (default: {usual.instances:,})",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"some seconds in all: {quick.seconds:g} s a figure, {quick.layouts} layouts a row, others give up after "
        f"{quick.patience:g} s; to see that it works, not to quote",
    )
    parser.add_argument(
        "--against", nargs="*", choices=ORACLES, metavar="PACKAGE", help="w9, pymapf, both (default), or none of them"
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)} (default: all)"
    )
    parser.add_argument(
        "--json", type=out_path, metavar="FILE", help="write everything measured as JSON; not there yet"
    )


def run(options: argparse.Namespace) -> None:
    """Measure, print the tables, and write the file."""
    if options.json is not None:
        refuse_existing(options.json)
    settings = Settings.quick() if options.quick else Settings()
    given = {
        "seconds": options.seconds,
        "layouts": options.layouts,
        "seed": options.seed,
        "instances": options.instances,
        "against": None if options.against is None else tuple(dict.fromkeys(options.against)),
        "parts": None if options.only is None else tuple(options.only),
    }
    settings = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    report = bench(settings, announce)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    print("\n".join(lines(report)))
    if options.json is not None:
        write_whole(options.json, f"{report.model_dump_json(indent=2)}\n".encode())


def announce(what: str) -> None:
    """What is being measured, on stderr where a person watches it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what} ...", end="", file=sys.stderr, flush=True)


def lines(report: Report) -> Iterator[str]:
    """The report as tables."""
    machine, settings = report.machine, report.settings
    yield (
        f"Python {machine.python}, {machine.processor}, {machine.cores} cores, load {machine.load:.1f}; "
        f"{settings.seconds:g} s of processor time a figure, at most {settings.layouts} layouts a row"
    )
    if report.solving:
        yield from _solving(report)
    rates = [*report.generating, *report.checking]
    if rates:
        yield ""
        yield f"{'on one core':<56}{'per second':>12}"
        yield from (f"{rate.what:<56}{rate.per_second:>12,.0f}" for rate in rates)
    if report.spreading is not None:
        yield from _spreading(report.spreading)
    elif report.generating:
        yield "one core: nothing to spread generation over"
    if report.goals:
        yield ""
        yield f"{'goals of this project':<78}{'at least':>10}{'measured':>14}"
        for goal in report.goals:
            measured = "not measured" if goal.measured is None else _number(goal.measured)
            missed = "  missed" if goal.met is False else ""
            yield f"{goal.what:<78}{_number(goal.at_least):>10}{measured:>14}{missed}"


def _solving(report: Report) -> Iterator[str]:
    yield ""
    yield "solving: layouts a second, share given up at the node limit, layouts done"
    yield _head(OURS, width=26)
    for row in report.solving:
        yield f"{row.row:<14}" + "".join(f"{_figure(row.figures[name]):>26}" for name in OURS)
    solvers = [kind.name for package in report.settings.against for kind in ORACLES[package]]
    if not solvers:
        return
    yield ""
    yield (
        f"others, sum of costs: the same, given up after {report.settings.patience:g} s, and how many times its speed "
        "ours is on the layouts that both did"
    )
    yield from (f"  {said}" for said in report.oracles.values())
    yield _head(tuple(solvers), width=34)
    for row in report.solving:
        yield f"{row.row:<14}" + "".join(f"{_rival(row.figures.get(name)):>34}" for name in solvers)
    compared = sum(row.compared for row in report.solving)
    yield f"{compared:,} pairs of answers to one question compared: all agree"


def _head(names: tuple[str, ...], *, width: int) -> str:
    return f"{'':<14}" + "".join(f"{name:>{width}}" for name in names)


def _figure(figure: Figure) -> str:
    return f"{_number(figure.per_second)}/s {figure.gave_up:>6.1%} {figure.layouts:>4}"


def _rival(figure: Figure | None) -> str:
    return "not installed" if figure is None else f"{_figure(figure)} {_number(figure.ratio):>8}x"


def _spreading(spreading: Spreading) -> Iterator[str]:
    processes = spreading.processes
    yield ""
    yield (
        f"generating {spreading.instances:,} instances, the same ones, wall time, best of {len(spreading.capacity)} in "
        f"turn: {min(spreading.seconds_alone):.1f} s by one process,"
    )
    yield (
        f"{min(spreading.seconds_together):.1f} s by {processes} with their start: "
        f"{spreading.ratio:.2f} times as fast, {spreading.efficiency:.2f} of {processes}"
    )
    yield (
        f"(just before, {processes} processes that only count got {spreading.at_hand():.2f} times as far as one; "
        f"{processes:.2f} if nobody else is busy)"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
