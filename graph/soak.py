"""`python -m graph.soak --kills N`: a short real run, struck again and again, must end as if nothing had been.

Each trial runs the whole loop (the embedded model on the lake, one designed stage) in a directory of its own and is hit
once: SIGKILL before, after and inside every node in turn, with and without its training process; SIGTERM; two processes
that resume it at once; a database lost or torn; a full disk; a disk that has become read-only. The run is then resumed
once, and must be done. A trial passes if every file says what an undisturbed run's says, no stage was trained again
that need not be, no process is left, and running it once more changes nothing. What failed keeps its directory. Exit
codes: 0 all passed, 1 not, 2 bad input, 143 or 130 stopped by SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from rich.console import Console

from graph.aftermath import Trace, findings, trace
from graph.exits import Exit
from graph.rundir import RunDir
from graph.settings import RunSettings, SettingsError
from graph.strikes import (
    ON_DISK,
    SELF,
    Kind,
    Visit,
    await_moment,
    damage_database,
    strike,
    striking_reporter,
    visits,
    workers,
)
from trainer.attempts import attempts
from trainer.disturb import TinyDisk, send
from trainer.forking import Forked, ForkLauncher, fork, import_worker
from trainer.metrics import read_attempt
from trainer.soak_command import SoakError, soak_command

_PATIENCE_SECONDS = 600.0
_TRIES = 4
_DISK_MEGABYTES = 200
_GRACE_SECONDS = 5.0
KINDS: tuple[Kind, ...] = get_args(Kind)
PROFILE = {
    "name": "soak",
    "model": "seedling",
    "style": "compact",
    "threads": 1,
    "grpo": {"steps": 2, "batch": 16, "group": 4, "learning_rate": 1e-4, "save_every": 1},
    "bounds": {"min_steps": 2, "max_steps": 3},
    "generation": {"max_new_tokens": 24},
    "roles": {"max_new_tokens": 512},
    "evaluation": {"anchor": 16, "validation": 16, "test": 16},
    "probe": {"tasks": 8, "samples": 2},
    "tracking": [],
}
MOST_ATTEMPTS: dict[Kind, int] = {"kill with worker": 2, "terminate": 2, "full disk": 3, "read-only disk": 2}
"""How many may train a stage: one, for a run that is killed leaves its worker at work, unless that was struck too."""
GATES = {
    "g2": {"min_effective": 0.0, "min_success": 0.0, "max_success": 1.0},
    "g3": {"max_trivial": 1.0},
    "g4": {"max_hopeless": 1.0},
    "g5": {"floor": 0.0, "max_fall": 1.0},
    "g6": {"max_distance": 1.0},
    "g7": {"min_ratio": 0.0},
}
"""So short a run measures nothing well enough for these to mean something."""


@dataclass(frozen=True)
class Undisturbed:
    """What every trial must end with."""

    trace: Trace
    visits: list[Visit]
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    return soak_command("graph.soak", __doc__.partition("\n")[0], 10, _DISK_MEGABYTES, soak, arguments, goes_on=False)


def soak(kills: int, seed: int, home: Path, disk: TinyDisk | None) -> int:
    """All trials; prints a line each and one at the end."""
    rng = random.Random(seed)
    import_worker()
    import graph.session  # noqa: F401, PLC0415 - once here, for every trial's processes
    from graph.prepare import prepare  # noqa: PLC0415

    (home / "profile.yaml").write_text(yaml.safe_dump(PROFILE), encoding="utf-8")
    # It imports the environment and the model's class, which every process of every trial would do again.
    prepare(RunSettings.model_validate(settings(home)))
    expected = undisturbed(home)
    print(f"undisturbed: {expected.seconds:.1f} s, {len(expected.visits)} nodes", flush=True)
    passed = 0
    for number, (kind, visit) in enumerate(plan(kills, expected.visits, rng, disk is not None), start=1):
        began = time.monotonic()
        root = (home / "disk" if kind in ON_DISK else home) / f"trial-{number:03d}"
        heading = f"{number:3d} {kind}, {visit}"
        try:
            word = trial(kind, visit, rng.random(), root, home, disk)
            check(root, home, kind, expected)
        except (SoakError, OSError) as error:
            print(f"{heading}: FAILED, {error}; kept {kept(root, home)}", flush=True)
            continue
        passed += 1
        shutil.rmtree(root)
        print(f"{heading}: {word}, {time.monotonic() - began:.1f} s", flush=True)
    print(f"{passed} passed, {kills - passed} failed", flush=True)
    return 0 if passed == kills else 1


def plan(kills: int, turns: Sequence[Visit], rng: random.Random, has_disk: bool) -> list[tuple[Kind, Visit]]:
    """Which node is struck how: every pair comes once before any comes again, and every kind as often as any other."""
    kinds = [kind for kind in KINDS if has_disk or kind not in ON_DISK]
    orders = {kind: [rng.sample(turns, len(turns)) for _ in range(1 + kills // len(turns))] for kind in kinds}
    queues = {kind: iter([visit for order in orders[kind] for visit in order]) for kind in kinds}
    return [(kind, next(queues[kind])) for kind in (kinds[number % len(kinds)] for number in range(kills))]


def undisturbed(home: Path) -> Undisturbed:
    """A run that nothing befalls, once as the command line starts it, and once as the trials do."""
    command = [sys.executable, "-P", "-m", "graph.run", "--config", str(settings_file(home))]
    fresh = subprocess.run([*command, "--run-dir", str(home / "fresh")], check=False, capture_output=True, text=True)
    if fresh.returncode != Exit.DONE:
        raise SoakError(f"a run that nothing befell ended with {fresh.returncode}: {fresh.stdout[-2000:]}")
    began = time.monotonic()
    code = wait(start(home / "forked", home, resume=False))
    seconds = time.monotonic() - began
    if code != Exit.DONE:
        raise SoakError(f"a forked run ended with {code}; see {home / 'forked.log'}")
    expected = trace(home / "fresh")
    if found := findings(home / "forked", expected):
        raise SoakError(f"a forked run differs from one of the command line: {'; '.join(found)}")
    return Undisturbed(expected, visits(RunDir(home / "forked")), seconds)


def settings_file(home: Path) -> Path:
    path = home / "settings.yaml"
    path.write_text(yaml.safe_dump(settings(home)))
    return path


def settings(home: Path) -> dict[str, Any]:
    return {"profile": str(home / "profile.yaml"), "stages": 1, "gates": GATES}


def trial(  # noqa: PLR0917
    kind: Kind, visit: Visit, moment: float, root: Path, home: Path, disk: TinyDisk | None
) -> str:
    """Strike the run at its visit and resume it, once; says how its processes ended. Raises SoakError."""
    ends = [struck(kind, visit, moment * visit.seconds, root, home, disk)]
    if kind in ("lost database", "torn database"):
        damage_database(kind, root)
    if kind == "read-only disk":
        ends.append(on_read_only(root, home))
    if kind == "two resumers" and ends[-1] != Exit.DONE:
        ends += race(root, home)
    if ends[-1] != Exit.DONE:
        ends.append(wait(start(root, home, resume=(root / "run.yaml").exists())))
    if ends[-1] != Exit.DONE:
        raise SoakError(f"the run's processes ended with {ends}, the last not with 0; see {home / root.name}.log")
    return f"ended with {ends}"


def struck(  # noqa: PLR0917
    kind: Kind, visit: Visit, delay: float, root: Path, home: Path, disk: TinyDisk | None
) -> int:
    """How a run's first process ended that was struck. Raises SoakError if it is done each time before it can be.

    The visit took its time when the machine was busier than it may be now, so a run that gets away is begun again and
    struck sooner.
    """
    for _ in range(_TRIES):
        process = start(root, home, resume=False, kind=kind, visit=visit)
        hit = kind in SELF or await_moment(process, root, visit, delay)
        if hit and kind == "full disk" and disk is not None:
            while process.poll() is None:
                disk.fill()
                time.sleep(0.01)
            disk.free()
        elif hit and kind not in SELF:
            strike(kind, process, root)
        code = wait(process)
        if kind in SELF and code != -signal.SIGKILL:
            raise SoakError(f"the run was to end itself and ended with {code}; see {home / root.name}.log")
        if hit:
            return code
        shutil.rmtree(root)
        delay /= 4
    raise SoakError(f"the run was done {_TRIES} times before it could be struck")


def start(root: Path, home: Path, *, resume: bool, kind: Kind | None = None, visit: Visit | None = None) -> Forked:
    """The run's process, as a fork of this one; its workers are forks of it."""
    # Outside the run, and not on a disk that is to be full.
    log = home / f"{root.name}.log"

    def work() -> int:
        from graph.prepare import prepare  # noqa: PLC0415
        from graph.session import run_session  # noqa: PLC0415

        means: dict[str, Any] = {"launcher": ForkLauncher(_GRACE_SECONDS)}
        if kind is not None and visit is not None:
            means["reporter"] = striking_reporter(kind, visit.number)
        console = Console(file=sys.stdout, width=200)
        try:
            prepared = prepare(RunSettings.model_validate(settings(home)))
            return run_session(prepared, root, console, resume=resume, word=None, started=time.monotonic(), **means)
        except SettingsError as error:
            print(f"error: {error}", flush=True)
            return Exit.BAD_INPUT

    return fork(work, log)


