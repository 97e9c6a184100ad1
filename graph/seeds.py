"""``python -m graph.seeds``: the same run for several seeds and designers, and one table of what came of them.

Every run is a run directory of its own under ``--directory``; one that is finished is read, one that was cut off is
resumed, so the command can be given again at any time. One that was made with other settings is refused (exit code 2)
before anything runs. Prints Markdown: the sealed test set before and after.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agents.designers import get_designer
from envsim.documents import DocumentError, read_json
from graph import run
from graph.exits import Exit
from graph.layout import RESULT, in_stage
from graph.rundir import LOCK_FILE, RUN_FILE, stored_identity
from graph.settings import SettingsError, differences

OWN = ("run_dir", "designer", "seed", "resume", "approve", "reject", "dry_run")
"""Flags of ``graph.run`` that this command gives itself."""


def check_runs(root: Path, jobs: Sequence[tuple[str, int]], extra: Sequence[str]) -> None:
    """All that can be wrong is found before anything runs, and every run that is there must be the one asked for.

    Raises
    ------
    SettingsError
        The flags are none of ``graph.run``'s or not to be given here, they name something that is not there, the
        directory is a file, or a run directory was made with other settings.
    """
    refuse_own_flags(extra)
    if root.exists() and not root.is_dir():
        raise SettingsError(f"--directory {root} is a file, expected a directory")
    for designer in dict.fromkeys(name for name, _ in jobs):
        try:
            get_designer(designer)
        except ValueError as error:
            raise SettingsError(f"--designers {designer}: {error}") from error
    unfinished = []
    for designer, seed in jobs:
        options = run.parser().parse_args(["--designer", designer, "--seed", str(seed), *extra])
        settings = run.settings_of(options)
        place = run_place(root, designer, seed)
        if place.exists():
            check_run(place, settings.model_dump(mode="json"))
        if finished(place) is None:
            unfinished.append(settings)
    if unfinished:
        from graph.prepare import prepare  # noqa: PLC0415  imports torch, which takes seconds

        # The others differ in designer and seed alone.
        prepare(unfinished[0])


def refuse_own_flags(extra: Sequence[str]) -> None:
    options = run.parser().parse_args(list(extra))
    for name in OWN:
        value = getattr(options, name)
        # By identity: seed 0 equals False.
        if not (value is None or value is False):
            raise SettingsError(
                f"--{name.replace('_', '-')} cannot be given after --: every run gets its own; "
                "see --directory, --designers and --seeds"
            )


def check_run(place: Path, wanted: dict[str, Any]) -> None:
    """A run directory must hold the run of these settings, or none yet. Raises SettingsError."""
    if place.is_dir() and all(file.name == LOCK_FILE for file in place.iterdir()):
        return
    changed = differences(stored_identity(place).get("settings", {}), wanted, "settings.")
    if changed:
        raise SettingsError(
            f"{place} was made with other settings: {'; '.join(changed)}; give its own flags, or another --directory"
        )


def finished(place: Path) -> dict[str, Any] | None:
    """The result of a run with how many stages used a proposal of its own; None if a file is missing or damaged."""
    try:
        found = read_json(place / RESULT)
        plans = [read_json(path) for path in sorted((place / "stages").glob("[0-9][0-9][0-9]/plan.json"))[1:]]
        found |= {"own": sum(plan["own"] for plan in plans), "designed": len(plans)}
        row("", 0, found)
        champion(found)
    except (ValueError, KeyError, TypeError):
        # A crash may have cut them; resuming makes them again.
        return None
    return dict(found)


def run_place(root: Path, designer: str, seed: int) -> Path:
    return root / f"{designer}-{seed}"


def run_one(root: Path, designer: str, seed: int, extra: Sequence[str]) -> dict[str, Any]:
    """Finish the run of one designer and seed; returns its result with how many stages used a proposal of its own.

    Raises
    ------
    RuntimeError
        The run ended with another exit code than 0 or left no usable result; says where its log lies.
    """
    place = run_place(root, designer, seed)
    found = finished(place)
    if found is not None:
        return found
    log = root / f"{designer}-{seed}.log"
    command = [sys.executable, "-m", "graph.run", "--run-dir", str(place)]
    command += ["--resume"] if (place / RUN_FILE).is_file() else ["--designer", designer, "--seed", str(seed), *extra]
    with log.open("a", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
    if code != Exit.DONE:
        msg = f"designer {designer}, seed {seed}: python -m graph.run ended with exit code {code}; see {log}"
        raise RuntimeError(msg)
    found = finished(place)
    if found is None:
        msg = f"designer {designer}, seed {seed}: {place / RESULT} or a plan.json is missing or damaged; see {log}"
        raise RuntimeError(msg)
    return found


def champion(result: dict[str, Any]) -> str:
    """Where a run's best checkpoint lies, in words if no stage made it."""
    stage = result["champion"]["stage"]
    return "no stage beat the start" if stage < 0 else in_stage(stage, "model")


