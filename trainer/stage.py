"""One RL stage as a job: start the worker process, or find it at work, or let another go on; judge by ``result.json``.

Running a stage twice never trains it twice, and no exit code is trusted: a stage is done exactly if its result parses,
belongs to the spec, says that all steps were done and names the contents of the model beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.attempts import (
    RESULT,
    attempt_identity,
    attempts,
    live_worker,
    new_attempt,
    newest_checkpoint,
    read_result_of,
    record_worker,
    spec_path,
)
from trainer.checkpoint import CheckpointError, verify
from trainer.metrics import SftMetrics, StepMetrics, read_heartbeat, read_rows
from trainer.spec import AnyResult, AnySpec, SftResult, SftSpec, StageResult, StageSpec, contradiction
from trainer.worker import EXIT_BAD_INPUT, EXIT_HELD

OnProgress = Callable[[dict[str, Any]], None]
"""Called with ``{"event": "start", ...}``, one ``{"event": "step", ...}`` a step, and ``{"event": "done", ...}``."""

STALE_SECONDS = 900.0
WORKER = "trainer.worker"
"""Module that the worker process runs."""
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0
_LOG = "train.log"
_TAIL = 30


class StageError(RuntimeError):
    """A stage cannot be done: bad input, another stage's directory, or a worker that failed."""


class StageInputError(StageError):
    """The caller must change the spec or the directory; no worker was to blame."""


class StageCancelled(StageError):
    """The caller asked to stop; the worker is gone and the stage can be resumed."""


def run_stage(
    spec: StageSpec,
    directory: Path,
    *,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    stale_seconds: float = STALE_SECONDS,
    retries: int = 1,
) -> StageResult:
    """Train the stage in its directory, or return the result that lies there.

    Args:
        spec: the stage.
        directory: ``stages/NNN``; created if missing.
        on_progress: told of the start, each step and the end.
        stop: when set, the worker is ended and StageCancelled raised. So it is on any exception, KeyboardInterrupt too.
        stale_seconds: a worker without a heartbeat for so long is killed.
        retries: new attempts after a worker that was killed or hung; one that failed by itself would fail again.

    Raises:
        StageError: bad spec, a directory of another spec, or a failed worker; with the end of its log.
    """
    result = _supervise(Supervision(spec, directory, on_progress, stale_seconds, retries), spec, stop)
    assert isinstance(result, StageResult)
    return result


def run_sft(spec: SftSpec, directory: Path, *, on_progress: OnProgress | None = None) -> SftResult:
    """As `run_stage`, for a supervised stage."""
    result = run_any(spec, directory, on_progress=on_progress)
    assert isinstance(result, SftResult)
    return result


def run_any(spec: AnySpec, directory: Path, *, on_progress: OnProgress | None = None) -> AnyResult:
    """As `run_stage`, for a stage of any kind."""
    return _supervise(Supervision(spec, directory, on_progress, STALE_SECONDS, retries=1), spec, None)


def _supervise(supervision: Supervision, spec: AnySpec, stop: threading.Event | None) -> AnyResult:
    try:
        while (result := supervision.step()) is None:
            if stop is not None and stop.is_set():
                raise StageCancelled(f"stage {spec.stage} was stopped; run it again to go on from its last checkpoint")
            time.sleep(_POLL_SECONDS)
    finally:
        supervision.close()
    return result


def check_spec(spec: AnySpec) -> None:
    """Raises StageInputError for numbers that do not go together or would train nothing."""
    if isinstance(spec, SftSpec):
        # Whatever the numbers of a supervised stage, its tasks are shown again until they suffice.
        return
    grpo = spec.grpo
    if (why := contradiction(grpo, spec.generation, spec.rollouts, spec.device, spec.reward)) is not None:
        raise StageInputError(why)
    needed = grpo.steps * grpo.batch // grpo.group
    if spec.dataset.n < needed:
        raise StageInputError(
            f"the dataset has {spec.dataset.n} prompts, expected at least {needed} = {grpo.steps} steps x {grpo.batch} "
            f"completions / {grpo.group} a prompt; generate more or train fewer steps"
        )


