"""Two runs side by side: what was set differently, and what came of it on the same instances.

Checkpoints are compared instance by instance, and only on a set of which both runs answered the very same instances;
gains over the start are compared only where both began with the same checkpoint.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import Field

from graph import layout
from graph.acceptance import compare, task_scores
from graph.rundir import RunDir, stored_identity
from graph.runs_found import Found, read_run
from graph.settings import AcceptanceSettings, Frozen, SettingsError, differences
from trainer.evaluate import EvaluationError, Rollout, read_rollouts, rollouts_path
from trainer.statistics import PairedChange, paired_bootstrap

SETS = ("anchor", "test", "benchmark")
SEED = 0
"""Of the bootstrap, so that two runs compare the same every time."""


class CellPair(Frozen):
    """One cell of both runs: shares of valid answers, their paired difference with its interval, McNemar and Holm."""

    cell: str
    n: int
    a: float
    b: float
    difference: PairedChange
    only_a: int
    only_b: int
    p_value: float


class SetPair(Frozen):
    """One set: the champions of both runs on the same instances, B minus A; or why they are not compared."""

    name: str
    refused: str | None = None
    valid: PairedChange | None = None
    optimal: PairedChange | None = None
    a: float | None = None
    b: float | None = None
    cells: list[CellPair] = Field(default_factory=list)


class Compared(Frozen):
    """Everything that can be said of two runs together."""

    a: Found
    b: Found
    settings: list[str]
    notes: list[str]
    same_start: bool
    sets: list[SetPair]


def compare_runs(first: Path, second: Path) -> Compared:
    """Compare two run directories.

    Raises
    ------
    SettingsError
        One is no run, they are of different environments, or they have no set in common: nothing of them can be
        compared.
    """
    identities = [stored_identity(root) for root in (first, second)]
    a, b = read_run(first), read_run(second)
    if a.environment != b.environment:
        raise SettingsError(
            f"{first} and {second} cannot be compared: their environments are {a.environment!r} and {b.environment!r}"
        )
    starts = [identity.get("start_sha256") for identity in identities]
    same_start = starts[0] is not None and starts[0] == starts[1]
    notes = [] if same_start else ["the starting checkpoints differ, so the gains of the two runs are not comparable"]
    for one in (a, b):
        if one.state != "done":
            notes.append(f"{one.name} is {one.state} after {len(one.stages)} of {one.planned} stages")
    pairs = [pair for name in SETS if (pair := set_pair(first, second, a, b, name)) is not None]
    if all(pair.refused for pair in pairs):
        why = "; ".join(f"{pair.name}: {pair.refused}" for pair in pairs) or "neither has answered a set yet"
        raise SettingsError(f"{first} and {second} have nothing to compare: {why}")
    return Compared(
        a=a, b=b, settings=differences(identities[0], identities[1]), notes=notes, same_start=same_start, sets=pairs
    )


def set_pair(first: Path, second: Path, a: Found, b: Found, name: str) -> SetPair | None:
    """The champions on one set; None if neither run answered it."""
    places = [champion_rollouts(root, found, name) for root, found in ((first, a), (second, b))]
    there = [place.is_file() for place in places]
    if not any(there):
        return None
    if not all(there):
        return SetPair(name=name, refused=f"the champion of {(a, b)[there.index(False)].name} has not answered it")
    heads = [header(place) for place in places]
    for key, what in (("instances", "instances"), ("style", "prompt styles"), ("samples", "answers an instance")):
        if heads[0].get(key) != heads[1].get(key):
            return SetPair(name=name, refused=f"the {what} differ")
    try:
        rows = [read_rollouts(place) for place in places]
    except EvaluationError as error:
        return SetPair(name=name, refused=str(error))
    return paired(name, *rows)


def champion_rollouts(root: Path, found: Found, name: str) -> Path:
    """Where the answers of a run's champion to a set lie; the starting checkpoint's if no stage was decided."""
    origin = -1 if found.champion is None else found.champion
    return rollouts_path(RunDir(root).path(layout.eval_dir(origin)), name)


def header(path: Path) -> dict[str, Any]:
    """What an evaluation was made of: the hash of its instances among it. Empty if the file is damaged."""
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline()
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def paired(name: str, first: list[Rollout], second: list[Rollout]) -> SetPair:
    """Both evaluations of the same instances, over all and by cell."""
    whole = compare(first, second, AcceptanceSettings(), seed=SEED)
    before, after = task_scores(first), task_scores(second)
    cells = []
    for cell in whole.cells:
        pairs = [(score.valid, after[name].valid) for name, score in before.items() if score.cell == cell.cell]
        old, new = zip(*pairs, strict=True)
        cells.append(
            CellPair(
                cell=cell.cell,
                n=cell.n,
                a=cell.before,
                b=cell.after,
                difference=paired_bootstrap(old, new, [cell.cell] * len(pairs), seed=SEED),
                only_a=cell.lost,
                only_b=cell.gained,
                p_value=cell.p_value,
            )
        )
    cells.sort(key=lambda one: natural(one.cell))
    means = [sum(side) / len(cells) for side in ([c.a for c in cells], [c.b for c in cells])]
    return SetPair(name=name, valid=whole.valid, optimal=whole.optimal, a=means[0], b=means[1], cells=cells)


def natural(name: str) -> list[tuple[int, str]]:
    """A key that puts 9x9 before 10x10, and takes any name."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]
