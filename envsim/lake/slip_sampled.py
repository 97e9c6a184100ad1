"""Success of a plan under noise, estimated from seeded rollouts.

The rollout without any slip is known; only those with at least one slip are drawn, from a stream of the task's own.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from envsim.lake.chance import stream
from envsim.lake.slips import CAUSES, STAY, Ints, Success, Task, holes_of, targets_of

CONFIDENCE = 1.959964
"""Standard normal quantile of 95 % intervals."""


@lru_cache(maxsize=4096)
def sampled(task: Task, key: str, rollouts: int) -> Success:
    """Row 0 of every array is the rollout without a slip, the others have at least one."""
    certain = task.q**task.moves
    cause = _simulate(task, np.random.default_rng(stream("noise", key).getrandbits(128)), rollouts)
    ideal = float(cause[0] < 0)
    if certain == 1.0:
        return Success(ideal, {name: float(cause[0] == i) for i, name in enumerate(CAUSES)})
    slipped = cause[1:]
    share = float((slipped < 0).mean())
    low, high = wilson(share, rollouts)
    rest = 1.0 - certain
    return Success(
        certain * ideal + rest * share,
        {name: float(certain * (cause[0] == i) + rest * (slipped == i).mean()) for i, name in enumerate(CAUSES)},
        (certain * ideal + rest * low, certain * ideal + rest * high),
    )


def _simulate(task: Task, rng: np.random.Generator, rollouts: int) -> Ints:
    """The index of the cause that each rollout fails by, -1 for success; shape (1 + rollouts,)."""
    q, holes, targets = task.q, holes_of(task.rows), targets_of(len(task.rows), len(task.rows[0]))
    first = _first_slips(task, rng, rollouts)
    here = np.tile(np.array(task.starts), (1 + rollouts, 1))
    via = None if task.via is None else np.array(task.via)
    visited = here == via
    cause = np.full(1 + rollouts, -1)
    move = 0
    for actions in task.actions:
        there = here.copy()
        for agent, action in enumerate(actions):
            if action == STAY:
                continue
            draw = rng.random(1 + rollouts)
            draw = np.where(first == move, q + (1 - q) * draw, np.where(first > move, 0.0, draw))
            turn = np.where(draw < q, 0, np.where(draw < (1 + q) / 2, 1, 3))
            there[:, agent] = targets[(action + turn) % 4, here[:, agent]]
            move += 1
        _note(cause, holes[there].any(axis=1), 0)
        for i in range(len(actions)):
            for j in range(i):
                _note(cause, there[:, i] == there[:, j], 1)
        for i in range(len(actions)):
            for j in range(i):
                _note(cause, (there[:, i] == here[:, j]) & (there[:, j] == here[:, i]), 2)
        here = there
        visited |= here == via
    arrived = here == np.array(task.goals)
    _note(cause, ~(arrived if via is None else arrived & visited).all(axis=1), 3)
    return cause


def _first_slips(task: Task, rng: np.random.Generator, rollouts: int) -> Ints:
    """The number of the move at which each rollout slips first, given that it slips; in row 0 it never does."""
    moves, q = task.moves, task.q
    if q == 1 or moves == 0:
        return np.full(1 + rollouts, moves)
    drawn = rng.random(1 + rollouts)
    # Inverse of the geometric distribution cut off at the last move.
    late = np.log1p(-drawn * (1 - q**moves)) / math.log(q) if q else np.zeros(1 + rollouts)
    first = np.minimum(late.astype(np.int64), moves - 1)
    first[0] = moves
    return first


def _note(cause: Ints, failed: NDArray[np.bool_], index: int) -> None:
    cause[failed & (cause < 0)] = index


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n."""
    z = CONFIDENCE**2 / n
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(share * (1 - share) * z + z * z / 4) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)
