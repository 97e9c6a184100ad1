"""The command of a study: its flags, what they ask for, and the way from the plan to rows, table and page."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from graph.exits import Exit
from graph.run import Parser
from graph.settings import SettingsError
from graph.study.carry import ROWS, Study, carry_out, duration, locked
from graph.study.page import write_page
from graph.study.pictures import write_pictures
from graph.study.plan import DEVELOPMENT, Loaded, load_plan, seeds_of
from graph.study.provenance import code_version, confirm
from graph.study.rows import Row, merge, one_start, read_rows
from graph.study.table import write_tables
from graph.study.words import words
from trainer.files import write_atomic
from trainer.launch.contract import Launcher, Resources
from trainer.launch.local import LocalLauncher
from trainer.launch.places import launcher
from trainer.launch.settings import LaunchSettings, RaySettings
from trainer.processes import GRACE_SECONDS

Kind = Literal["development", "confirming"]


def place_flags(prog: str, description: str) -> Parser:
    """Which plan, where it lies, and what carries its runs."""
    flags = Parser(prog=prog, description=description)
    flags.add_argument("--plan", type=Path, required=True, metavar="FILE", help="what is compared; see docs/study.md")
    flags.add_argument("--directory", type=Path, metavar="DIR", help="where it lies (default: one below runs/)")
    flags.add_argument("--parallel", type=int, default=1, metavar="N", help="runs at a time")
    flags.add_argument(
        "--ray", metavar="ADDRESS", help="a Ray cluster that carries the runs: host:port of its head, or auto"
    )
    flags.add_argument("--cpus", type=float, default=1, help="CPUs of a run on the cluster")
    flags.add_argument("--gpus", type=float, default=0, help="GPUs of a run on the cluster")
    return flags


def parser(prog: str = "python -m graph.study") -> Parser:
    flags = place_flags(prog, "Compare designers: arms x seeds of whole runs under equal token budgets.")
    flags.epilog = (
        "'python -m graph.study pilot --plan FILE' searches for an oracle curriculum, 'python -m graph.study reproduce "
        "--plan FILE --runs ARM:SEED' makes published runs again; see docs/study.md."
    )
    flags.add_argument("--seeds", type=int, nargs="+", metavar="N", help="these development seeds of 0..99 alone")
    flags.add_argument("--arms", nargs="+", metavar="NAME", help="these arms alone")
    flags.add_argument(
        "--confirm", action="store_true", help="the confirming seeds, of a plan that is committed in git"
    )
    flags.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="rows.jsonl of other machines, or rows.jsonl.gz",
    )
    flags.add_argument("--report", action="store_true", help="table and page of the rows there are; run nothing")
    flags.add_argument("--dry-run", action="store_true", help="check the plan, say what would run, write nothing")
    return flags


def given(flags: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """The flags as they were given. Raises SettingsError."""
    options = flags.parse_args(arguments)
    if options.parallel < 1:
        raise SettingsError(f"--parallel {options.parallel}, expected at least 1")
    return options


def study(arguments: Sequence[str]) -> int:
    options = given(parser(), arguments)
    loaded = load_plan(options.plan)
    kind: Kind = "confirming" if options.confirm else "development"
    wanted = chosen(loaded, kind, options.seeds, options.arms)
    identities = check_runs(loaded)
    directory = options.directory or Path("runs") / f"study-{loaded.plan.name}"
    if options.dry_run:
        rows = read_rows(directory / ROWS, loaded.hash)
        describe(loaded, wanted, rows)
        return Exit.DONE
    code = code_version()
    with locked(directory):
        if merged := merge(directory / ROWS, options.merge, loaded.hash):
            tell(f"{merged} rows of other machines were added")
        if options.confirm and not options.report:
            confirm(loaded, code)
        one = begin(options, loaded, identities, directory, code)
        return work_through(one, [] if options.report else wanted, options.parallel, wanted)


def begin(
    options: argparse.Namespace,
    loaded: Loaded,
    identities: Mapping[str, dict[str, Any]],
    directory: Path,
    code: str,
) -> Study:
    """A plan in a directory, with the place that the flags name. Raises LaunchError."""
    return Study(
        loaded=loaded,
        identities=identities,
        directory=directory,
        code=code,
        launcher=place_of(options.ray),
        resources=Resources(cpus=options.cpus, gpus=options.gpus),
        tell=tell,
    )


def work_through(one: Study, todo: Sequence[tuple[str, int]], parallel: int, wanted: Sequence[tuple[str, int]]) -> int:
    """Carry out what has no row, then write table and page. Returns the exit code."""
    known = {row.key for row in read_rows(one.rows, one.loaded.hash)}
    with_signals(one)
    failed = carry_out(
        one, [job for job in todo if job not in known], known=len(known & set(wanted)), parallel=parallel
    )
    rows = read_rows(one.rows, one.loaded.hash)
    one_start(rows)
    done = {row.key for row in rows}
    owed = [job for job in wanted if job not in done]
    write_tables(rows, one.directory)
    page = one.directory / "report.html"
    write_page(one.loaded, rows, page, owed=len(owed))
    write_pictures(one.loaded, rows, one.directory / "figures")
    said = words(one.loaded, rows)
    write_atomic(one.directory / "findings.md", said)
    if not todo:
        print(said, end="")
    tell(f"{len(rows)} runs in {one.directory / 'table.csv'} and .parquet; report: {page}")
    if one.stop.is_set():
        return stopped(one)
    if failed:
        tell(f"{len(failed)} runs failed; the same command tries them again")
        return Exit.FAILED
    return Exit.DONE


def stopped(one: Study) -> Exit:
    tell(f"stopped; the same command goes on in {one.directory}")
    return Exit.DRAINED


def chosen(
    loaded: Loaded, kind: Kind, seeds: Sequence[int] | None, arms: Sequence[str] | None
) -> list[tuple[str, int]]:
    """The runs that were asked for. Raises SettingsError."""
    for arm in arms or ():
        if arm not in loaded.plan.arms:
            raise SettingsError(f"--arms {arm}: no arm of {loaded.path}; known are {', '.join(loaded.plan.arms)}")
    if seeds is None:
        jobs = seeds_of(loaded.plan, kind)
    elif kind == "confirming":
        raise SettingsError("--seeds with --confirm: the plan alone says which seeds confirm it")
    else:
        for seed in seeds:
            if seed not in DEVELOPMENT:
                raise SettingsError(
                    f"--seeds {seed}: development seeds are {DEVELOPMENT.start}..{DEVELOPMENT.stop - 1}; "
                    "confirming ones are run by --confirm, from a committed plan"
                )
        jobs = [(arm, seed) for seed in dict.fromkeys(seeds) for arm in loaded.plan.arms]
    return [(arm, seed) for arm, seed in jobs if arms is None or arm in arms]


def check_runs(loaded: Loaded) -> dict[str, dict[str, Any]]:
    """Every arm must be a run that could start; returns what decides what each computes. Raises SettingsError."""
    from graph.prepare import prepare  # noqa: PLC0415  imports torch, which takes seconds

    found = {}
    for arm, settings in loaded.arms.items():
        try:
            found[arm] = prepare(settings).identity
        except SettingsError as error:
            raise SettingsError(f"{loaded.path}: arms.{arm}: {error}") from error
    return found


def place_of(ray: str | None) -> Launcher:
    """This machine, or a cluster. Raises LaunchError."""
    if ray is None:
        # The leash of a run must outlive what it ends.
        return LocalLauncher(3 * GRACE_SECONDS)
    return launcher(LaunchSettings(where="ray", ray=RaySettings(address=ray)))


def describe(loaded: Loaded, wanted: Sequence[tuple[str, int]], rows: Sequence[Row]) -> None:
    """What would run, and what it takes at the pace of the rows that are there."""
    done = {row.key for row in rows}
    todo = [job for job in wanted if job not in done]
    print(f"plan {loaded.plan.name} ({loaded.hash[:16]}): {loaded.plan.question}")
    for arm in loaded.plan.arms:
        seeds = [seed for name, seed in wanted if name == arm]
        print(f"  {arm}: {loaded.plan.arms[arm]}, seeds {seeds}")
    cost = ""
    if rows:
        cost = f", about {duration(len(todo) * sum(row.cpu_seconds for row in rows) / len(rows))} on one core"
    print(f"{len(wanted)} runs, {len(todo)} to do{cost}")
    print("dry run: nothing was written")


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def with_signals(one: Study) -> None:
    """SIGTERM and SIGINT stop the runs, which can be resumed; a second one ends the process at once."""

    def drain(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        tell(f"{signal.Signals(number).name}: stopping; once more ends at once")
        one.stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)
