"""The closing tables of a run, for the terminal: stages, the sealed sets, where the time and the tokens went."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from graph import words
from graph.timing import TITLES


def stage_table(stages: list[dict[str, Any]]) -> Table:
    """The anchor before and after every stage, and the decision."""
    table = Table(title="stages (anchor, greedy, mean over cells)", title_justify="left")
    for title in ("stage", "design", "valid", "change, 95 %", "optimal", "decision"):
        table.add_column(title, no_wrap=True)
    for stage in stages:
        decision, plan = stage["decision"], stage["plan"]
        change = decision["valid"]
        table.add_row(
            f"{stage['stage']:03d}",
            plan["source"],
            _move(decision, "macro_valid"),
            f"{words.signed(change['low'])} to {words.signed(change['high'])}",
            _move(decision, "macro_optimal"),
            "[green]kept" if decision["accepted"] else "[red]rolled back",
        )
    return table


def stage_notes(stages: list[dict[str, Any]]) -> list[str]:
    """What changed in each stage's configuration, and why."""
    plans = [(stage["stage"], stage["plan"]) for stage in stages]
    return [
        f"{number:03d} {', '.join(plan['changes']) or 'no change'}: {words.clipped(plan['reason'])}"
        for number, plan in plans
    ]


def result_table(result: dict[str, Any]) -> Table:
    """Every sealed set before and after the run."""
    table = Table(title="sealed sets, start and champion", title_justify="left")
    for title in ("set", "score", "before", "after", "change", "95 % interval"):
        table.add_column(title)
    for name, found in result["sets"].items():
        for score in ("valid", "optimal"):
            change = found[score]
            table.add_row(
                name,
                score,
                words.percent(found["before"][f"macro_{score}"]),
                words.percent(found["after"][f"macro_{score}"]),
                words.signed(change["delta"]),
                f"{words.signed(change['low'])} to {words.signed(change['high'])}",
            )
    return table


def time_table(seconds: dict[str, float], tokens: dict[str, int], read: int) -> Table:
    """Seconds and shares by category, then generated tokens by purpose, and what roles ``read`` beside what they
    wrote."""
    table = Table(title="where the time and the tokens went", title_justify="left")
    table.add_column("")
    table.add_column("seconds", justify="right")
    table.add_column("share", justify="right")
    whole = sum(seconds.values()) or 1.0
    for name, title in TITLES.items():
        table.add_row(title, f"{seconds[name]:.1f}", words.percent(seconds[name] / whole))
    table.add_row("total", f"{sum(seconds.values()):.1f}", "", end_section=True)
    for purpose, n in tokens.items():
        table.add_row(f"tokens generated: {purpose}", f"{n:,}", "")
    table.add_row("tokens read: roles", f"{read:,}", "")
    return table


def _move(decision: dict[str, Any], score: str) -> str:
    return f"{100 * decision['before'][score]:.1f} -> {100 * decision['after'][score]:.1f}"
