"""What befalls a stage: signals to its processes, a full disk, torn and changed files. Real ones, by real means."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
from pathlib import Path

from trainer.attempts import RESULT, attempts, live_worker
from trainer.metrics import METRICS
from trainer.outcomes import Outcome

_BLOCK = 1 << 16
_SMALL_FILE = 1 << 12
_WRONG_SHAPE = ("", "{", "[]", '{"schema_version": 1}', "null")
_BY_NAME = ("result.json", "spec.json", "attempt.json", "worker.json", "heartbeat.json", "outcome.json", "COMPLETE")

KINDS: dict[str, frozenset[Outcome]] = {
    "kill worker": frozenset({"killed"}),
    "kill supervisor": frozenset(),
    "kill both": frozenset({"lost", "killed"}),
    "terminate worker": frozenset({"terminated"}),
    "terminate supervisor": frozenset({"terminated", "lost"}),
    "stop worker": frozenset({"stale_heartbeat"}),
    "full disk": frozenset({"disk_full", "lost"}),
    "file limit": frozenset({"disk_full"}),
    "damage": frozenset({"lost", "killed"}),
}
"""Every kind of disturbance, and the outcomes that an attempt may end with because of it. ``lost``: nobody lived, or
had the room, to write down another one."""


OF_WORKER = frozenset({"kill worker", "terminate worker", "stop worker", "file limit"})
"""Those that hit nothing while there is no worker."""


def worker_of(stage: Path) -> int | None:
    """Process id of the worker that a stage has now."""
    return next((pid for attempt in reversed(attempts(stage)) if (pid := live_worker(attempt)) is not None), None)


def send(pid: int | None, sign: int) -> None:
    """A signal to a process that may be gone."""
    if pid is None:
        return
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return


def limit_files(pid: int | None) -> None:
    """From now on a process cannot make a file longer than some KiB: writing fails with EFBIG."""
    if pid is None:
        return
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_SMALL_FILE, hard))
    except ProcessLookupError:
        return


class TinyDisk:
    """A file system of some megabytes that can be filled to the last byte, and emptied."""

    def __init__(self, directory: Path, megabytes: int) -> None:
        self._directory = directory
        self._filler = directory / "filler"
        directory.mkdir(parents=True, exist_ok=True)
        options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)]
        subprocess.run(["mount", *options], check=True, capture_output=True, text=True)

    @classmethod
    def mounted(cls, directory: Path, megabytes: int) -> TinyDisk | None:
        """None where this user may not mount one."""
        try:
            return cls(directory, megabytes)
        except (FileNotFoundError, subprocess.CalledProcessError):
            return None

    def fill(self) -> None:
        """Take all room that there is now."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while file.write(bytes(_BLOCK)) == _BLOCK:
                    pass
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._directory)], check=True, capture_output=True, text=True)


def damage(stage: Path, rng: random.Random) -> str:
    """Tear, remove or change one or two files of a stage whose processes are dead; says what was done."""
    done = []
    finished = (stage / RESULT).exists()
    for _ in range(rng.choice((1, 1, 2))):
        files = sorted(
            path for path in stage.rglob("*") if path.is_file() and _is_fair(path.relative_to(stage), finished)
        )
        if not files:
            break
        # Few are large: a checkpoint's files are drawn as often as all others together.
        large = [path for path in files if path.parent.name.startswith("checkpoint-")]
        path = rng.choice(large if large and rng.random() < 0.6 else files)
        what = rng.choice((_truncate, _remove, _change, _reshape))
        what(path, rng)
        done.append(f"{what.__name__.strip('_')} {path.relative_to(stage)}")
    return ", ".join(done) or "nothing was there"


def _is_fair(path: Path, finished: bool) -> bool:
    """The lock and the log say nothing. Of a finished stage, model and metrics have no second copy: the loss of the one
    is told of and not mended, and the other was read when the result was written."""
    if path.parts[0] == "model" or path.suffix in {".lock", ".log"}:
        return False
    return not (finished and path.name == METRICS)


def _truncate(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size + 1))


def _remove(path: Path, _: random.Random) -> None:
    path.unlink()


def _change(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _reshape(path: Path, rng: random.Random) -> None:
    """Valid JSON of another shape, where JSON is expected; else as `_truncate`."""
    if path.name in _BY_NAME:
        path.write_text(rng.choice(_WRONG_SHAPE))
    else:
        _truncate(path, rng)


def strike(kind: str, supervisor: int, stage: Path) -> None:
    """A disturbance by signal or limit, to whichever of the two processes live."""
    worker = worker_of(stage)
    if kind in {"kill supervisor", "kill both", "damage"}:
        send(supervisor, signal.SIGKILL)
    if kind in {"kill worker", "kill both", "damage"}:
        # The supervisor may have started another one in between.
        send(worker, signal.SIGKILL)
        if kind != "kill worker":
            send(worker_of(stage), signal.SIGKILL)
    if kind == "terminate supervisor":
        send(supervisor, signal.SIGTERM)
    if kind == "terminate worker":
        send(worker, signal.SIGTERM)
    if kind == "stop worker":
        send(worker, signal.SIGSTOP)
    if kind == "file limit":
        limit_files(worker)
