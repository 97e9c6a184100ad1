"""``python -m graph.seeds``: the same run for several seeds and designers, and one table of what came of them.

Every run is a run directory of its own under ``--directory``; one that is finished is read, one that was cut off is
resumed, so the command can be given again at any time. One that was made with other settings is refused (exit code 2)
before anything runs. Prints Markdown: the sealed test set before and after.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from graph import run
from graph.exits import Exit
from graph.layout import in_stage
from graph.rundir import RUN_FILE, stored_identity
from graph.settings import SettingsError, differences


def check_runs(root: Path, jobs: Sequence[tuple[str, int]], extra: Sequence[str]) -> None:
    """Every run that is there must be the one that the flags ask for.

    Raises
    ------
    SettingsError
        The flags are none of ``graph.run``'s, or a run directory was made with other settings.
    """
    for designer, seed in jobs:
        options = run.parser().parse_args(["--designer", designer, "--seed", str(seed), *extra])
        wanted = run.settings_of(options).model_dump(mode="json")
        place = run_place(root, designer, seed)
        if place.exists():
            changed = differences(stored_identity(place).get("settings", {}), wanted, "settings.")
            if changed:
                raise SettingsError(
                    f"{place} was made with other settings: {'; '.join(changed)}; "
                    "give its own flags, or another --directory"
                )


def run_place(root: Path, designer: str, seed: int) -> Path:
    return root / f"{designer}-{seed}"


def run_one(root: Path, designer: str, seed: int, extra: Sequence[str]) -> dict[str, Any]:
    """Finish the run of one designer and seed; returns its result with how many stages used a proposal of its own.

    Raises
    ------
    RuntimeError
        The run ended with another exit code than 0; says where its log lies.
    """
    place = run_place(root, designer, seed)
    result = place / "result.json"
    if not result.is_file():
        log = root / f"{designer}-{seed}.log"
        command = [sys.executable, "-m", "graph.run", "--run-dir", str(place)]
        command += (
            ["--resume"] if (place / RUN_FILE).is_file() else ["--designer", designer, "--seed", str(seed), *extra]
        )
        with log.open("a", encoding="utf-8") as file:
            code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        if code != Exit.DONE:
            msg = f"designer {designer}, seed {seed}: python -m graph.run ended with exit code {code}; see {log}"
            raise RuntimeError(msg)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    plans = sorted((place / "stages").glob("[0-9][0-9][0-9]/plan.json"))[1:]
    found["own"] = sum(json.loads(plan.read_text(encoding="utf-8"))["own"] for plan in plans)
    found["designed"] = len(plans)
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
    for designer, seed, result in results:
        test = result["sets"]["test"]
        before, after, change = test["before"], test["after"], test["valid"]
        lines.append(
            f"| {designer} | {seed} | {100 * before['macro_valid']:.1f} -> {100 * after['macro_valid']:.1f} "
            f"| {100 * change['delta']:+.1f} ({100 * change['low']:+.1f} to {100 * change['high']:+.1f}) "
            f"| {100 * before['macro_optimal']:.1f} -> {100 * after['macro_optimal']:.1f} "
            f"| {result['own']} of {result['designed']} |"
        )
    for designer in dict.fromkeys(name for name, _, _ in results):
        deltas = [r["sets"]["test"]["valid"] for name, _, r in results if name == designer]
        mean = sum(d["delta"] for d in deltas) / len(deltas)
        above = sum(d["low"] > 0 for d in deltas)
        lines.append(
            f"| **{designer}** | {len(deltas)} seeds | "
            f"| mean {100 * mean:+.1f}; above zero in {above} of {len(deltas)} | | |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m graph.seeds", description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True, help="where the run directories lie")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--designers", nargs="+", default=["self", "fixed"])
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("extra", nargs="*", help="after --: further flags of python -m graph.run")
    options = parser.parse_args(arguments)
    todo = [(designer, seed) for designer in options.designers for seed in options.seeds]
    try:
        check_runs(options.directory, todo, options.extra)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    options.directory.mkdir(parents=True, exist_ok=True)

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
