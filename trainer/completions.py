"""What a stage's policy answered while it trained, as Parquet files of some steps each, bounded in size.

``<stage>/completions/steps-00001-00020.parquet`` has a row a completion: step, prompt, completion, instance_id, cell,
outcome, reward, one column for each reward function before its weight, advantage. A file ends with every checkpoint, so
a resumed attempt, which begins at one, drops the files beyond it and writes those steps anew: every step is there once,
as it went last. Where a stage would take more than its bound the first and the newest file stay, and of those between
every second goes, again and again: the newer, the denser.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

FOLDER = "completions"
COLUMNS = ("step", "prompt", "completion", "instance_id", "cell", "outcome", "reward", "advantage")
"""In every file; others are the reward functions'."""
_PATTERN = "steps-*.parquet"
_PATIENCE = 20.0
"""Seconds after which steps are written although no checkpoint is due, for whoever looks on."""


class CompletionsError(ValueError):
    """There are no completions to read, or a file of them is damaged."""


class Keeper:
    """Writes the completions of a stage, at most ``max_mib`` and never less than two files; 0 keeps none."""

    def __init__(self, stage: Path, max_mib: float) -> None:
        self._stage = stage
        self._bound = max_mib * 2**20
        self._waiting: list[Any] = []
        self._first = self._last = 0
        self._written = time.monotonic()

    def begin(self, step: int) -> None:
        """Training goes on after this step: what another attempt wrote beyond it is removed."""
        for path in files(self._stage):
            if _span(path)[1] > step:
                path.unlink()

    def keep(self, step: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Take a step's completions, columns of equal length."""
        if self._bound <= 0:
            return
        if not self._waiting:
            self._first = step
        self._last = step
        # Of one type in every file, even where all values of a step are missing.
        self._waiting.append(
            pa.table(
                {
                    "step": pa.array([step] * len(columns["prompt"]), pa.int32()),
                    **{name: pa.array(values, _type(name)) for name, values in columns.items()},
                }
            )
        )
        if time.monotonic() - self._written > _PATIENCE:
            self.flush()

    def flush(self) -> None:
        """Write what was taken. A file appears whole; a power cut may tear it, which its reader says."""
        if not self._waiting:
            return
        target = self._stage / FOLDER / f"steps-{self._first:05d}-{self._last:05d}.parquet"
        target.parent.mkdir(exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        pq.write_table(pa.concat_tables(self._waiting), temporary, compression="zstd")
        temporary.replace(target)
        self._waiting.clear()
        self._written = time.monotonic()
        self._thin()

    def _thin(self) -> None:
        sizes = {path: path.stat().st_size for path in files(self._stage)}
        while sum(sizes.values()) > self._bound and len(sizes) > 2:
            for path in list(sizes)[1:-1][::-2]:
                path.unlink()
                del sizes[path]


def _type(column: str) -> Any:
    return pa.string() if column in ("prompt", "completion", "instance_id", "cell", "outcome") else pa.float64()


def files(stage: Path) -> list[Path]:
    """The files of a stage in the order of their steps."""
    return sorted((stage / FOLDER).glob(_PATTERN), key=_span)


def stages_with_completions(directory: Path) -> list[Path]:
    """The stage that a directory is, or all stages below it. Raises CompletionsError if there is none."""
    found = sorted({path.parent.parent for path in directory.rglob(f"{FOLDER}/{_PATTERN}")})
    if not found:
        raise CompletionsError(
            f"{directory} holds no {FOLDER}/{_PATTERN}; expected a stage or a run that was trained with "
            "completions_mib above 0"
        )
    return found


def read_completions(paths: Iterable[Path], columns: Sequence[str] | None = None) -> Any:
    """One Arrow table of several files, of all columns or of these. Raises CompletionsError naming a file that is
    damaged."""
    read = []
    for path in paths:
        try:
            read.append(pq.read_table(path, columns=None if columns is None else list(columns)))
        except (pa.ArrowException, OSError) as error:
            raise CompletionsError(
                f"{path} is no whole Parquet file: {' '.join(str(error).split())}; remove it to read the others"
            ) from error
    return pa.concat_tables(read, promote_options="default")


def _span(path: Path) -> tuple[int, int]:
    first, last = path.stem.removeprefix("steps-").split("-")
    return int(first), int(last)