def table(results: Sequence[tuple[str, int, dict[str, Any]]]) -> str:
    """Rows by designer and seed: macro valid and optimal rate on the test set, paired 95 % interval of the change."""
    lines = [
        "| designer | seed | valid before -> after (%) | change (95 % interval) | optimal (%) | own proposals |",
        "|---|---|---|---|---|---|",
    ]
    lines += [row(*entry) for entry in results]
    for designer in dict.fromkeys(name for name, _, _ in results):
        deltas = [r["sets"]["test"]["valid"] for name, _, r in results if name == designer]
        mean = sum(d["delta"] for d in deltas) / len(deltas)
        above = sum(d["low"] > 0 for d in deltas)
        lines.append(
            f"| **{designer}** | {len(deltas)} seeds | "
            f"| mean {100 * mean:+.1f}; above zero in {above} of {len(deltas)} | | |"
        )
    return "\n".join(lines)


def row(designer: str, seed: int, result: dict[str, Any]) -> str:
    test = result["sets"]["test"]
    before, after, change = test["before"], test["after"], test["valid"]
    return (
        f"| {designer} | {seed} | {100 * before['macro_valid']:.1f} -> {100 * after['macro_valid']:.1f} "
        f"| {100 * change['delta']:+.1f} ({100 * change['low']:+.1f} to {100 * change['high']:+.1f}) "
        f"| {100 * before['macro_optimal']:.1f} -> {100 * after['macro_optimal']:.1f} "
        f"| {result['own']} of {result['designed']} |"
    )


def parser() -> run.Parser:
    flags = run.Parser(prog="python -m graph.seeds", description=__doc__.splitlines()[0])
    flags.add_argument("--directory", type=Path, required=True, help="where the run directories lie")
    flags.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    flags.add_argument("--designers", nargs="+", default=["self", "fixed"])
    flags.add_argument("--parallel", type=int, default=1, help="runs at a time")
    flags.add_argument("extra", nargs="*", help="after --: further flags of python -m graph.run")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        options = parser().parse_args(arguments)
        if options.parallel < 1:
            raise SettingsError(f"--parallel {options.parallel}, expected at least 1")
        # Two processes at once must never have the same run.
        todo = list(dict.fromkeys((name, seed) for name in options.designers for seed in options.seeds))
        check_runs(options.directory, todo, options.extra)
        options.directory.mkdir(parents=True, exist_ok=True)
    except (SettingsError, DocumentError) as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    except OSError as error:
        print(f"error: --directory {options.directory}: {error.strerror}", file=sys.stderr)
        return Exit.BAD_INPUT

    def one(job: tuple[str, int]) -> dict[str, Any]:
        found = run_one(options.directory, *job, options.extra)
        print(f"{job[0]}, seed {job[1]}: {champion(found)}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(options.parallel) as pool:
        try:
            results = list(pool.map(one, todo))
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return Exit.FAILED
    print(table([(*job, result) for job, result in zip(todo, results, strict=True)]))
    return Exit.DONE


if __name__ == "__main__":
    sys.exit(main())
