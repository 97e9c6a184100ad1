"""`python -m trainer.soak --kills N`: a short real stage, disturbed again and again, must end as if nothing had been.

Each trial trains the embedded model for some steps on the lake in a directory of its own and is hit once at a random
moment: SIGKILL or SIGTERM to worker or supervisor, a stopped worker, a full disk, files torn or changed while all are
dead. The stage is then run until it is done. A trial passes if the weights and the rewards are those of an undisturbed
run in a fresh process, every attempt went on where a checkpoint was and ended for the reason that it was hit by, no
process is left, and running the stage again trains nothing. What failed keeps its directory. Exit codes: 0 all passed,
1 not.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envsim.registry import get
from trainer.attempts import attempts, number, read_result
from trainer.checkpoint import resolve
from trainer.dataset import write_dataset
from trainer.disturb import KINDS, OF_WORKER, TinyDisk, damage, strike, worker_of
from trainer.forking import Forked, ForkLauncher, fork, import_worker
from trainer.metrics import StepMetrics, read_attempt
from trainer.outcomes import EXIT_CODES, read_record
from trainer.resume import history
from trainer.spec import GenerationSettings, GrpoSettings, RewardWeights, StageResult, StageSpec
from trainer.stage import StageCancelled, StageError, run_stage

_SIZES = (3, 4)
_STEPS = 6
_BATCH = 16
_GROUP = 4
_DISK_MEGABYTES = 160
_PATIENCE_SECONDS = 300.0
_RESTARTS = 5
_TIMES = ("time", "seconds", "generation_seconds")


class SoakError(AssertionError):
    """A stage did not come through as it should have."""


@dataclass(frozen=True)
class Undisturbed:
    """What every trial must end with."""

    result: StageResult
    rows: list[StepMetrics]
    seconds: float


@dataclass(frozen=True)
class Moment:
    """When a trial is hit: so many seconds after a step was reported; step 0 is the start of its supervisor."""

    step: int
    delay: float

    def wait(self, supervisor: Forked, stage: Path) -> None:
        """Until then, or until the supervisor is at its end."""
        while supervisor.poll() is None and not self._reached(stage):
            time.sleep(0.005)
        began = time.monotonic()
        while supervisor.poll() is None and time.monotonic() - began < self.delay:
            time.sleep(0.005)

    def _reached(self, stage: Path) -> bool:
        return self.step == 0 or any(
            row.step >= self.step for attempt in attempts(stage) for row in read_attempt(attempt)
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=9, metavar="N", help="trials, one disturbance each")
    parser.add_argument("--seed", type=int, default=0, help="of the disturbances' kinds, moments and files")
    parser.add_argument("--directory", type=Path, help="where the trials run; default: a temporary directory")
    options = parser.parse_args(arguments)
    if options.kills < 1:
        parser.error(f"--kills is {options.kills}, expected 1 or more")
    # A fork's hash seed and threads are its parent's; a worker of its own has these.
    if os.environ.get("PYTHONHASHSEED") != "0" or os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ.update(PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
        flags = ["-P"] if sys.flags.safe_path else []
        own = sys.argv[1:] if arguments is None else arguments
        os.execv(sys.executable, [sys.executable, *flags, "-m", "trainer.soak", *own])
    home = Path(tempfile.mkdtemp(prefix="soak-")) if options.directory is None else options.directory.resolve()
    home.mkdir(parents=True, exist_ok=True)
    disk = TinyDisk.mounted(home / "disk", _DISK_MEGABYTES)
    try:
        return _soak(options.kills, random.Random(options.seed), home, disk)
    finally:
        if disk is not None:
            disk.close()


def _soak(kills: int, rng: random.Random, home: Path, disk: TinyDisk | None) -> int:
    import_worker()
    spec = make_spec(home)
    expected = undisturbed(spec, home)
    print(f"undisturbed: {expected.seconds:.1f} s, model {expected.result.model.sha256[:12]}", flush=True)
    kinds = [kind for kind in KINDS if disk is not None or kind != "full disk"]
    passed = 0
    for trial in range(1, kills + 1):
        # Every kind comes up as often as any other, in an order of its own.
        if trial % len(kinds) == 1 or len(kinds) == 1:
            rng.shuffle(kinds)
        kind = kinds[(trial - 1) % len(kinds)]
        stage = (home / "disk" if kind == "full disk" else home) / f"trial-{trial:03d}"
        step = rng.randint(0, _STEPS)
        # Half of a short stage is its start; an equal part of the rest is a step.
        moment = Moment(step, rng.random() * expected.seconds / (2 if step == 0 else 2 * _STEPS))
        heading = f"{trial:3d} {kind} {moment.delay:.2f} s after step {moment.step}"
        began = time.monotonic()
        try:
            stale = max(4.0, 1.5 * expected.seconds)
            hit = _trial(spec, stage, kind, moment, stale=stale, rng=rng, disk=disk)
            word = judge(spec, stage, kind, expected) + ("" if hit else ", which came after its end")
        except (SoakError, StageError, OSError, ValueError) as error:
            kept = _keep(stage, home)
            print(f"{heading}: FAILED, {error}; kept {kept}", flush=True)
            continue
        passed += 1
        shutil.rmtree(stage)
        print(f"{heading}: {word}, {time.monotonic() - began:.1f} s", flush=True)
    print(f"{passed} passed, {kills - passed} failed", flush=True)
    return 0 if passed == kills else 1


def make_spec(home: Path) -> StageSpec:
    """Some steps of the embedded model on small lakes, with two passes a step and a checkpoint every second step."""
    lake = get("lake")
    config = lake.default_config()
    shares = {f"{size}x{size}.data_ratio": 1.0 if size in _SIZES else 0.0 for size in range(3, 11)}
    instances = lake.generate(lake.with_values(config, shares), _STEPS * _BATCH // _GROUP, 0).instances
    return StageSpec(
        environment="lake",
        style="compact",
        stage=1,
        seed=3,
        init_model=resolve("seedling"),
        dataset=write_dataset(instances, home / "dataset.jsonl"),
        reward=RewardWeights(),
        generation=GenerationSettings(max_new_tokens=24),
        grpo=GrpoSettings(
            steps=_STEPS, batch=_BATCH, group=_GROUP, micro_batch=_BATCH // 2, learning_rate=1e-4, save_every=2
        ),
        threads=1,
    )


def undisturbed(spec: StageSpec, home: Path) -> Undisturbed:
    """The stage in a worker started afresh, and how long a forked one takes, which must end alike."""
    fresh = run_stage(spec, home / "undisturbed")
    began = time.monotonic()
    forked = run_stage(spec, home / "forked", launcher=ForkLauncher())
    if forked.model.sha256 != fresh.model.sha256:
        raise SoakError(f"a forked worker ends with {forked.model.sha256[:12]}, a fresh one {fresh.model.sha256[:12]}")
    return Undisturbed(fresh, history(home / "undisturbed" / "attempt-1"), time.monotonic() - began)


def _trial(
    spec: StageSpec, stage: Path, kind: str, moment: Moment, *, stale: float, rng: random.Random, disk: TinyDisk | None
) -> bool:
    """Run the stage, hit it, and run it until it is done; whether it was hit before that."""
    stage.mkdir()
    # A machine that is busy with other things is no reason to take a worker for hung.
    stale = stale if kind == "stop worker" else _PATIENCE_SECONDS
    supervisor = _supervise(spec, stage, stale)
    moment.wait(supervisor, stage)
    while kind in OF_WORKER and supervisor.poll() is None and worker_of(stage) is None:
        time.sleep(0.005)
    hit = supervisor.poll() is None
    if kind == "full disk" and disk is not None:
        _fill_until_it_ends(disk, supervisor)
    elif hit:
        strike(kind, supervisor.pid, stage)
    if kind == "damage":
        _wait(supervisor)
        _wait_gone(stage)
        print(f"    {damage(stage, rng)}", flush=True)
    ends = []
    while (code := _wait(supervisor)) != 0:
        ends.append("killed" if code < 0 else EXIT_CODES.get(code, "failed"))
        if len(ends) > _RESTARTS:
            raise SoakError(f"the stage was run {len(ends)} times and is not done; the supervisors ended as {ends}")
        supervisor = _supervise(spec, stage, stale)
    return hit or kind == "damage"


def _supervise(spec: StageSpec, stage: Path, stale: float) -> Forked:
    def work() -> int:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        try:
            run_stage(spec, stage, stop=stop, stale_seconds=stale, launcher=ForkLauncher(grace_seconds=3.0))
        except StageCancelled:
            return 75
        except StageError as error:
            print(error, flush=True)
            return next((code for code, name in EXIT_CODES.items() if name == error.outcome), 1)
        return 0

    return fork(work, stage.parent / f"{stage.name}.log")


def _fill_until_it_ends(disk: TinyDisk, supervisor: Forked) -> None:
    """Whatever room the stage makes by removing an old checkpoint is taken as well."""
    while supervisor.poll() is None:
        disk.fill()
        time.sleep(0.01)
    disk.free()


def _wait(process: Forked) -> int:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (code := process.poll()) is None:
        if time.monotonic() > deadline:
            os.kill(process.pid, signal.SIGKILL)
            raise SoakError(f"the supervisor did not end within {_PATIENCE_SECONDS:g} s")
        time.sleep(0.02)
    return code


def _wait_gone(stage: Path) -> None:
    deadline = time.monotonic() + 10
    while worker_of(stage) is not None:
        if time.monotonic() > deadline:
            raise SoakError(f"worker {worker_of(stage)} outlived SIGKILL")
        time.sleep(0.02)


def judge(spec: StageSpec, stage: Path, kind: str, expected: Undisturbed) -> str:
    """What the trial came to. Raises SoakError unless it is as if nothing had been."""
    result, tried = read_result(stage), attempts(stage)
    if result is None:
        raise SoakError("the supervisor said that the stage is done, and there is no result")
    want = expected.result
    if result.model.sha256 != want.model.sha256 or not result.exact:
        raise SoakError(f"the weights are {result.model.sha256[:12]}, expected {want.model.sha256[:12]}")
    rows = [row.model_dump(exclude=set(_TIMES)) for row in history(stage / f"attempt-{result.attempt}")]
    if rows != [row.model_dump(exclude=set(_TIMES)) for row in expected.rows]:
        raise SoakError(f"the metrics of {len(rows)} steps differ from the undisturbed run's")
    if run_stage(spec, stage) != result or attempts(stage) != tried:
        raise SoakError("running the stage again trained it again")
    # What was damaged cannot be read back; what came after it can.
    for attempt in tried[-1:] if kind == "damage" else tried:
        _check_beginning(attempt)
    ended = [earlier.outcome for earlier in result.earlier]
    if not set(ended) <= KINDS[kind]:
        raise SoakError(f"attempts ended as {ended}, expected {sorted(KINDS[kind])}")
    if worker_of(stage) is not None:
        raise SoakError(f"worker {worker_of(stage)} is left")
    faults = [passed.fault for passed in result.passed_over]
    word = f"attempts {len(tried)} {ended}, resumed from {result.resumed_from_step}"
    return word + (f", passed over {faults}" if faults else "")


def _check_beginning(attempt: Path) -> None:
    """The first step that an attempt trained is the one after its checkpoint."""
    record = read_record(attempt)
    if record is None:
        return
    first = 1 if record.resumed_from is None else number(Path(record.resumed_from)) + 1
    steps = [row.step for row in read_attempt(attempt)]
    if steps != list(range(first, first + len(steps))):
        raise SoakError(f"{attempt.name} trained the steps {steps}, expected them to begin with {first}")


def _keep(stage: Path, home: Path) -> Path:
    """Where a failed trial's directory can be looked at; not on a disk that goes away."""
    if stage.parent == home or not stage.exists():
        return stage
    return Path(shutil.move(stage, home / stage.name))


if __name__ == "__main__":
    raise SystemExit(main())
