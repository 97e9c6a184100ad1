"""The command line of a soak, the trainer's and the graph's: how many strikes, by which seed, and where."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from trainer.disturb import TinyDisk

Trials = Callable[[int, int, Path, TinyDisk | None], int]
"""Carries out so many strikes by a seed in a directory, with a disk that can be filled if one could be mounted."""


class SoakError(AssertionError):
    """What was struck did not come through as it should have."""


def soak_command(  # noqa: PLR0917
    module: str, description: str, kills: int, disk_megabytes: int, trials: Trials, arguments: Sequence[str] | None
) -> int:
    """Read the arguments and carry the trials out. ``kills`` is the default. Returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--kills", type=int, default=kills, metavar="N", help=f"trials, one each (default: {kills})")
    parser.add_argument("--seed", type=int, default=0, help="of what strikes, where and when")
    parser.add_argument("--directory", type=Path, help="where the trials run; default: a temporary directory")
    options = parser.parse_args(arguments)
    if options.kills < 1:
        parser.error(f"--kills is {options.kills}, expected 1 or more")
    # A fork's hash seed and threads are its parent's; a worker of its own has these.
    if os.environ.get("PYTHONHASHSEED") != "0" or os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ.update(PYTHONHASHSEED="0", OMP_NUM_THREADS="1")
        flags = ["-P"] if sys.flags.safe_path else []
        own = sys.argv[1:] if arguments is None else arguments
        os.execv(sys.executable, [sys.executable, *flags, "-m", module, *own])
    home = Path(tempfile.mkdtemp(prefix="soak-")) if options.directory is None else options.directory.resolve()
    home.mkdir(parents=True, exist_ok=True)
    disk = TinyDisk.mounted(home / "disk", disk_megabytes)
    try:
        return trials(options.kills, options.seed, home, disk)
    except SoakError as error:
        print(f"{parser.prog}: in {home}: {error}", file=sys.stderr)
        return 1
    finally:
        if disk is not None:
            disk.close()
