"""Workers of this machine forked from a process that has imported what they import: later stages start at once.

The first worker that a launcher starts brings up ``python -m trainer.launch.warm``, which imports torch and TRL and
forks a worker whenever it is told to on its standard input; it ends with that input. Its workers do not: as any other
worker they outlive whoever started them, and are found again by their record. Tasks that need other imports or another
environment are started as processes of their own. A forked worker computes what a fresh one does, bit by bit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer import forking, usage, worker
from trainer.attempts import process_started
from trainer.launch.contract import Job, LaunchError, Task
from trainer.launch.local import LocalLauncher
from trainer.processes import GRACE_SECONDS, end, running
from trainer.spec import StageSpec, read_spec

_POLL_SECONDS = 0.05
_IMPORTED_WITHIN_SECONDS = 60.0
"""Longer than imports take on a busy machine; a worker of its own is started then."""
START = ("-P", "-m", worker.__name__)


class Nursery:
    """The process that workers are forked from, seen from outside."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "trainer.launch.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        self._unread = b""
        self._codes: dict[int, int] = {}
        self._close = weakref.finalize(self, _end_nursery, self._process)

    def fork(self, arguments: tuple[str, ...], log: Path) -> int:
        """Process id of a new worker. Raises LaunchError if the process is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"arguments": arguments, "log": str(log)}).encode() + b"\n")
            self._process.stdin.flush()
            while (told := self._read(_IMPORTED_WITHIN_SECONDS)) and "code" in told:
                self._note_end(told)
        except OSError as error:
            raise LaunchError(f"the process that workers are forked from is gone: {error}") from error
        if not told:
            raise LaunchError("the process that workers are forked from is gone, or does not get ready")
        if "error" in told:
            raise OSError(told["errno"], told["error"], str(log))
        pid: int = told["pid"]
        # The kernel gives ids again; the end of whoever had this one was told before.
        self._codes.pop(pid, None)
        return pid

    def close(self) -> None:
        """End it; its workers go on."""
        self._close()

    def code(self, pid: int) -> int | None:
        """Exit code of a worker, or minus the signal that killed it; None while that is not known."""
        while pid not in self._codes and (told := self._read(0)):
            self._note_end(told)
        return self._codes.get(pid)

    def _note_end(self, told: Mapping[str, Any]) -> None:
        self._codes[told["pid"]] = told["code"]
        usage.tell(self._process.pid, usage.Usage(told["cpu"], told["peak"]))

    def _read(self, timeout: float | None) -> dict[str, Any]:
        """What it says next; nothing if there is nothing within the timeout, or will never be."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            if not select.select([pipe], [], [], timeout)[0]:
                return {}
            new = os.read(pipe, 1 << 16)
            if not new:
                return {}
            self._unread += new
        line, _, self._unread = self._unread.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told


def _end_nursery(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except BrokenPipeError:
            continue
    # Its workers lead sessions of their own, and go on.
    process.kill()
    process.wait()
    usage.counted(process.pid)


class WarmJob:
    """A worker that was forked elsewhere."""

    def __init__(self, nursery: Nursery, pid: int, grace_seconds: float) -> None:
        self._nursery = nursery
        self._pid = pid
        self._started = process_started(pid)
        self._grace_seconds = grace_seconds

    @property
    def pid(self) -> int:
        return self._pid

    def poll(self) -> int | None:
        if (code := self._nursery.code(self._pid)) is not None:
            return code
        if self._alive():
            return None
        # Told of between the two questions, or nobody is left to tell.
        return self._last_word()

    def stop(self) -> None:
        end(self._pid, self._alive, self._grace_seconds)
        self._last_word()

    def _alive(self) -> bool:
        return self._started is not None and process_started(self._pid) == self._started

    def _last_word(self) -> int:
        deadline = time.monotonic() + 1
        while (code := self._nursery.code(self._pid)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return -signal.SIGKILL if code is None else code


class WarmLauncher:
    """This machine, for stages that follow each other."""

    name = "local"
    retries = 1

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self.grace_seconds = grace_seconds
        self._local = LocalLauncher(grace_seconds)
        self._nursery: Nursery | None = None

    def start(self, task: Task) -> Job:
        if not can_be_forked(task):
            return self._local.start(task)
        if self._nursery is None:
            self._nursery = Nursery(task.environment)
        if self._nursery.environment != dict(task.environment):
            return self._local.start(task)
        try:
            pid = self._nursery.fork(task.arguments[len(START) :], task.log)
        except LaunchError:
            # Killed, as by the kernel for its memory, or too slow: it must not fork what is started elsewhere now.
            self._nursery.close()
            self._nursery = None
            return self._local.start(task)
        return WarmJob(self._nursery, pid, self.grace_seconds)


def can_be_forked(task: Task) -> bool:
    """Whether it is a worker of GRPO that imports what was imported and has no device to share."""
    if task.arguments[: len(START)] != START:
        return False
    try:
        spec = read_spec(Path(task.arguments[task.arguments.index("--spec") + 1]).read_bytes())
    except (OSError, ValueError, ValidationError):
        # The worker says so better.
        return False
    plain = isinstance(spec, StageSpec) and spec.rollouts.kind == "transformers"
    return plain and spec.lora is None and spec.device == "cpu"


def main() -> None:
    """Import, then fork a worker for each line on standard input until that ends."""
    forking.import_worker()
    answers = os.dup(sys.stdout.fileno())
    os.set_inheritable(answers, False)
    children: dict[int, forking.Forked] = {}
    unread = b""
    while True:
        if select.select([0], [], [], _POLL_SECONDS if children else None)[0]:
            new = os.read(0, 1 << 16)
            if not new:
                return
            *lines, unread = (unread + new).split(b"\n")
            for line in lines:
                _answer(answers, _forked(json.loads(line), answers, children))
        for child in [child for child in children.values() if not running(child)]:
            del children[child.pid]
            cpu, peak = child.usage
            _answer(answers, {"pid": child.pid, "code": child.poll() or 0, "cpu": cpu, "peak": peak})


def _forked(asked: dict[str, Any], answers: int, children: dict[int, forking.Forked]) -> dict[str, str | int]:
    def work() -> int:
        os.close(answers)
        return worker.main(asked["arguments"])

    try:
        child = forking.fork(work, Path(asked["log"]))
    except OSError as error:
        return {"error": str(error.strerror), "errno": error.errno or 0}
    children[child.pid] = child
    return {"pid": child.pid}


def _answer(answers: int, said: Mapping[str, str | float]) -> None:
    try:
        os.write(answers, json.dumps(said).encode() + b"\n")
    except BrokenPipeError:
        # Nobody waits for it; the end of the input follows.
        return


if __name__ == "__main__":
    main()
