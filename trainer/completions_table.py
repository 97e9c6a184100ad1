"""`python -m trainer completions DIR`: what a policy answered while it trained, by outcome, worst and best."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trainer.completions import CompletionsError, files, read_completions, stages_with_completions

FIGURES_WIDTH = 70
"""What the columns of figures and the frame take."""
MIN_WIDTH = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="a stage's directory, or a run's: then every stage")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="answers in each of the tables (default 5)")
    parser.add_argument("--outcome", help="only answers with this outcome")
    parser.add_argument("--cell", help="only answers to tasks of this cell")
    parser.add_argument("--full", action="store_true", help="whole prompts and answers instead of their beginnings")


def show(options: argparse.Namespace) -> None:
    """Print the tables. Raises CompletionsError for a directory or a choice without completions."""
    if options.show < 1:
        raise CompletionsError(f"--show is {options.show}, expected 1 or more")
    console = Console()
    for stage in stages_with_completions(options.directory):
        rows = _chosen(read_completions(files(stage)), options, stage)
        steps = sorted(set(rows["step"].to_pylist()))
        console.print(
            f"{stage}: {rows.num_rows} answers of {len(steps)} steps, {steps[0]} to {steps[-1]}",
            style="bold",
            highlight=False,
            soft_wrap=True,
        )
        console.print(_outcomes(rows))
        # Of answers that earned the same the latest tell most of what the policy is now.
        for title, order in (("worst", "ascending"), ("best", "descending")):
            sorted_rows = rows.sort_by([("reward", order), ("step", "descending")])
            width = None if options.full else max(MIN_WIDTH, (console.width - FIGURES_WIDTH) // 2)
            console.print(_answers(f"{title} by reward", _some(sorted_rows, options.show), width=width))


def _chosen(rows: Any, options: argparse.Namespace, stage: Path) -> Any:
    for column in ("outcome", "cell"):
        wanted = getattr(options, column)
        if wanted is None:
            continue
        known = sorted(set(rows[column].to_pylist()))
        if wanted not in known:
            raise CompletionsError(f"{stage}: --{column} {wanted!r} has no answers, expected one of {', '.join(known)}")
        rows = rows.filter(pc.equal(rows[column], wanted))
    return rows


def _some(rows: Any, n: int) -> Iterator[dict[str, Any]]:
    """The first n rows with different tasks: a group's answers are often the same."""
    seen: set[str] = set()
    for row in (row for batch in rows.to_batches(max_chunksize=1024) for row in batch.to_pylist()):
        if row["instance_id"] not in seen and len(seen) < n:
            seen.add(row["instance_id"])
            yield row
        if len(seen) == n:
            return


def _outcomes(rows: Any) -> Table:
    table = Table("outcome", "answers", "share", "mean reward", "first seen", "last seen")
    counted = rows.group_by("outcome").aggregate(
        [("reward", "count"), ("reward", "mean"), ("step", "min"), ("step", "max")]
    )
    for row in counted.sort_by([("reward_count", "descending"), ("outcome", "ascending")]).to_pylist():
        share = row["reward_count"] / rows.num_rows
        steps = (f"step {row['step_min']}", f"step {row['step_max']}")
        table.add_row(row["outcome"], str(row["reward_count"]), f"{share:.1%}", f"{row['reward_mean']:.3f}", *steps)
    return table


def _answers(title: str, rows: Iterator[dict[str, Any]], *, width: int | None) -> Table:
    """``width`` is what a prompt and an answer may take; None shows them whole, with their line ends."""
    table = Table(title=title, title_justify="left", show_lines=width is None)
    for figure in ("step", "cell", "outcome", "reward", "advantage"):
        table.add_column(figure, no_wrap=True)
    for text in ("prompt", "answer"):
        table.add_column(text, overflow="fold")
    for row in rows:
        # As text, not markup: an answer may hold brackets that the table would take for its own.
        texts = [Text(text if width is None else _cut(text, width)) for text in (row["prompt"], row["completion"])]
        figures = (f"{row['reward']:.2f}", f"{row['advantage']:+.2f}")
        table.add_row(str(row["step"]), row["cell"], row["outcome"], *figures, *texts)
    return table


def _cut(text: str, width: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "\u2026"
