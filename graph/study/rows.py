"""``rows.jsonl``: one line a finished run, enough for all that is said of the study without the run directories.

Lines are appended whole and flushed to disk under a lock. A line that a crash tore is cut off by the next append: its
run is owed again. Rows of another plan are refused; rows of other machines can be merged. Published rows may be packed
by gzip.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from graph.settings import Frozen, SettingsError
from trainer.files import read_lines
from trainer.spec import explain

PACKED = ".gz"
MOST_SAMPLES = 9
"""Answers an instance: their number is one digit."""
Counts = str
"""One digit an instance, in the order of their ids: how many of its answers are so."""


class CellCounts(Frozen):
    """The answers to a cell's instances."""

    valid: Counts = Field(pattern="^[0-9]+$")
    optimal: Counts = Field(pattern="^[0-9]+$")


What = Literal["valid", "optimal"]


class Answers(Frozen):
    """A checkpoint on a set: one greedy answer an instance, or several sampled ones."""

    instances: str
    """sha256 of the sorted ids: answers pair only where it is the same."""
    samples: int = Field(1, ge=1, le=MOST_SAMPLES)
    cells: dict[str, CellCounts]

    def scores(self, cell: str, what: What) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Of each instance of a cell the share of its answers that are valid, or optimal; shape (instances,)."""
        return np.array([int(digit) for digit in getattr(self.cells[cell], what)]) / self.samples

    def shares(self, what: What) -> dict[str, float]:
        """Of each cell the share of answers that are valid, or optimal."""
        return {cell: float(self.scores(cell, what).mean()) for cell in self.cells}

    @model_validator(mode="after")
    def _within_samples(self) -> Self:
        for name, counts in self.cells.items():
            if len(counts.valid) != len(counts.optimal) or max(counts.valid + counts.optimal) > str(self.samples):
                raise ValueError(f"the counts of {name} do not fit {self.samples} answers an instance")
        return self


def macro_of(answers: Answers, what: What) -> float:
    """Mean over the cells of the share of answers that are valid, or optimal."""
    shares = answers.shares(what).values()
    return sum(shares) / len(shares)


class StageRow(Frozen):
    """One stage of a run: what it was given, what it cost, what came of it."""

    stage: int
    origin: int
    """The stage whose checkpoint it was trained from; -1 = the start."""
    tokens: int
    """Charged up to the end of this stage: training, probes, roles."""
    steps: int
    source: str
    """Who proposed its configuration: initial, a designer, or reused."""
    own: bool
    accepted: bool
    shares: dict[str, float]
    knobs: dict[str, float]
    kept_valid: float
    """Macro validity of the anchor set of the checkpoint that the run goes on with."""
    kept_optimal: float
    anchor: Answers
    """Of the checkpoint that this stage made, kept or not."""


class Row(Frozen):
    """One run."""

    schema_version: Literal[1] = 1
    plan: str
    code: str
    arm: str
    seed: int
    start: str
    """sha256 of the starting checkpoint."""
    tokens: dict[str, int]
    seconds: float
    cpu_seconds: float
    role_fallbacks: int
    champion: int
    start_anchor: Answers
    stages: list[StageRow] = Field(min_length=1)
    before: dict[str, Answers]
    """The starting checkpoint by sealed set: test and, if they were asked for, test_sampled and benchmark_3, _4, _5."""
    after: dict[str, Answers]

    @property
    def key(self) -> tuple[str, int]:
        return self.arm, self.seed

    @property
    def charged(self) -> int:
        """Tokens that count against the budget."""
        return self.stages[-1].tokens


def read_rows(path: Path, plan: str) -> list[Row]:
    """The whole rows of a file; none if there is no file.

    Raises
    ------
    SettingsError
        A line is no row, belongs to another plan, or stands there twice with different results.
    """
    if not path.exists():
        return []
    rows: dict[tuple[str, int], Row] = {}
    try:
        lines = _unpacked(path) if path.suffix == PACKED else read_lines(path)
    except (OSError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            row = Row.model_validate_json(line)
        except ValidationError as error:
            raise SettingsError(f"{path}, line {number} is no row of a study: {explain(error)[:200]}") from error
        if row.plan != plan:
            raise SettingsError(
                f"{path}, line {number}: arm {row.arm}, seed {row.seed} belongs to the plan {row.plan[:16]}, not to "
                f"{plan[:16]}; keep the studies of two plans in two directories"
            )
        if _results(rows.setdefault(row.key, row)) != _results(row):
            raise SettingsError(
                f"{path}, line {number}: arm {row.arm}, seed {row.seed} stands there twice with different results; "
                "remove one of the two"
            )
    return list(rows.values())


def _unpacked(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")[:-1]


def _results(row: Row) -> dict[str, object]:
    """What two runs of the same arm and seed must agree in."""
    return row.model_dump(exclude={"seconds", "cpu_seconds"})


def append_row(path: Path, row: Row) -> None:
    """Add a row. After a power cut it is there whole or not at all."""
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        whole = _end_of_last_line(path)
        file.truncate(whole)
        file.write(row.model_dump_json().encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _end_of_last_line(path: Path) -> int:
    return path.read_bytes().rfind(b"\n") + 1


def merge(path: Path, others: Iterable[Path], plan: str) -> int:
    """Add the rows of other machines that are not there yet; returns how many. Raises SettingsError as `read_rows`."""
    known = {row.key: row for row in read_rows(path, plan)}
    new: dict[tuple[str, int], Row] = {}
    for other in others:
        if not other.is_file():
            raise SettingsError(f"--merge {other} is no file; expected the rows.jsonl of another machine")
        for row in read_rows(other, plan):
            mine = known.get(row.key) or new.setdefault(row.key, row)
            if _results(mine) != _results(row):
                raise SettingsError(
                    f"{other}: arm {row.arm}, seed {row.seed} has other results than the row that is there; "
                    "the same run gives the same numbers on one kind of machine: keep one of the two"
                )
    for row in new.values():
        append_row(path, row)
    return len(new)


def one_start(rows: Sequence[Row]) -> None:
    """All runs of a study start from the same checkpoint. Raises SettingsError."""
    starts = {row.start: row for row in rows}
    if len(starts) > 1:
        first, second, *_ = starts.values()
        raise SettingsError(
            f"{first.arm}, seed {first.seed} starts from the checkpoint {first.start[:12]} and {second.arm}, seed "
            f"{second.seed} from {second.start[:12]}; arms are compared from one start only"
        )