def wait(process: Forked) -> int:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (code := process.poll()) is None:
        if time.monotonic() > deadline:
            os.kill(process.pid, signal.SIGKILL)
            raise SoakError(f"a process of the run did not end within {_PATIENCE_SECONDS:g} s")
        time.sleep(0.02)
    return code


def race(root: Path, home: Path) -> list[int]:
    """Two processes resume at once: one does, and the other is told that the run is in use. Raises SoakError."""
    if not (root / "run.yaml").exists():
        return []
    codes = sorted(wait(process) for process in [start(root, home, resume=True) for _ in range(2)])
    # One that began when the other had ended finds nothing left to do.
    if codes not in ([Exit.DONE, Exit.BAD_INPUT], [Exit.DONE, Exit.DONE]):
        raise SoakError(f"two processes that resumed at once ended with {codes}, expected [0, 2]")
    return [codes[1], codes[0]]


def on_read_only(root: Path, home: Path) -> int:
    """A resumption on a disk that cannot be written is refused in one line and leaves no trace. Raises SoakError."""
    make_read_only(root)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*"))
    try:
        code = wait(start(root, home, resume=True))
    finally:
        remount(root.parent, "rw")
    if code not in (Exit.BAD_INPUT, Exit.FAILED):
        raise SoakError(f"on a read-only disk the run ended with {code}, expected 2")
    if sorted((str(path), path.stat().st_mtime_ns) for path in root.rglob("*")) != before:
        raise SoakError("a resumption on a read-only disk changed a file")
    return code


