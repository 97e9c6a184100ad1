"""The command line of a soak, the trainer's and the graph's: how many strikes, by which seed, and where."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from trainer.disturb import TinyDisk, send, worker_of
from trainer.files import DirectoryError, make_directory

MARK = "soak.txt"
"""The file by which a soak that can go on knows its directory again; it names the module."""

Trials = Callable[[int, int, Path, TinyDisk | None], int]
"""Carries out so many strikes by a seed in a directory, with a disk that can be filled if one could be mounted."""


class SoakError(AssertionError):
    """What was struck did not come through as it should have."""


class Stop(BaseException):
    """SIGTERM or Ctrl-C; no trial takes it for a failure of its own."""

    def __init__(self, sign: int) -> None:
        super().__init__(sign)
        self.sign = signal.Signals(sign)


def soak_command(  # noqa: PLR0917
    module: str,
    description: str,
    kills: int,
    disk_megabytes: int,
    trials: Trials,
    arguments: Sequence[str] | None,
    *,
    goes_on: bool,
) -> int:
    """Read the arguments and carry the trials out. ``kills`` is the default. Returns the exit code.

    Only a soak that ``goes_on`` after its last trial may be given a directory that it has used before. SIGTERM and
    Ctrl-C end the trial with all of its processes, and the command with 128 and the signal's number.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--kills", type=int, default=kills, metavar="N", help=f"trials, one each (default: {kills})")
    parser.add_argument("--seed", type=int, default=0, help="of what strikes, where and when")
    parser.add_argument("--directory", type=Path, help="where the trials run; default: a temporary directory")
    options = parser.parse_args(arguments)
    if options.kills < 1:
        parser.error(f"--kills is {options.kills}, expected 1 or more")
    home = None if options.directory is None else options.directory.resolve()
    if home is not None:
        try:
            _take(home, module, goes_on=goes_on)
        except DirectoryError as error:
            parser.exit(2, f"{parser.prog}: {error}\n")
    # A fork's hash seed and threads are its parent's; a worker of its own has these.
    if os.environ.get("PYTHONHASHSEED") != "0" or os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ.update(PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
        flags = ["-P"] if sys.flags.safe_path else []
        own = sys.argv[1:] if arguments is None else arguments
        os.execv(sys.executable, [sys.executable, *flags, "-m", module, *own])
    home = home or Path(tempfile.mkdtemp(prefix="soak-"))
    if goes_on:
        (home / MARK).write_text(f"{module}\n", encoding="utf-8")
    with _stopped_by_signals():
        disk = None
        try:
            disk = TinyDisk.mounted(home / "disk", disk_megabytes)
            return trials(options.kills, options.seed, home, disk)
        except SoakError as error:
            print(f"{parser.prog}: in {home}: {error}", file=sys.stderr)
            return 1
        except Stop as stop:
            end_trial(home)
            again = f"; the same command with --directory {home} goes on" if goes_on else ""
            print(f"{parser.prog}: stopped by {stop.sign.name}{again}", file=sys.stderr)
            return 128 + stop.sign
        finally:
            if disk is not None:
                disk.close()


def _take(home: Path, module: str, *, goes_on: bool) -> None:
    """Make sure of a directory that is empty, or holds what this soak left. Raises DirectoryError."""
    make_directory(home)
    if not any(home.iterdir()):
        return
    try:
        whose = (home / MARK).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        whose = ""
    if not (goes_on and whose == module):
        own = f" and is not of an earlier {module}" if goes_on else ""
        raise DirectoryError(f"--directory {home} is not empty{own}; name an empty or new one")


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """The first SIGTERM or SIGINT raises Stop, and nothing disturbs what it leads to."""
    signs = (signal.SIGTERM, signal.SIGINT)

    def stop(sign: int, _: object) -> None:
        for one in signs:
            signal.signal(one, signal.SIG_IGN)
        raise Stop(sign)

    before = {sign: signal.signal(sign, stop) for sign in signs}
    try:
        yield
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def end_trial(home: Path) -> None:
    """Kill what a trial started: the processes below this one, and workers that outlived their supervisor."""
    for process in _held(psutil.Process()):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for stage in {attempt.parent for attempt in home.rglob("attempt-*")}:
        send(worker_of(stage), signal.SIGKILL)


def _held(parent: Any) -> list[Any]:
    """All processes below one, stopped: each before it is looked at, so that it starts no other after that."""
    held = []
    for child in parent.children():
        with suppress(psutil.NoSuchProcess):
            child.suspend()
            held += [child, *_held(child)]
    return held
