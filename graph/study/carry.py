"""The runs of a study, several at a time, through a launcher; a row for each one that ends well.

A run is a task of its own: ``python -m graph.run`` in a directory of its own, resumed if it is there. It does not
outlive the study on this machine (``trainer.launch.leash``), so that after kill -9 the same command goes on at once.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from graph.exits import Exit
from graph.lock import LOCK_FILE
from graph.rundir import RUN_FILE, stored_identity
from graph.settings import RunSettings, SettingsError, differences
from graph.study.observe import UnfinishedRun, finished, observe
from graph.study.plan import Loaded
from graph.study.rows import Row, append_row, macro_of
from trainer.evaluate import report_path
from trainer.files import write_atomic
from trainer.launch.contract import Launcher, LaunchError, Resources, Task
from trainer.profile import load_profile

ROWS = "rows.jsonl"
POLL_SECONDS = 0.2
LOCK_SECONDS = 60.0
"""How long a run directory may stay locked by the process that an earlier study lost."""
Tell = Callable[[str], None]


@dataclass
class Study:
    """One directory in which a plan is carried out."""

    loaded: Loaded
    identities: Mapping[str, dict[str, Any]]
    """Of each arm, what decides what its runs compute, as it stands in their run.yaml but for the seed."""
    directory: Path
    code: str
    launcher: Launcher
    resources: Resources
    tell: Tell
    stop: threading.Event = field(default_factory=threading.Event)
    start_guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> Path:
        return self.directory / ROWS

    def place(self, arm: str, seed: int) -> Path:
        return self.directory / "runs" / f"{arm}-{seed}"

    def start_model(self, arm: str) -> str:
        return load_profile(self.loaded.arms[arm].profile).model


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """A study's directory is one process's at a time. Raises SettingsError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = (directory / LOCK_FILE).open("ab")
    except OSError as error:
        raise SettingsError(f"--directory {directory}: {error.strerror}") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingsError(f"--directory {directory} is in use by another study; name another one") from error
        yield


def carry_out(study: Study, todo: Sequence[tuple[str, int]], *, known: int, parallel: int) -> list[tuple[str, int]]:
    """Carry out runs that have no row yet; returns those that failed. ``known`` runs were finished before."""
    for arm, settings in study.loaded.arms.items():
        write_settings(study, arm, settings)
    clock = Progress(total=known + len(todo), done=known, parallel=parallel)
    failed: list[tuple[str, int]] = []

    def one(job: tuple[str, int]) -> None:
        if study.stop.is_set():
            return
        began = time.monotonic()
        try:
            row = finish(study, *job)
        except (LaunchError, UnfinishedRun) as error:
            if not study.stop.is_set():
                failed.append(job)
                study.tell(f"{clock.failed()} {job[0]}, seed {job[1]}: {error}")
            return
        append_row(study.rows, row)
        study.tell(f"{clock.finished(time.monotonic() - began)} {headline(row)}")

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(one, todo))
    return failed


@dataclass
class Progress:
    """How far a study is, and how long it will take at the pace of this call."""

    total: int
    done: int
    parallel: int
    seconds: list[float] = field(default_factory=list)
    lost: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def finished(self, seconds: float) -> str:
        with self._guard:
            self.done += 1
            self.seconds.append(seconds)
            open_ = self.total - self.done - self.lost
            pace = sum(self.seconds) / len(self.seconds) / min(self.parallel, max(1, open_))
            left = f", about {duration(open_ * pace)} left" if open_ else ""
            return f"[{self.done}/{self.total}{left}]"

    def failed(self) -> str:
        with self._guard:
            self.lost += 1
            return f"[{self.done}/{self.total}, {self.lost} failed]"


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{max(1, minutes)} min"


def headline(row: Row) -> str:
    scores = [
        f"{100 * macro_of(row.before[name], 'valid'):.1f} -> {100 * macro_of(row.after[name], 'valid'):.1f} %"
        for name in ("test", "test_sampled")
        if name in row.after
    ]
    return (
        f"{row.arm}, seed {row.seed}: test {' valid, sampled '.join(scores)} valid, {len(row.stages)} stages, "
        f"{row.charged:,} tokens, {row.cpu_seconds / 60:.1f} core-minutes"
    )


def write_settings(study: Study, arm: str, settings: RunSettings) -> None:
    path = settings_file(study, arm)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, yaml.safe_dump(settings.model_dump(mode="json", exclude_unset=True), sort_keys=False))


def settings_file(study: Study, arm: str) -> Path:
    return (study.directory / "settings" / f"{arm}.yaml").absolute()


