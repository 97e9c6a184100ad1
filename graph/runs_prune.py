"""Give back the disk space of finished runs: weights that no pointer needs, and what training kept to be resumed.

Of a run stay its configurations, evaluations, answers, curves and report, and every checkpoint that is still named:
the champion, the one that the run ended with, and those that another run began with. A run that is not done is never
touched.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from envsim.documents import DocumentError, read_yaml
from graph import layout
from graph.lock import holding
from graph.rundir import RUN_FILE, RunDir
from graph.runs_found import Found, read_run
from graph.settings import Frozen
from trainer.attempts import attempts, read_result

Keep = Literal["champion", "pointers", "kept"]


class Doomed(Frozen):
    """One directory that may go."""

    path: str
    what: Literal["weights", "training state", "old attempt"]
    bytes: int


class Pruning(Frozen):
    """What may go of one run; ``refused`` says why it is not touched."""

    name: str
    path: str
    refused: str | None = None
    doomed: list[Doomed] = Field(default_factory=list)

    def bytes(self) -> int:
        return sum(one.bytes for one in self.doomed)


def plan(roots: Sequence[Path], keep: Keep, everywhere: Sequence[Path]) -> list[Pruning]:
    """What may go of the runs in ``roots``; nothing is touched. ``everywhere`` are all runs that may begin with one."""
    needed = starts(everywhere)
    return [plan_of(root, keep, needed) for root in roots]


def plan_of(root: Path, keep: Keep, needed: set[Path]) -> Pruning:
    found = read_run(root)
    if found.state != "done":
        return Pruning(name=found.name, path=str(root), refused=f"the run is {found.state}, not done")
    doomed = [*weights(root, found, keep, needed), *training(root, found)]
    return Pruning(name=found.name, path=str(root), doomed=doomed)


def carry_out(pruning: Pruning) -> int:
    """Delete what was planned, under the run's lock; returns the bytes that are free now.

    Raises SettingsError if a process works on the run, OSError if something cannot be deleted.
    """
    freed = 0
    with holding(Path(pruning.path)):
        for one in pruning.doomed:
            shutil.rmtree(one.path)
            freed += one.bytes
    return freed


def weights(root: Path, found: Found, keep: Keep, needed: set[Path]) -> Iterator[Doomed]:
    """The checkpoints of stages that nothing names."""
    named = {found.champion} | ({found.current} if keep != "champion" else set())
    if keep == "kept":
        named |= {stage.stage for stage in found.stages if stage.accepted}
    for stage in found.stages:
        model = RunDir(root).path(layout.in_stage(stage.stage, "model"))
        if stage.stage not in named and model.resolve() not in needed and _ours(model):
            yield Doomed(path=str(model), what="weights", bytes=size_of(model))


def training(root: Path, found: Found) -> Iterator[Doomed]:
    """Attempts that another one followed, and the checkpoints from which the last one could have gone on."""
    for stage in found.stages:
        place = RunDir(root).path(layout.stage_dir(stage.stage))
        result = read_result(place)
        for attempt in attempts(place):
            if result is not None and attempt.name != f"attempt-{result.attempt}" and _ours(attempt):
                yield Doomed(path=str(attempt), what="old attempt", bytes=size_of(attempt))
            else:
                for state in sorted(attempt.glob("checkpoint-*")):
                    if _ours(state):
                        yield Doomed(path=str(state), what="training state", bytes=size_of(state))


def starts(roots: Sequence[Path]) -> set[Path]:
    """The directories that runs began with."""
    found: set[Path] = set()
    for root in roots:
        try:
            identity = read_yaml(root / RUN_FILE)
            found.add(Path(str(identity["profile"]["model"])).resolve())
        except (DocumentError, KeyError, TypeError):
            continue
    return found


def _ours(path: Path) -> bool:
    """Whether it is a directory of the run itself, and no link to somebody else's."""
    return path.is_dir() and not path.is_symlink()


def size_of(directory: Path) -> int:
    """Bytes of all files in it; links count nothing."""
    return sum(
        entry.lstat().st_size
        for folder, _, files in os.walk(directory)
        for entry in (Path(folder) / name for name in files)
        if not entry.is_symlink()
    )
