"""``python -m graph.trace RUN``: what a run did, when, and where the time and the tokens went.

Reads ``trace.jsonl`` of the run directory; of a run without one it tells what ``events.jsonl`` knows, which is every
node with its time, and the tokens of roles and tools. A run may still be at work. Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graph.exits import Exit
from graph.run import Parser
from graph.rundir import RunDir, stored_identity
from graph.runs_found import RUNS, named_run
from graph.settings import SettingsError
from graph.trace_spans import Span, Timeline, timeline, where_time_went

BAR = 24
SHORT = 0.0005
"""Seconds below which a span is not worth a bar."""
COLOURS = {"run": "bold", "node": "cyan", "step": "dim", "model": "magenta", "tool": "green"}


def parser() -> argparse.ArgumentParser:
    flags = Parser(prog="python -m graph.trace", description=__doc__.splitlines()[0])
    flags.add_argument("run", type=Path, metavar="RUN", help="a run directory, or the name of one below runs/")
    flags.add_argument("--stage", type=int, metavar="N", help="this stage alone")
    flags.add_argument("--content", action="store_true", help="prompts and answers too, if the trace holds them")
    flags.add_argument("--json", action="store_true", help="spans and sums as one JSON object")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    try:
        options = parser().parse_args(arguments)
        root = named_run(options.run, RUNS)
        stored_identity(root)
        found = timeline(RunDir(root))
        if options.stage is not None:
            found = of_stage(found, options.stage)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    if options.json:
        print(json.dumps(as_json(found), ensure_ascii=False))
    else:
        tell(found, Console(soft_wrap=True, highlight=False), content=options.content)
    return Exit.DONE


def of_stage(found: Timeline, stage: int) -> Timeline:
    """The spans of one stage and the sessions that they lie in. Raises SettingsError if there are none."""
    inside = [span for span in found.spans if span.stage == stage]
    if not inside:
        known = sorted({span.stage for span in found.spans if span.stage is not None})
        raise SettingsError(f"--stage {stage}: the run has spans of the stages {known}")
    above = {span.parent for span in inside}
    return Timeline(source=found.source, spans=[s for s in found.spans if s.stage == stage or s.id in above])


def as_json(found: Timeline) -> dict[str, Any]:
    return {
        "source": found.source,
        "spans": [span.model_dump(mode="json", exclude_none=True) for span in found.spans],
        "where_time_went": where_time_went(found.spans),
    }


def tell(found: Timeline, console: Console, *, content: bool) -> None:
    """The tree, then the sums."""
    if not found.spans:
        console.print("nothing has happened yet")
        return
    children: dict[str | None, list[Span]] = {}
    ids = {span.id for span in found.spans}
    for span in found.spans:
        children.setdefault(span.parent if span.parent in ids else None, []).append(span)
    longest = max((span.seconds or 0.0 for span in found.spans if span.kind != "run"), default=0.0)

    def walk(span: Span, depth: int, stage: int | None) -> None:
        if span.kind == "node" and span.stage != stage:
            told = "end" if span.stage is None else f"stage {span.stage:03d}"
            console.print(f"{'  ' * depth}[bold]{told}[/]")
        console.print(line(span, depth, longest))
        if content:
            for text in filter(None, (span.input, span.output)):
                console.print(
                    "".join(f"{'  ' * (depth + 2)}[dim]| {escape(row)}[/]\n" for row in text.split("\n")), end=""
                )
        for one in children.get(span.id, []):
            walk(one, depth + 1, stage)
            stage = one.stage if one.kind == "node" else stage

    for root in children.get(None, []):
        walk(root, 0, None)
    console.print()
    console.print(sums(found))
    if found.source == "events.jsonl":
        console.print("from events.jsonl; model calls with their prompts need a run with --trace", style="dim")


def line(span: Span, depth: int, longest: float) -> str:
    """One span: name, seconds, a bar as long as it took, tokens, and how it went wrong."""
    name = span.name if span.kind != "run" else f"{datetime.fromtimestamp(span.started, UTC):%Y-%m-%d %H:%M:%S} UTC"
    took = "no end " if span.seconds is None else f"{span.seconds:.3f} s"
    left = f"{'  ' * depth}{name}"
    seconds = span.seconds or 0.0
    bar = "" if span.kind == "run" or seconds < SHORT else "█" * round(BAR * seconds / longest)
    words = [f"[{COLOURS[span.kind]}]{escape(left):<34}[/] {took:>12} [blue]{bar:<{BAR}}[/]"]
    if span.kind == "model" and span.model:
        words.append(escape(span.model))
    if span.input_tokens is not None:
        words.append(f"{span.input_tokens:,} tokens in,")
    if span.output_tokens is not None:
        words.append(f"{span.output_tokens:,} {'out' if span.input_tokens is not None else 'tokens'}")
    if span.finish_reason not in {None, "stop"}:
        words.append(f"[yellow]{escape(str(span.finish_reason))}[/]")
    if span.error:
        words.append(f"[red]{escape(span.error)}[/]")
    return " ".join(words).rstrip()


def sums(found: Timeline) -> Table:
    table = Table(title="where the time went (own = without the spans inside)", title_justify="left")
    for title in ("", "kind"):
        table.add_column(title)
    for title in ("calls", "seconds", "own", "share", "tokens"):
        table.add_column(title, justify="right")
    rows = where_time_went(found.spans)
    whole = sum(row["own_seconds"] for row in rows) or 1.0
    for row in rows:
        table.add_row(
            "between nodes" if row["kind"] == "run" else row["name"],
            row["kind"],
            str(row["calls"]),
            f"{row['seconds']:.1f}",
            f"{row['own_seconds']:.1f}",
            f"{100 * row['own_seconds'] / whole:.1f} %",
            f"{row['tokens']:,}" if row["tokens"] else "",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
