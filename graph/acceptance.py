"""Accept a trained stage or roll it back: paired statistics of the anchor set, instance by instance.

Kept if the macro validity did not fall by more than the accepted number of standard errors, and no cell fell
significantly (McNemar's exact test, with several answers a task the sign test; Holm over the cells). The champion is
the best anchor macro validity seen; it moves only on a strictly better score, so its score never falls. A roll-back
returns to the champion. A stage that a tripwire stopped is evaluated, so that the record shows what became of it, and
rolled back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from graph.settings import AcceptanceSettings, Frozen
from graph.state import Pointer
from trainer.evaluate import Rollout
from trainer.spec import Trip
from trainer.statistics import PairedChange, holm, mcnemar, paired_bootstrap


class CellChange(Frozen):
    """One cell before and after: shares, tasks that rose and that fell, adjusted probability of so uneven a split."""

    cell: str
    n: int
    before: float
    after: float
    gained: int
    lost: int
    p_value: float
    fell: bool


class Comparison(Frozen):
    """Two checkpoints on the same set."""

    valid: PairedChange
    optimal: PairedChange
    cells: list[CellChange]


class Judgement(Frozen):
    """Whether the new checkpoint goes on, and where both pointers stand afterwards."""

    accepted: bool
    reason: str
    current: Pointer
    champion: Pointer


class PairingError(ValueError):
    """Two evaluations are of different tasks."""


def compare(
    before: Sequence[Rollout], after: Sequence[Rollout], settings: AcceptanceSettings, *, seed: int
) -> Comparison:
    """Paired comparison of two evaluations of the same set, with as many answers to a task in both.

    Raises PairingError if they are not of the same tasks.
    """
    if Counter(row.id for row in before) != Counter(row.id for row in after):
        raise PairingError(
            f"{len(before)} answers before and {len(after)} after do not pair one to one; "
            "compare two evaluations of the same set with as many answers to a task"
        )
    old, new = task_scores(before), task_scores(after)
    ids = sorted(old)
    cells = [old[name].cell for name in ids]

    def change(what: Callable[[TaskScore], float]) -> PairedChange:
        values = [what(old[i]) for i in ids], [what(new[i]) for i in ids]
        return paired_bootstrap(*values, cells, seed=seed, resamples=settings.resamples)

    return Comparison(
        valid=change(lambda score: score.valid),
        optimal=change(lambda score: score.optimal),
        cells=_cells(old, new, ids, settings.alpha),
    )


class TaskScore(NamedTuple):
    """Of one task the shares of its answers that are valid and optimal."""

    cell: str
    valid: float
    optimal: float


def task_scores(rows: Sequence[Rollout]) -> dict[str, TaskScore]:
    """The score of each task by its id."""
    takes: dict[str, list[Rollout]] = {}
    for row in rows:
        takes.setdefault(row.id, []).append(row)
    return {
        name: TaskScore(
            own[0].cell, sum(row.valid for row in own) / len(own), sum(row.optimal for row in own) / len(own)
        )
        for name, own in takes.items()
    }


def judge(comparison: Comparison, new: Pointer, champion: Pointer, settings: AcceptanceSettings) -> Judgement:
    """The acceptance rule. Both pointers carry their anchor scores."""
    change = comparison.valid
    margin = settings.standard_errors * change.standard_error
    fell = [cell for cell in comparison.cells if cell.fell]
    if fell:
        worst = ", ".join(f"{c.cell} {100 * c.before:.0f} % -> {100 * c.after:.0f} %" for c in fell)
        return _rolled_back(f"significant fall: {worst}", champion)
    if change.delta < -margin:
        loss, bound = 100 * change.delta, 100 * margin
        return _rolled_back(f"anchor changed by {loss:+.1f} points, below the margin of -{bound:.1f}", champion)
    gain = f"anchor changed by {100 * change.delta:+.1f} points, no cell fell significantly"
    return Judgement(
        accepted=True, reason=gain, current=new, champion=new if new["anchor"] > champion["anchor"] else champion
    )


def nothing_learnt(current: Pointer, champion: Pointer) -> Judgement:
    """A stage whose tasks taught nothing: its configuration is not kept, and the run goes on from where it stood."""
    reason = "no learning signal: the answers of every group earned the same, so the weights did not move"
    return Judgement(accepted=False, reason=reason, current=current, champion=champion)


def stopped(trip: Trip, champion: Pointer) -> Judgement:
    """A stage that a tripwire stopped counts as a regression, whatever its checkpoint scores: what the wire told of
    would have gone on with every stage built on it."""
    return _rolled_back(f"stopped by a tripwire: {trip}", champion)


def _rolled_back(reason: str, champion: Pointer) -> Judgement:
    return Judgement(accepted=False, reason=reason, current=champion, champion=champion)


def _cells(
    old: Mapping[str, TaskScore], new: Mapping[str, TaskScore], ids: Sequence[str], alpha: float
) -> list[CellChange]:
    groups: dict[str, list[str]] = {}
    for name in ids:
        groups.setdefault(old[name].cell, []).append(name)
    tests = {
        cell: mcnemar([old[i].valid for i in members], [new[i].valid for i in members])
        for cell, members in groups.items()
    }
    adjusted = holm({cell: test.p_value for cell, test in tests.items()})
    return [
        CellChange(
            cell=cell,
            n=len(members),
            before=sum(old[i].valid for i in members) / len(members),
            after=sum(new[i].valid for i in members) / len(members),
            gained=tests[cell].gained,
            lost=tests[cell].lost,
            p_value=adjusted[cell],
            fell=tests[cell].lost > tests[cell].gained and adjusted[cell] <= alpha,
        )
        for cell, members in groups.items()
    ]
