"""Looking after the worker of one stage: start it, or find it at work, watch it, and let another go on after it.

No exit code is trusted: a stage is done exactly if its result parses, belongs to the spec, says that all steps were
done and names the contents of the model beside it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from trainer.attempts import (
    RESULT,
    attempt_identity,
    attempts,
    live_worker,
    new_attempt,
    read_result_of,
    record_worker,
    spec_path,
)
from trainer.checkpoint import CheckpointError, verify
from trainer.consistency import check_spec
from trainer.failures import StageError, StageInputError
from trainer.launch.contract import Job, Launcher, Task, stage_resources
from trainer.launch.local import AttachedJob
from trainer.metrics import metrics_of, read_heartbeat, read_rows
from trainer.outcomes import (
    INTERRUPTIONS,
    REFUSALS,
    machine_fault,
    read_end,
    read_record,
    write_end,
    write_record,
)
from trainer.recovery import ending, explain, first_record, has_smaller_passes
from trainer.results import AnyResult, SftResult, StageResult
from trainer.resume import resume_point
from trainer.spec import AnySpec, SftSpec, StageSpec

OnProgress = Callable[[dict[str, Any]], None]
"""Called with ``{"event": "start", ...}``, one ``{"event": "step", ...}`` a step, ``{"event": "attempt_ended", ...}``
with the name of the outcome for an attempt that another one follows, and ``{"event": "done", ...}``."""

WORKER = "trainer.worker"
"""Module that the worker process runs."""
_POLL_SECONDS = 0.2
_HELD_SECONDS = 60.0
_LOG = "train.log"


class Supervision:
    """Looks after the worker of one stage; `step` never blocks for long, `close` leaves no worker behind."""

    def __init__(
        self,
        spec: AnySpec,
        directory: Path,
        on_progress: OnProgress | None,
        stale_seconds: float,
        *,
        retries: int,
        launcher: Launcher,
    ) -> None:
        check_spec(spec)
        self._spec = spec
        self._identity = spec.identity()
        self._directory = directory.resolve()
        self._tell = on_progress or (lambda _: None)
        self._stale_seconds = stale_seconds
        self._retries = self._left = retries
        self._launcher = launcher
        self._furthest = 0
        self._held_since: float | None = None
        self._job: Job | None = None
        self._attempt: Path | None = None
        self._hung = False
        self._told = 0
        self._heard: tuple[object, float] = (None, 0.0)

    def step(self) -> AnyResult | None:
        """The result once there is one; until then starts, watches and replaces workers. Raises StageError."""
        try:
            return self._step()
        except OSError as error:
            if machine_fault(error) != "disk_full":
                raise
            raise StageError(
                f"the disk of stage {self._spec.stage} is full: {error}; make room and run it again, it goes on from "
                "its last checkpoint",
                "disk_full",
            ) from error

    def _step(self) -> AnyResult | None:
        if self._attempt is None:
            if (result := self._result()) is None:
                self._start()
            return result
        self._report(self._attempt)
        if self._alive():
            self._watch(self._attempt)
            return None
        self._report(self._attempt)
        if (result := self._result()) is not None:
            self._tell({"event": "done", **result.model_dump(mode="json")})
            return result
        self._recover(self._attempt)
        return None

    def close(self) -> None:
        """End the worker and all that it started, if it still runs."""
        if self._job is not None:
            self._job.stop()

    def _result(self) -> AnyResult | None:
        kind: type[AnyResult] = SftResult if isinstance(self._spec, SftSpec) else StageResult
        result = read_result_of(self._directory, kind)
        if result is None:
            return None
        if result.spec_hash != self._identity:
            raise StageInputError(
                f"{self._directory} holds the result of another spec ({result.spec_hash[:12]}, expected "
                f"{self._identity[:12]}); give each stage its own directory",
                "wrong_spec",
            )
        if not result.finished(self._spec.steps) or not Path(result.model.path).is_dir():
            return None
        try:
            verify(result.model)
        except CheckpointError as error:
            raise StageInputError(
                f"the model of a finished stage is not the one that its result names: {error}; restore it, or remove "
                f"{self._directory / RESULT} to train again",
                "wrong_model",
            ) from error
        return result

    def _start(self) -> None:
        for attempt in reversed(attempts(self._directory)):
            if self._attach(attempt):
                return
        for attempt in attempts(self._directory):
            if read_end(attempt) is None:
                write_end(attempt, "lost", "neither its worker nor its supervisor lived, or had the room, to say how")
        found = resume_point(self._directory, self._identity)
        if (found.step or 0) > self._furthest:
            self._furthest, self._left = found.step or 0, self._retries
        record = first_record(self._spec, self._directory, found)
        attempt = new_attempt(self._directory, self._spec)
        write_record(attempt, record)
        job = self._launcher.start(self._task(attempt, found.checkpoint))
        self._now_on(attempt, job)
        if job.pid is not None:
            record_worker(attempt, job.pid)
        self._tell({"event": "start", "attempt": attempt.name, "attached": False, "resumed_from": found.step})

    def _attach(self, attempt: Path) -> bool:
        record = read_record(attempt)
        # Two files say whose it is: one of them may be damaged, and yet read like another's.
        said = {attempt_identity(attempt), None if record is None else record.spec_hash} - {None}
        if said and self._identity not in said:
            raise StageInputError(
                f"{attempt} belongs to another spec ({min(map(str, said))[:12]}, expected {self._identity[:12]}); give "
                "each stage its own directory",
                "wrong_spec",
            )
        pid = live_worker(attempt)
        if pid is None:
            return False
        self._now_on(attempt, AttachedJob(pid, partial(_is_worker, attempt, pid), self._launcher.grace_seconds))
        self._tell({"event": "start", "attempt": attempt.name, "attached": True, "resumed_from": None})
        return True

    def _task(self, attempt: Path, resume: Path | None) -> Task:
        arguments = ["-P", "-m"]
        if isinstance(self._spec, StageSpec) and self._spec.ranks is not None:
            ranks = self._spec.ranks
            arguments += ["trainer.launch.ranks", "--preset", ranks.preset, "--processes", str(ranks.processes)]
            if self._spec.rollouts.kind == "vllm_server":
                arguments += ["--serve", str(spec_path(attempt))]
        arguments += [WORKER, "--spec", str(spec_path(attempt)), "--directory", str(attempt)]
        if resume is not None:
            arguments += ["--resume", str(resume)]
        return Task(
            name=f"stage {self._spec.stage}, {attempt.name}",
            arguments=tuple(arguments),
            log=attempt / _LOG,
            environment={"OMP_NUM_THREADS": str(self._spec.threads), "PYTHONHASHSEED": "0"},
            resources=stage_resources(self._spec),
        )

    def _now_on(self, attempt: Path, job: Job) -> None:
        self._job, self._attempt, self._told, self._hung = job, attempt, 0, False
        self._heard = (None, time.monotonic())

    def _alive(self) -> bool:
        return self._job is not None and self._job.poll() is None

    def _watch(self, attempt: Path) -> None:
        # Judged by whether the heartbeat changes, so that a clock that is set neither kills nor saves a worker. One
        # that waits for a place has none yet.
        heartbeat = read_heartbeat(attempt)
        waits = heartbeat is None and not (attempt / _LOG).exists()
        if waits or (heartbeat is not None and heartbeat != self._heard[0]):
            self._heard = (heartbeat, time.monotonic())
        if time.monotonic() - self._heard[1] > self._stale_seconds:
            self._hung = True
            self.close()

    def _report(self, attempt: Path) -> None:
        for metrics in read_rows(attempt, metrics_of(self._spec), skip=self._told):
            self._told += 1
            self._tell({"event": "step", **metrics.model_dump(mode="json")})

    def _recover(self, attempt: Path) -> None:
        stale = self._stale_seconds if self._hung else None
        code = None if self._job is None or isinstance(self._job, AttachedJob) else self._job.poll()
        ended = ending(attempt, code, stale)
        self._attempt = None
        if ended.outcome == "held":
            self._wait_for_holder(attempt)
            return
        self._held_since = None
        write_end(attempt, ended.outcome, ended.detail)
        if ended.outcome in INTERRUPTIONS and self._left > 0:
            self._left -= 1
        elif ended.outcome != "out_of_memory" or not has_smaller_passes(self._spec, attempt):
            kind = StageInputError if ended.outcome in REFUSALS else StageError
            raise kind(explain(self._spec.stage, attempt / _LOG, ended), ended.outcome)
        self._tell({"event": "attempt_ended", "attempt": attempt.name, **ended.model_dump(exclude={"schema_version"})})

    def _wait_for_holder(self, attempt: Path) -> None:
        """A worker that an earlier supervisor started won the race for the stage: it will be attached to."""
        shutil.rmtree(attempt)
        self._held_since = self._held_since or time.monotonic()
        if time.monotonic() - self._held_since > _HELD_SECONDS:
            raise StageError(
                f"a process that none of the attempts in {self._directory} names has held its lock for "
                f"{_HELD_SECONDS:g} s; end it and run the stage again",
                "held",
            )
        time.sleep(_POLL_SECONDS)


def _is_worker(attempt: Path, pid: int) -> bool:
    return live_worker(attempt) == pid