def make_read_only(root: Path) -> None:
    """The disk of a run whose workers are ended; one that has just begun is not on record yet, and is waited for.

    Raises SoakError if something goes on writing.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        for pid in workers(root):
            send(pid, signal.SIGKILL)
        try:
            return remount(root.parent, "ro")
        except SoakError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def remount(place: Path, how: str) -> None:
    """Raises SoakError if the disk is busy."""
    done = subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SoakError(f"{place} cannot be mounted {how}: {' '.join(done.stderr.split())}")


def check(root: Path, home: Path, kind: Kind, expected: Undisturbed) -> None:
    """Raises SoakError unless the run is as if nothing had been, and stays so if it is resumed once more."""
    found = findings(root, expected.trace)
    if workers(root):
        found.append(f"training processes {workers(root)} are left")
    for stage in sorted(root.glob("stages/*")):
        trained = sum(bool(read_attempt(attempt)) for attempt in attempts(stage))
        if trained > MOST_ATTEMPTS.get(kind, 1):
            found.append(f"{trained} attempts trained {stage.name}")
    results = {path: path.stat().st_mtime_ns for path in root.glob("stages/*/result.json")}
    if (code := wait(start(root, home, resume=True))) != Exit.DONE:
        found.append(f"resumed once more it ended with {code}")
    if {path: path.stat().st_mtime_ns for path in root.glob("stages/*/result.json")} != results:
        found.append("resumed once more it trained again")
    found += findings(root, expected.trace)
    if found:
        raise SoakError("; ".join(dict.fromkeys(found)))


def kept(root: Path, home: Path) -> Path:
    """Where a failed trial's directory can be looked at; not on a disk that goes away."""
    if root.parent == home or not root.exists():
        return root
    return Path(shutil.move(root, home / root.name))


if __name__ == "__main__":
    raise SystemExit(main())
