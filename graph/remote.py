"""``python -m graph.remote``: a whole run as a task of a Ray cluster, followed here to its end.

A run whose node is lost starts again on another with ``--resume``: its directory says where it goes on. The exit code
is the run's, see `graph.run`; 2 for bad arguments, 1 if the cluster cannot carry it or it was lost too often.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from graph import layout
from graph.exits import Exit
from graph.rundir import RUN_FILE
from trainer.launch.contract import Launcher, LaunchError, Resources, Task
from trainer.launch.follow import failure
from trainer.launch.places import launcher
from trainer.launch.settings import LaunchSettings, RaySettings

LOG = "remote.log"
LOCK_SECONDS = 120.0
LOCK_POLL_SECONDS = 5.0
_POLL_SECONDS = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m graph.remote", description=__doc__.partition("\n")[0])
    parser.add_argument("--ray", metavar="ADDRESS", default="auto", help="host:port of the cluster's head, or auto")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of the task")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of the task")
    parser.add_argument("--retries", type=int, default=2, help="how often it may start again where its node was lost")
    parser.add_argument("--run-dir", type=Path, required=True, help="on a file system that all nodes share")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- ARGUMENTS", help="those of graph.run")
    options = parser.parse_args(arguments)
    given = options.arguments[1:] if options.arguments[:1] == ["--"] else options.arguments
    if "--run-dir" in given:
        parser.error("--run-dir stands before the --; expected it once")
    resources = Resources(cpus=options.cpus, gpus=options.gpus)
    try:
        ray = RaySettings(address=options.ray, retries=options.retries)
        return carry(launcher(LaunchSettings(where="ray", ray=ray)), options.run_dir.resolve(), given, resources)
    except LaunchError as error:
        print(error, file=sys.stderr)
        return Exit.FAILED


def carry(place: Launcher, run_dir: Path, arguments: Sequence[str], resources: Resources) -> int:
    """The run's exit code. Raises LaunchError if it was lost too often."""
    # Beside the run and not in it: a new run wants an empty directory.
    log = run_dir.with_name(f"{run_dir.name}.{LOG}")
    log.parent.mkdir(parents=True, exist_ok=True)
    shown = log.stat().st_size if log.exists() else 0
    losses, lost_at = 0, 0.0
    before = words(run_dir)
    while True:
        begun = losses > 0 and (run_dir / RUN_FILE).exists()
        given = to_go_on(arguments, answered=words(run_dir) != before) if begun else arguments
        line = ("-P", "-m", "graph.run", "--run-dir", str(run_dir), *given)
        task = Task(name=f"run {run_dir.name}", arguments=line, log=log, resources=resources)
        job = place.start(task)
        try:
            while (code := job.poll()) is None:
                shown = show(log, shown)
                time.sleep(_POLL_SECONDS)
        finally:
            job.stop()
        shown = show(log, shown)
        if code == Exit.BAD_INPUT and losses and time.monotonic() - lost_at < LOCK_SECONDS:
            # A file server may take a while to see that the lost node's lock has no owner.
            time.sleep(LOCK_POLL_SECONDS)
        elif code >= 0:
            return code
        elif losses == place.retries:
            raise LaunchError(failure(task, code))
        else:
            losses, lost_at = losses + 1, time.monotonic()


def words(run_dir: Path) -> set[Path]:
    """Where the run has a person's word."""
    return set(run_dir.glob(f"stages/*/proposals/*/{layout.APPROVAL}"))


def to_go_on(arguments: Sequence[str], *, answered: bool) -> list[str]:
    """What to say to a run that was lost with these arguments.

    One that they began has all of them in its ``run.yaml``. A word that they give is given once: where it has been
    taken there is nothing to give it on, or another proposal that nobody has seen.
    """
    flags = argparse.ArgumentParser(add_help=False)
    flags.add_argument("--resume", action="store_true")
    flags.add_argument("--approve", nargs="?")
    flags.add_argument("--reject", action="store_true")
    options, rest = flags.parse_known_args(list(arguments))
    if not options.resume:
        return ["--resume"]
    return ["--resume", *rest] if answered else list(arguments)


def show(log: Path, position: int) -> int:
    """Print what the log has after a position; returns its end."""
    if not log.exists():
        return position
    with log.open("rb") as file:
        file.seek(position)
        text = file.read()
    sys.stdout.write(text.decode("utf-8", errors="replace"))
    sys.stdout.flush()
    return position + len(text)


if __name__ == "__main__":
    sys.exit(main())
