"""One tidy table of a study: a line for every checkpoint of every run, on every set, by number of agents and cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from graph.study.rows import Answers, Row

SCHEMA = pa.schema(
    [
        pa.field(name, kind)
        for name, kind in (
            ("plan", pa.string()),
            ("code", pa.string()),
            ("arm", pa.string()),
            ("seed", pa.int64()),
            ("checkpoint", pa.string()),
            ("stage", pa.int64()),
            ("tokens", pa.int64()),
            ("set", pa.string()),
            ("cell", pa.string()),
            ("n", pa.int64()),
            ("valid", pa.float64()),
            ("optimal", pa.float64()),
            ("source", pa.string()),
            ("accepted", pa.bool_()),
            ("share_of_data", pa.float64()),
        )
    ]
)
"""``checkpoint``: start, stage (as trained, kept or not) or champion; ``stage`` is -1 for the start; ``tokens`` are
charged up to it; ``source``, ``accepted`` and ``share_of_data`` are of a stage alone."""


def write_tables(rows: Sequence[Row], directory: Path) -> tuple[Path, Path]:
    """``table.parquet`` and ``table.csv``."""
    found = pa.Table.from_pylist([line for row in rows for line in lines(row)], schema=SCHEMA)
    parquet, text = directory / "table.parquet", directory / "table.csv"
    pq.write_table(found, parquet)
    pc.write_csv(found, text)
    return parquet, text


def lines(row: Row) -> Iterator[dict[str, object]]:
    """All lines of a run."""
    run = {"plan": row.plan, "code": row.code, "arm": row.arm, "seed": row.seed}
    start = {"checkpoint": "start", "stage": -1, "tokens": 0}
    yield from _of_set({**run, **start}, "anchor", row.start_anchor)
    for name, answers in row.before.items():
        yield from _of_set({**run, **start}, name, answers)
    for stage in row.stages:
        at = {"checkpoint": "stage", "stage": stage.stage, "tokens": stage.tokens}
        own = {"source": stage.source, "accepted": stage.accepted}
        for line in _of_set({**run, **at, **own}, "anchor", stage.anchor):
            yield {**line, "share_of_data": stage.shares.get(str(line["cell"]))}
    for name, answers in row.after.items():
        champion = {"checkpoint": "champion", "stage": row.champion, "tokens": row.charged}
        yield from _of_set({**run, **champion}, name, answers)


def _of_set(where: dict[str, object], name: str, answers: Answers) -> Iterator[dict[str, object]]:
    valid, optimal = answers.shares("valid"), answers.shares("optimal")
    for cell, counts in answers.cells.items():
        shares = {"n": len(counts.valid), "valid": valid[cell], "optimal": optimal[cell]}
        yield {**where, "set": name, "cell": cell, **shares}
