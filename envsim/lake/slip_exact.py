"""Success of a plan of one or two agents under noise, exactly: dynamic programming forward over joint states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from envsim.lake.slips import CAUSES, STAY, Floats, Ints, Success, Task, holes_of, targets_of

MOST_AGENTS = 2
MOST_CELLS = 256
"""Larger maps are sampled: the joint states of two agents would not fit."""
PIECE = 200_000
"""Multiplications of one matrix product; OpenBLAS shares out those with more than 262,144."""


@lru_cache(maxsize=16)
def _transitions(rows: tuple[str, ...], q: float) -> tuple[Floats, Ints]:
    """``T[action, u, v]``, the probability of going from free cell u to free cell v, and each cell's place among the
    free ones. What is missing from a row to 1 goes into a hole."""
    targets = targets_of(len(rows), len(rows[0]))
    free = np.flatnonzero(~holes_of(rows))
    n = targets.shape[1]
    whole = np.zeros((5, n, n))
    cells = np.arange(n)
    for action in range(4):
        for turn, chance in ((0, q), (1, (1 - q) / 2), (3, (1 - q) / 2)):
            np.add.at(whole[action], (cells, targets[(action + turn) % 4]), chance)
    whole[STAY] = np.eye(n)
    place = np.full(n, -1)
    place[free] = np.arange(len(free))
    return np.ascontiguousarray(whole[:, free][:, :, free]), place


# The answers of a group to one task repeat themselves.
@lru_cache(maxsize=4096)
def computed(task: Task) -> Success:
    """Forward dynamic programming. ``mass[visited, u, v]``: agent 0 in u, agent 1 in v (0 if there is none)."""
    step, place = _transitions(task.rows, task.q)
    pair = len(task.starts) == MOST_AGENTS
    here = [int(place[v]) for v in task.starts] + [0] * (not pair)
    end = [int(place[v]) for v in task.goals] + [0] * (not pair)
    vias = [] if task.via is None else [int(place[v]) for v in task.via]
    alone = np.ones((1, 1))
    n = step.shape[1]
    mass = np.zeros((1 << len(vias), n, n if pair else 1))
    mass[0, here[0], here[1]] = 1.0
    _visit(mass, vias)
    lost = dict.fromkeys(CAUSES, 0.0)
    for actions in task.actions:
        if all(action == STAY for action in actions):
            continue
        us, vs = np.flatnonzero(mass.any(axis=(0, 2))), np.flatnonzero(mass.any(axis=(0, 1)))
        if not us.size:
            break
        held = mass[:, us[:, None], vs]
        one, other = step[actions[0]][us], (step[actions[1]] if pair else alone)[vs]
        after = _product(_product(one.T, held), other)
        lost["hole"] += float(held.sum() - after.sum())
        if pair:
            meeting = np.einsum("mii->mi", after)
            lost["vertex_conflict"] += float(meeting.sum())
            meeting[:] = 0.0
            if STAY not in actions:
                swapped = held * (one[:, vs] * other[:, us].T)
                lost["edge_conflict"] += float(swapped.sum())
                after[:, vs[:, None], us] -= swapped.transpose(0, 2, 1)
        mass = after
        _visit(mass, vias)
    reached = float(mass[-1, end[0], end[1]])
    lost["goal_not_reached"] = float(mass.sum()) - reached
    return Success(min(max(reached, 0.0), 1.0), {cause: max(value, 0.0) for cause, value in lost.items()})


def _product(one: Floats, other: Floats) -> Floats:
    """A matrix product in pieces so small that BLAS keeps each to one thread: where cores are busy, waiting for the
    others costs a hundred times the product."""
    width = max(1, PIECE // (one.shape[-2] * one.shape[-1]))
    pieces = [one @ other[..., at : at + width] for at in range(0, other.shape[-1], width)]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


def _visit(mass: Floats, vias: Sequence[int]) -> None:
    """Move the mass that stands in a via cell to the layer where that agent's bit is set."""
    for agent, cell in enumerate(vias):
        where = (cell, slice(None)) if agent == 0 else (slice(None), cell)
        for visited in range(len(mass)):
            if not visited >> agent & 1:
                mass[visited | 1 << agent][where] += mass[visited][where]
                mass[visited][where] = 0.0
