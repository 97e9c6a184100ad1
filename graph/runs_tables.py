"""What ``python -m graph.runs`` prints: tables and lines for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from graph import layout, words
from graph.lock import STUDIO
from graph.report_story import moment
from graph.runs_compare import Compared, SetPair
from graph.runs_found import Change, Found, StageLine
from graph.runs_prune import Pruning
from trainer.statistics import PairedChange

GOES_ON = frozenset({"waiting", "crashed", "drained", "failed"})
"""States from which a person lets a run go on."""
COLOURS = {"done": "green", "running": "cyan", "waiting": "yellow", "failed": "red", "crashed": "red"}


def listing(found: Sequence[Found]) -> Table:
    """One line a run."""
    table = plain("runs; valid answers in %, mean over cells, before -> after")
    for title in ("run", "state", "stages", "designer", "seed", "anchor", "test", "tokens", "time"):
        table.add_column(
            title, no_wrap=True, justify="right" if title in {"stages", "seed", "tokens", "time"} else "left"
        )
    for one in found:
        table.add_row(
            one.name,
            coloured(one.state),
            f"{len(one.stages)}/{one.planned}",
            one.designer,
            str(one.seed),
            move(one.anchor),
            move(one.test),
            f"{one.tokens:,}",
            words.seconds(one.seconds),
        )
    return table


def facts(found: Found) -> Iterator[str]:
    """One run in lines."""
    yield f"{found.path}: {found.state}{f' ({found.why})' if found.why else ''}"
    yield f"  {found.environment}, profile {found.profile}, designer {found.designer}, seed {found.seed}"
    began = "" if found.began is None else f"began {moment(found.began)} UTC, "
    yield f"  {began}{words.seconds(found.seconds)} of work, {found.tokens:,} generated tokens"
    if found.champion is not None:
        made = "the starting checkpoint" if found.champion < 0 else f"{layout.in_stage(found.champion, 'model')}"
        yield f"  champion: {made}"
    if found.test is not None:
        yield f"  sealed test: {move(found.test)} % valid, change {interval(found.test)}"


def how_to_go_on(found: Found) -> Iterator[str]:
    """What a person does next with a run that is not done, and with what has it open."""
    again = f"python -m graph.run --resume --run-dir {shlex.quote(found.path)}"
    first = ""
    if found.holder is not None:
        yield f"open in another process ({found.holder.told()})"
        first = "once that has ended, " if found.state in GOES_ON else ""
    if found.holder is not None and found.holder.what == STUDIO and found.state in GOES_ON:
        yield "there: " + (
            "answer in its thread" if found.state == "waiting" else "submit an empty form in its thread to go on"
        )
    if found.state == "waiting":
        yield f"{first}answer with: {again} --approve (or --reject, or --approve FILE)"
    elif found.state in GOES_ON:
        yield f"{first}go on with: {again}"


def stages(found: Sequence[StageLine]) -> Table:
    """One line a decided stage."""
    table = plain("stages; anchor, %")
    for title in ("stage", "design", "valid", "change, 95 %", "optimal", "steps", "tokens", "decision"):
        table.add_column(title, no_wrap=True)
    for one in found:
        table.add_row(
            f"{one.stage:03d}",
            one.source,
            move(one.valid),
            interval(one.valid),
            move(one.optimal),
            str(one.steps),
            f"{one.tokens:,}",
            "[green]kept" if one.accepted else "[red]rolled back",
        )
    return table


def tell_comparison(found: Compared, console: Console) -> None:
    """Two runs: what differs, then the curves, then the same instances."""
    console.print(f"A = {found.a.path}\nB = {found.b.path}", markup=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)
    console.print("what was set differently:" if found.settings else "both were set the same", style="bold")
    for line in found.settings:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    console.print(curves(found))
    for pair in found.sets:
        if pair.refused is not None:
            console.print(
                f"{pair.name} set: not compared, {pair.refused}", style="yellow", markup=False, soft_wrap=True
            )
        else:
            console.print(cells(pair))


def curves(found: Compared) -> Table:
    """Anchor validity by stage; gains over the start only where both had the same one."""
    table = plain("anchor after each stage, % valid (in brackets: rolled back)")
    for title in ("stage", "A", "B", "A tokens", "B tokens"):
        table.add_column(title, no_wrap=True, justify="left" if title == "stage" else "right")
    table.add_row("start", *(points(run.anchor.before if run.anchor else None) for run in (found.a, found.b)), "", "")
    sums = [0, 0]
    for number, pair in enumerate(zip_longest(found.a.stages, found.b.stages)):
        sums = [total + (stage.tokens if stage else 0) for total, stage in zip(sums, pair, strict=True)]
        shown = [
            "" if stage is None else points(stage.valid.after) if stage.accepted else f"({points(stage.valid.after)})"
            for stage in pair
        ]
        tokens = ["" if stage is None else f"{total:,}" for total, stage in zip(sums, pair, strict=True)]
        table.add_row(f"{number:03d}", *shown, *tokens)
    if found.same_start:
        gains = [run.anchor.after - run.anchor.before if run.anchor else None for run in (found.a, found.b)]
        table.add_section()
        table.add_row("gain", *("" if gain is None else words.signed(gain) for gain in gains), "", "")
    return table


def cells(pair: SetPair) -> Table:
    """The champions on one set, by cell."""
    table = plain(f"{pair.name} set, champions on the same instances, % valid")
    for title in ("cell", "n", "A", "B", "B - A, 95 %", "only A", "only B", "p (Holm)"):
        table.add_column(title, no_wrap=True, justify="left" if title == "cell" else "right")
    for one in pair.cells:
        table.add_row(
            one.cell,
            str(one.n),
            points(one.a),
            points(one.b),
            paired(one.difference),
            str(one.only_a),
            str(one.only_b),
            f"{one.p_value:.3g}",
        )
    if pair.valid is not None and pair.optimal is not None:
        table.add_section()
        table.add_row("mean", str(pair.valid.n), points(pair.a), points(pair.b), paired(pair.valid), "", "", "")
        table.add_row("optimal", str(pair.optimal.n), "", "", paired(pair.optimal), "", "", "")
    return table


def tell_pruning(plans: Sequence[Pruning], console: Console, *, freed: int | None) -> None:
    """What may go, run by run, and how large it is; ``freed`` is None as long as nothing was deleted."""
    for one in plans:
        if one.refused is not None:
            console.print(f"{one.path}: not touched, {one.refused}", style="yellow", markup=False, soft_wrap=True)
            continue
        console.print(f"{one.path}: {size(one.bytes())}", markup=False, soft_wrap=True)
        for doomed in one.doomed:
            inside = doomed.path.removeprefix(f"{one.path}/")
            console.print(f"  {doomed.what:<15} {size(doomed.bytes):>10}  {inside}", markup=False, soft_wrap=True)
    total = sum(one.bytes() for one in plans)
    if freed is None:
        console.print(f"{size(total)} could be given back; nothing was deleted, add --delete", markup=False)
    else:
        console.print(f"{size(freed)} given back", markup=False)


def plain(title: str) -> Table:
    """A table that takes no more room than it needs; its title may be longer."""
    return Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE, pad_edge=False, min_width=len(title)
    )


def size(n: int) -> str:
    return f"{n / 2**20:,.1f} MiB ({n:,} bytes)"


def coloured(state: str) -> str:
    colour = COLOURS.get(state)
    return f"[{colour}]{state}" if colour else state


def points(value: float | None) -> str:
    return "" if value is None else words.points(value)


def move(change: Change | None) -> str:
    return "" if change is None else f"{words.points(change.before)} -> {words.points(change.after)}"


def interval(change: Change) -> str:
    if change.low is None or change.high is None:
        return words.signed(change.after - change.before)
    return f"{words.signed(change.after - change.before)} ({words.signed(change.low)} to {words.signed(change.high)})"


def paired(change: PairedChange) -> str:
    return f"{words.signed(change.delta)} ({words.signed(change.low)} to {words.signed(change.high)})"
