"""Failures in clusters that a person can check by eye: the same outcome, and a first fault at the same time.

Of a cluster two are shown. The typical one comes from the cell where most of the cluster lies, with its fault at the
median step there; the odd one from the cell and place where the fewest lie. The largest clusters come first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Literal

from agents.schemas import FailureCluster, FailureExample
from trainer.evaluate import Rollout

Phase = Literal["form", "start", "early", "late"]
START, EARLY = 1, 4
"""Last step of a first fault that comes at the start, and early; any later one is late."""
CLUSTERS = 6
"""Clusters that are told."""


def phase(row: Rollout) -> Phase:
    """When a failure's first fault comes; ``form`` if it has no step, as where the answer is no plan."""
    step = fault_step(row)
    if step is None:
        return "form"
    return "start" if step <= START else "early" if step <= EARLY else "late"


def fault_step(row: Rollout) -> int | None:
    return None if row.fault is None else row.fault.step


def clusters(
    rows: Sequence[Rollout],
    cells: Sequence[str],
    example: Callable[[str, Rollout, str], FailureExample],
    most: int = CLUSTERS,
) -> list[FailureCluster]:
    """The largest clusters of the failures among the rows. ``example`` shows one by an id and its kind."""
    failed = [row for row in rows if not row.valid]
    groups: dict[tuple[str, Phase], list[Rollout]] = defaultdict(list)
    for row in failed:
        groups[row.outcome, phase(row)].append(row)
    ranked = sorted(groups, key=lambda key: (-len(groups[key]), key))[:most]
    found = []
    for number, key in enumerate(ranked, start=1):
        members = groups[key]
        count = Counter(row.cell for row in members)
        typical, odd = _pair(members, count, cells)
        found.append(
            FailureCluster(
                id=f"c{number}",
                outcome=key[0],
                phase=key[1],
                n=len(members),
                share=len(members) / len(failed),
                cells={cell: count[cell] for cell in cells if cell in count},
                typical=example(f"c{number}t", typical, "typical"),
                odd=None if odd is None else example(f"c{number}o", odd, "odd"),
            )
        )
    return found


def _pair(members: Sequence[Rollout], count: Counter[str], cells: Sequence[str]) -> tuple[Rollout, Rollout | None]:
    home = min(count, key=lambda cell: (-count[cell], cells.index(cell)))
    at_home = sorted((row for row in members if row.cell == home), key=_order)
    typical = at_home[(len(at_home) - 1) // 2]
    places = Counter(_place(row) for row in members)
    rest = sorted((row for row in members if row is not typical), key=_order)
    odd = min(rest, key=lambda row: (count[row.cell], places[_place(row)]), default=None)
    return typical, odd


def _order(row: Rollout) -> tuple[int, str, int]:
    step = fault_step(row)
    return (-1 if step is None else step, row.id, row.sample)


def _place(row: Rollout) -> tuple[str, int | None]:
    return row.cell, fault_step(row)
