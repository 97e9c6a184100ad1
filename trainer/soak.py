"""`python -m trainer.soak --kills N`: a short real stage, disturbed again and again, must end as if nothing had been.

Each trial trains the embedded model for some steps on the lake in a directory of its own and is hit once at a random
moment: SIGKILL or SIGTERM to worker or supervisor, a stopped worker, a full disk, files torn or changed while all are
dead. The stage is then run until it is done. A trial passes if the weights and the rewards are those of an undisturbed
run in a fresh process, every attempt went on where a checkpoint was and ended for the reason that it was hit by, no
process is left, and running the stage again trains nothing. What failed keeps its directory. With the same --directory
and --seed a soak that was cut off goes on after its last trial. Exit codes: 0 all passed, 1 not, 2 bad input, 143
or 130 stopped by SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envsim.registry import get
from trainer.attempts import attempts
from trainer.checkpoint import resolve
from trainer.dataset import write_dataset
from trainer.disturb import KINDS, OF_WORKER, TinyDisk, damage, strike, worker_of
from trainer.files import read_lines
from trainer.forking import Forked, ForkLauncher, fork, import_worker
from trainer.metrics import read_attempt
from trainer.outcomes import EXIT_CODES
from trainer.resume import history
from trainer.soak_command import SoakError, soak_command
from trainer.soaked import Undisturbed, judge
from trainer.spec import GenerationSettings, GrpoSettings, RewardWeights, StageSpec
from trainer.stage import StageCancelled, StageError, run_stage

_SIZES = (3, 4)
_STEPS = 6
_BATCH = 16
_GROUP = 4
_DISK_MEGABYTES = 160
_PATIENCE_SECONDS = 300.0
_RESTARTS = 5


@dataclass(frozen=True)
class Plan:
    """What befalls a trial; every kind comes up as often as any other, in an order of its own."""

    trial: int
    kind: str
    step: int
    fraction: float
    """Of the longest delay after the step."""
    rng: random.Random

    @classmethod
    def all(cls, trials: int, seed: int, kinds: Sequence[str]) -> list[Plan]:
        """The same for the same seed, however many trials follow."""
        rng, order, plans = random.Random(seed), list(kinds), list[Plan]()
        for trial in range(1, trials + 1):
            if (trial - 1) % len(order) == 0:
                rng.shuffle(order)
            step, fraction = rng.randint(0, _STEPS), rng.random()
            kind = order[(trial - 1) % len(order)]
            plans.append(cls(trial, kind, step, fraction, random.Random(f"{seed} {trial}")))
        return plans


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
    return soak_command("trainer.soak", __doc__.partition("\n")[0], 9, _DISK_MEGABYTES, _soak, arguments, goes_on=True)


def _soak(kills: int, seed: int, home: Path, disk: TinyDisk | None) -> int:
    import_worker()
    spec = make_spec(home)
    expected = undisturbed(spec, home)
    print(f"undisturbed: {expected.seconds:.1f} s, model {expected.result.model.sha256[:12]}", flush=True)
    kinds = [kind for kind in KINDS if disk is not None or kind != "full disk"]
    done = home / f"passed-{seed}.jsonl"
    before = {json.loads(line)["trial"] for line in read_lines(done)} if done.exists() else set[int]()
    passed, attempted = Counter[str](), Counter[str]()
    for plan in Plan.all(kills, seed, kinds):
        attempted[plan.kind] += 1
        if plan.trial not in before:
            if not _passes(spec, plan, expected, home, disk):
                continue
            with done.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"trial": plan.trial, "kind": plan.kind}) + "\n")
        passed[plan.kind] += 1
    print(", ".join(f"{kind} {passed[kind]} of {n}" for kind, n in sorted(attempted.items())), flush=True)
    print(f"{passed.total()} passed, {kills - passed.total()} failed", flush=True)
    return 0 if passed.total() == kills else 1


def _passes(spec: StageSpec, plan: Plan, expected: Undisturbed, home: Path, disk: TinyDisk | None) -> bool:
    """Carry a trial out and say what it came to."""
    parent = home / "disk" if plan.kind == "full disk" else home
    stage = Path(tempfile.mkdtemp(prefix=f"trial-{plan.trial:03d}-", dir=parent))
    # Half of a short stage is its start; an equal part of the rest is a step.
    moment = Moment(plan.step, plan.fraction * expected.seconds / (2 if plan.step == 0 else 2 * _STEPS))
    heading = f"{plan.trial:3d} {plan.kind} {moment.delay:.2f} s after step {moment.step}"
    began = time.monotonic()
    try:
        stale = max(4.0, 1.5 * expected.seconds)
        hit = _trial(spec, stage, plan.kind, moment, stale=stale, rng=plan.rng, disk=disk)
        word = judge(spec, stage, plan.kind, expected) + ("" if hit else ", which came after its end")
    except (SoakError, StageError, OSError, ValueError) as error:
        print(f"{heading}: FAILED, {error}; kept {_keep(stage, home)}", flush=True)
        return False
    shutil.rmtree(stage)
    print(f"{heading}: {word}, {time.monotonic() - began:.1f} s", flush=True)
    return True


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
    forked = run_stage(spec, home / "forked", launcher=ForkLauncher())
    if forked.model.sha256 != fresh.model.sha256:
        raise SoakError(f"a forked worker ends with {forked.model.sha256[:12]}, a fresh one {fresh.model.sha256[:12]}")
    return Undisturbed(fresh, history(home / "undisturbed" / "attempt-1"), forked.seconds["total"])


def _trial(
    spec: StageSpec, stage: Path, kind: str, moment: Moment, *, stale: float, rng: random.Random, disk: TinyDisk | None
) -> bool:
    """Run the stage, hit it, and run it until it is done; whether it was hit before that."""
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


def _keep(stage: Path, home: Path) -> Path:
    """Where a failed trial's directory can be looked at; not on a disk that goes away."""
    if stage.parent == home or not stage.exists():
        return stage
    return Path(shutil.move(stage, home / stage.name))


if __name__ == "__main__":
    raise SystemExit(main())