def finish(study: Study, arm: str, seed: int) -> Row:
    """The row of one run, which is started, resumed, or only read. Raises LaunchError or UnfinishedRun."""
    place = study.place(arm, seed).absolute()
    refuse_other(study, place, arm, seed)
    try:
        champion = finished(place)
    except UnfinishedRun:
        persist(study, run_task(study, place, arm, seed), lambda: prepare_run(study, place))
        champion = finished(place)
    with study.start_guard:
        start = answered(study, arm, study.start_model(arm), study.directory.absolute() / "start")
    mine = place.with_name(f"{place.name}.sealed")
    after = start if champion is None else answered(study, arm, str(champion), mine)
    code = "+".join(codes(place)) or study.code
    return observe(place, plan=study.loaded.hash, code=code, arm=arm, beside=(start, after))


def refuse_other(study: Study, place: Path, arm: str, seed: int) -> None:
    """A run that is there must be the one of this arm and seed. Raises UnfinishedRun."""
    if not (place / RUN_FILE).is_file():
        return
    identity = study.identities[arm]
    wanted = {**identity, "settings": {**identity["settings"], "seed": seed}}
    if changed := differences(stored_identity(place), wanted):
        raise UnfinishedRun(f"{place} holds another run: {'; '.join(changed)}; name another --directory")


def persist(study: Study, task: Task | Callable[[], Task], before: Callable[[], None] = lambda: None) -> None:
    """Carry a task out until it ends well; one that was killed or lost starts again as often as the launcher allows.

    Raises UnfinishedRun with its exit code and last words, or LaunchError.
    """
    losses = 0
    while True:
        before()
        one = task if isinstance(task, Task) else task()
        code = carried(study, one)
        if study.stop.is_set():
            raise UnfinishedRun("stopped")
        if code == Exit.DONE:
            return
        if code >= 0 or losses == study.launcher.retries:
            raise UnfinishedRun(f"ended with exit code {code}: {last_words(one.log)}; see {one.log}")
        losses += 1


def carried(study: Study, task: Task) -> int:
    """The exit code of one process."""
    task.log.parent.mkdir(parents=True, exist_ok=True)
    leash = ("-P", "-m", "trainer.launch.leash") if study.launcher.name == "local" else ()
    job = study.launcher.start(task.model_copy(update={"arguments": (*leash, *task.arguments)}))
    try:
        while (code := job.poll()) is None and not study.stop.wait(POLL_SECONDS):
            pass
    finally:
        job.stop()
    return Exit.DRAINED if code is None else code


def run_task(study: Study, place: Path, arm: str, seed: int) -> Callable[[], Task]:
    """The run as a task: begun or, once it has begun, resumed."""

    def task() -> Task:
        again = ["--resume"] if (place / RUN_FILE).is_file() else []
        flags = ("--config", str(settings_file(study, arm)), "--seed", str(seed), "--run-dir", str(place), *again)
        return Task(
            name=f"{arm}, seed {seed}",
            arguments=("-P", "-m", "graph.run", *flags),
            log=log_of(place),
            resources=study.resources,
        )

    return task


def prepare_run(study: Study, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    wait_until_free(place)
    note_code(place, study.code)


def answered(study: Study, arm: str, model: str, directory: Path) -> Path:
    """Where a checkpoint's answers lie to the sealed sets that a run leaves out; they are made if they do not yet."""
    settings, plan = study.loaded.arms[arm], study.loaded.plan
    named = ("--model", model, "--profile", settings.profile, "--environment", settings.environment)
    sets: dict[str, tuple[str, ...]] = {"benchmark": ()} if plan.benchmark else {}
    if plan.samples:
        temperature = load_profile(settings.profile).generation.temperature
        sets["test"] = ("--samples", str(plan.samples), "--temperature", str(temperature))
    for name, how in sets.items():
        if report_path(directory, name).is_file():
            continue
        flags = (*named, "--set", name, *how, "--directory", str(directory))
        persist(
            study,
            Task(
                name=f"{name} of {model}",
                arguments=("-P", "-m", "trainer", "evaluate", *flags),
                log=log_of(directory),
                resources=study.resources,
            ),
        )
    return directory


def codes(place: Path) -> list[str]:
    """The versions of the code that have worked on a run."""
    path = place.with_name(f"{place.name}.code")
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


def note_code(place: Path, code: str) -> None:
    known = codes(place)
    if code not in known:
        write_atomic(place.with_name(f"{place.name}.code"), "\n".join([*known, code]) + "\n")


def wait_until_free(place: Path) -> None:
    """Until no process holds the run. Raises LaunchError if one does not let go."""
    deadline = time.monotonic() + LOCK_SECONDS
    lock = place / LOCK_FILE
    while lock.exists():
        with lock.open("rb") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LaunchError(f"{place} is in use by another process; end it, or wait for it") from None
        time.sleep(POLL_SECONDS)


def log_of(place: Path) -> Path:
    """Beside the run and not in it: a new run wants an empty directory."""
    return place.with_name(f"{place.name}.log")


def last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
