"""Progress to the first fault, and ``grade``, which turns a verdict into what an answer earns in training.

Progress is 1 - (distances that remain at the last faultless step) / (distances at the start), summed over the agents,
on the map without the others. It depends on how far a plan got, not on how it was written: waiting and detours earn
nothing. Reward shaping by potentials, step by step, sums to a constant for each start and so changes no advantage among
answers to one prompt; this is a reward of the answer as a whole.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache

from envsim.api import Verdict
from envsim.lake.grid import Board, Cell
from envsim.lake.instance import LakeInstance
from envsim.lake.noise import success_probability

FORMAL = frozenset({"parse_error", "wrong_agent_count", "wrong_start"})
"""Outcomes of answers that are no plan of the instance."""


def grade(instance: LakeInstance, plan: Sequence[Sequence[Cell]], verdict: Verdict) -> Verdict:
    """The verdict with success under the instance's noise, progress, and the weight of progress."""
    if verdict.valid and instance.success_rate == 1 and instance.shaping == 0:
        return verdict
    update: dict[str, object] = {"shaping": instance.shaping}
    if not verdict.valid:
        update["progress"] = progress(instance.rows, instance.goals, plan, verdict, instance.via)
    elif instance.success_rate < 1:
        found = success_probability(
            instance.rows, instance.starts, instance.goals, plan, instance.success_rate, instance.via, key=instance.id
        )
        # A valid plan succeeds at least when nobody slips; only the smallest floats cannot say so.
        update["success"] = max(found.probability, sys.float_info.min)
        update["success_interval"] = found.interval
    return verdict.model_copy(update=update)


def progress(
    rows: Sequence[str],
    goals: Sequence[Cell],
    plan: Sequence[Sequence[Cell]],
    verdict: Verdict,
    via: Sequence[Cell] | None = None,
) -> float:
    """How far a plan got before its first fault, in [0, 1]; 1 exactly for a valid plan.

    A plan without a fault that ends elsewhere counts as it ends. An agent that has yet to visit its via cell has the
    way there and from there to its goal before it. A plan whose agents all stood at their goals before they erred lacks
    half a step of 1; one that moved away from the goals has 0, and so has an answer that is no plan.
    """
    if verdict.valid:
        return 1.0
    if verdict.outcome in FORMAL or verdict.fault is None or verdict.fault.step is None:
        return 0.0
    # Agents that end elsewhere are at fault at the last step, which was made; any other fault was not.
    last = max(0, verdict.fault.step - (verdict.outcome != "goal_not_reached"))
    total = left = 0
    for i, path in enumerate(plan):
        walked = path[: last + 1]
        first = None if via is None else via[i]
        total += _left(rows, goals[i], first, walked[:1])
        left += _left(rows, goals[i], first, walked)
    if total == 0:
        return 0.0
    return min(max(0.0, 1 - left / total), 1 - 0.5 / total)


def _left(rows: Sequence[str], goal: Cell, via: Cell | None, walked: Sequence[Cell]) -> int:
    """The distance that remains to one agent at the end of what it walked."""
    r, c = walked[-1]
    columns = len(rows[0])
    if via is None or via in walked:
        return _distances(tuple(rows), goal)[r * columns + c]
    y, x = via
    onwards = _distances(tuple(rows), goal)[y * columns + x]
    return _distances(tuple(rows), via)[r * columns + c] + onwards


@lru_cache(maxsize=1024)
def _distances(rows: tuple[str, ...], origin: Cell) -> tuple[int, ...]:
    """Distance of every cell from one. What cannot be reached is farther than any cell that can."""
    columns = len(rows[0])
    board = Board.of(rows)
    found = board.distances(origin[0] * columns + origin[1])
    return tuple(board.n if distance < 0 else distance for distance in found)