class Supervision:
    """Looks after the worker of one stage; `step` never blocks for long, `close` leaves no worker behind."""

    def __init__(
        self, spec: AnySpec, directory: Path, on_progress: OnProgress | None, stale_seconds: float, retries: int
    ) -> None:
        check_spec(spec)
        self._spec = spec
        self._identity = spec.identity()
        self._directory = directory.resolve()
        self._tell = on_progress or (lambda _: None)
        self._stale_seconds = stale_seconds
        self._retries = retries
        self._child: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._attempt: Path | None = None
        self._told = 0
        self._began = time.time()

    def step(self) -> AnyResult | None:
        """The result once there is one; until then starts, watches and replaces workers. Raises StageError."""
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
        """End the worker's process group, if it still runs."""
        if self._pid is None or not self._alive():
            return
        for sign, patience in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, _GRACE_SECONDS)):
            try:
                os.killpg(self._pid, sign)
            except ProcessLookupError:
                return
            deadline = time.monotonic() + patience
            while time.monotonic() < deadline:
                if not self._alive():
                    return
                time.sleep(0.05)

    def _result(self) -> AnyResult | None:
        kind: type[AnyResult] = SftResult if isinstance(self._spec, SftSpec) else StageResult
        result = read_result_of(self._directory, kind)
        if result is None:
            return None
        if result.spec_hash != self._identity:
            raise StageInputError(
                f"{self._directory} holds the result of another spec ({result.spec_hash[:12]}, expected "
                f"{self._identity[:12]}); give each stage its own directory"
            )
        if not result.finished(self._spec.steps) or not Path(result.model.path).is_dir():
            return None
        try:
            verify(result.model)
        except CheckpointError as error:
            raise StageInputError(
                f"the model of a finished stage is not the one that its result names: {error}; restore it, or remove "
                f"{self._directory / RESULT} to train again"
            ) from error
        return result

    def _start(self) -> None:
        for attempt in reversed(attempts(self._directory)):
            identity = attempt_identity(attempt)
            if identity not in (None, self._identity):
                raise StageInputError(
                    f"{attempt} belongs to another spec ({str(identity)[:12]}, expected {self._identity[:12]}); give "
                    "each stage its own directory"
                )
            pid = live_worker(attempt)
            if pid is not None:
                self._child, self._pid, self._attempt, self._told = None, pid, attempt, 0
                self._tell({"event": "start", "attempt": attempt.name, "attached": True, "resumed_from": None})
                return
        found = newest_checkpoint(self._directory)
        attempt = new_attempt(self._directory, self._spec)
        command = [sys.executable, "-P", "-m", WORKER]
        command += ["--spec", str(spec_path(attempt)), "--directory", str(attempt)]
        if found is not None:
            command += ["--resume", str(found[1])]
        with (attempt / _LOG).open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": str(self._spec.threads), "PYTHONHASHSEED": "0"},
            )
        self._pid, self._attempt, self._told, self._began = self._child.pid, attempt, 0, time.time()
        record_worker(attempt, self._child.pid)
        resumed = None if found is None else found[0]
        self._tell({"event": "start", "attempt": attempt.name, "attached": False, "resumed_from": resumed})

    def _alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and self._attempt is not None and live_worker(self._attempt) == self._pid

    def _watch(self, attempt: Path) -> None:
        heartbeat = read_heartbeat(attempt)
        last = self._began if heartbeat is None else heartbeat.time
        if time.time() - last > self._stale_seconds:
            self.close()

    def _report(self, attempt: Path) -> None:
        kind: type[StepMetrics | SftMetrics] = SftMetrics if isinstance(self._spec, SftSpec) else StepMetrics
        for metrics in read_rows(attempt, kind, skip=self._told):
            self._told += 1
            self._tell({"event": "step", **metrics.model_dump(mode="json")})

    def _recover(self, attempt: Path) -> None:
        code = None if self._child is None else self._child.returncode
        if code == EXIT_HELD:
            # A worker that an earlier supervisor started won the race for the stage.
            self._attempt = None
            time.sleep(_POLL_SECONDS)
            return
        killed = code is None or code < 0
        if killed and self._retries > 0:
            self._retries -= 1
            self._attempt = None
            return
        log = attempt / _LOG
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:] if log.exists() else []
        how = (
            "ended" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        )
        kind = StageInputError if code == EXIT_BAD_INPUT else StageError
        raise kind(
            f"the worker of stage {self._spec.stage} {how} without a result; the end of {log}:\n" + "\n".join(tail)
        )
