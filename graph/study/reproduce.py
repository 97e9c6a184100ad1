"""``python -m graph.study reproduce``: published runs made again here, and how they compare with what was published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graph.exits import Exit
from graph.settings import SettingsError
from graph.study.carry import ROWS, carry_out, locked
from graph.study.command import begin, check_runs, given, place_flags, stopped, with_signals
from graph.study.comparison import compared, told, tolerance
from graph.study.page import budget_of
from graph.study.plan import load_plan
from graph.study.provenance import code_version
from graph.study.rows import Row, read_rows

PUBLISHED = "rows.jsonl.gz"
Key = tuple[str, int]


def reproduce(arguments: Sequence[str]) -> int:
    """Make the runs and compare them. Returns the exit code: 1 if one lies outside the tolerance."""
    flags = place_flags("python -m graph.study reproduce", "Make published runs of a plan again, and compare them.")
    flags.add_argument(
        "--published", type=Path, metavar="FILE", help=f"(default: results/NAME/{PUBLISHED} beside the plan)"
    )
    flags.add_argument("--runs", nargs="+", required=True, metavar="ARM:SEED", help="such as self:1000")
    flags.add_argument(
        "--tolerance",
        type=float,
        metavar="POINTS",
        help="of the primary outcome, 0 = all must be equal (default: by what two seeds of the arm differ, 95 %%)",
    )
    options = given(flags, arguments)
    if options.tolerance is not None and not options.tolerance >= 0:
        raise SettingsError(f"--tolerance {options.tolerance}, expected points of 0 or more")
    loaded = load_plan(options.plan)
    name = loaded.plan.name
    source = options.published or loaded.path.parent / "results" / name / PUBLISHED
    if not source.is_file():
        raise SettingsError(f"--published {source} is no file; expected the rows of runs of {loaded.path}")
    rows = {row.key: row for row in read_rows(source, loaded.hash)}
    wanted = named(options.runs, rows, source)
    identities, directory = check_runs(loaded), options.directory or Path("runs") / f"reproduced-{name}"
    with locked(directory):
        one = begin(options, loaded, identities, directory, code_version())
        known = {row.key for row in read_rows(directory / ROWS, loaded.hash)}
        with_signals(one)
        todo = [key for key in wanted if key not in known]
        failed = carry_out(one, todo, known=len(wanted) - len(todo), parallel=options.parallel)
        if one.stop.is_set():
            return stopped(one)
        own = {row.key: row for row in read_rows(directory / ROWS, loaded.hash)}
    sound = not failed
    for arm, seed in (key for key in wanted if key in own):
        found = compared(rows[arm, seed], own[arm, seed], budget_of(loaded))
        by_chance = tolerance(loaded, list(rows.values()), arm)
        lines, within = told(found, loaded, by_chance if options.tolerance is None else options.tolerance)
        sound = sound and within
        print("\n".join(lines))
    return Exit.DONE if sound else Exit.FAILED


def named(texts: Sequence[str], rows: dict[Key, Row], source: Path) -> list[Key]:
    """The runs of ``--runs``, each once. Raises SettingsError."""
    found: dict[Key, None] = {}
    for text in texts:
        arm, _, seed = text.rpartition(":")
        key = (arm, int(seed)) if seed.isascii() and seed.isdecimal() else (arm, -1)
        if key not in rows:
            some = ", ".join(f"{one}:{number}" for one, number in sorted(rows)[:4])
            raise SettingsError(f"--runs {text}: no run of {source}; it has {len(rows)}, such as {some}")
        found[key] = None
    return list(found)
