"""Action noise N1: how likely a plan is to succeed when moves slip.

A moving agent executes the intended direction with probability q and each of the two perpendicular ones with
probability (1 - q)/2, independently of the others; an agent that stays never slips. A move off the map leaves the agent
where it is. A plan is executed open loop: each agent keeps issuing the directions of its path, wherever it is by then.
Entering a hole, two agents in one cell, and a swap of two cells, all judged on the executed moves, fail all agents at
once; so does an agent that does not stand at its goal at the end, or has not been at its via cell.

One or two agents are computed exactly, by dynamic programming forward over joint states. More, and those on maps larger
than any that is generated, are sampled: the rollout without any slip is known, it has probability q^moves, and only the
rest is estimated, from rollouts with at least one slip. So the estimate of a valid plan is never 0, and an interval of
Wilson's comes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from envsim.api import EnvsimError
from envsim.lake.chance import stream
from envsim.lake.grid import HOLE, Cell
from envsim.lake.instance import check_layout

DIRECTIONS = ((0, -1), (1, 0), (0, 1), (-1, 0))
"""Left, down, right, up: neighbours in this order are perpendicular."""
STAY = 4
CAUSES = ("hole", "vertex_conflict", "edge_conflict", "goal_not_reached")
"""What may fail, in the order that decides where two happen at one step."""
ROLLOUTS = 10_000
EXACT_AGENTS = 2
EXACT_CELLS = 256
"""Larger maps are sampled: the joint states of two agents would not fit."""
CONFIDENCE = 1.959964
"""Standard normal quantile of 95 % intervals."""

_Cells = tuple[Cell, ...]
_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Success:
    """``probability`` and the masses in ``failures`` (one for each of ``CAUSES``) sum to 1."""

    probability: float
    failures: dict[str, float]
    interval: tuple[float, float] | None = None
    """95 % interval of the probability; None where it is exact."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A plan as directions: ``actions[t][i]`` is what agent i issues at step t. Cells are numbered row by row."""

    rows: tuple[str, ...]
    starts: tuple[int, ...]
    goals: tuple[int, ...]
    via: tuple[int, ...] | None
    actions: tuple[tuple[int, ...], ...]
    q: float

    @property
    def moves(self) -> int:
        return sum(action != STAY for step in self.actions for action in step)


def success_probability(  # noqa: PLR0917  the instance, the plan and the noise
    rows: Sequence[str],
    starts: Sequence[Cell],
    goals: Sequence[Cell],
    plan: Sequence[Sequence[Cell]],
    q: float,
    via: Sequence[Cell] | None = None,
    *,
    key: str = "",
    rollouts: int = ROLLOUTS,
    exact: bool | None = None,
) -> Success:
    """The probability that executing a plan under noise brings all agents to their goals without a fault.

    Parameters
    ----------
    rows, starts, goals, via
        The instance; cells are (row, column).
    plan
        For each agent its cells, t = 0 first; shorter paths wait at their ends. It need not be valid, but every step
        must be a move to a cell that shares a side, or a stay.
    q
        Probability of the intended direction, in [0, 1].
    key
        Names the random stream where rollouts are drawn: the same key and plan give the same figure.
    rollouts
        How many are drawn where the probability is estimated.
    exact
        Whether to compute or to sample; None computes up to two agents on maps of up to 256 cells.

    Raises
    ------
    EnvsimError
        For an instance that is none, a plan that is not one of single steps from the starts, q out of range, or
        ``exact`` where that is not affordable.

    Notes
    -----
    Exact: dense matrices over the free cells, at most O(free^3) a step for two agents. Sampled: O(rollouts * steps *
    agents^2), vectorised over rollouts.
    """
    if not 0 <= q <= 1:
        raise EnvsimError(f"success_rate is {q}; expected 0 to 1")
    check_layout(rows, starts, goals, via)
    columns = len(rows[0])
    affordable = len(starts) <= EXACT_AGENTS and len(rows) * columns <= EXACT_CELLS
    if exact and not affordable:
        raise EnvsimError(
            f"{len(starts)} agents on {len(rows)}x{columns} cannot be computed exactly; expected at most "
            f"{EXACT_AGENTS} agents and {EXACT_CELLS} cells"
        )
    task = _Task(
        rows=tuple(rows),
        starts=_numbers(starts, columns),
        goals=_numbers(goals, columns),
        via=None if via is None else _numbers(via, columns),
        actions=_actions(starts, plan),
        q=q,
    )
    return _exact(task) if exact or (exact is None and affordable) else _sampled(task, key, rollouts)


def _numbers(cells: Sequence[Cell], columns: int) -> tuple[int, ...]:
    return tuple(r * columns + c for r, c in cells)


def _actions(starts: Sequence[Cell], plan: Sequence[Sequence[Cell]]) -> tuple[tuple[int, ...], ...]:
    """What each agent issues at each step."""
    if len(plan) != len(starts):
        raise EnvsimError(f"the plan has {len(plan)} paths for {len(starts)} agents")
    steps = max(map(len, plan), default=0) - 1
    issued = []
    for i, path in enumerate(plan):
        if not path or tuple(path[0]) != tuple(starts[i]):
            raise EnvsimError(f"the path of agent {i} does not begin at its start {tuple(starts[i])}")
        own = []
        for t, ((r, c), (y, x)) in enumerate(pairwise(path), 1):
            step = (y - r, x - c)
            if step != (0, 0) and step not in DIRECTIONS:
                raise EnvsimError(f"agent {i} jumps from ({r},{c}) to ({y},{x}) at step {t}; expected one step or none")
            own.append(STAY if step == (0, 0) else DIRECTIONS.index(step))
        issued.append([*own, *[STAY] * (steps - len(own))])
    return tuple(zip(*issued, strict=True))


@lru_cache(maxsize=64)
def _targets(height: int, width: int) -> _Ints:
    """Where each of the five actions leads from each cell, shape (5, cells); off the map = nowhere."""
    r, c = np.divmod(np.arange(height * width), width)
    moved = [np.clip(r + y, 0, height - 1) * width + np.clip(c + x, 0, width - 1) for y, x in DIRECTIONS]
    return np.stack([*moved, r * width + c])


def _holes(rows: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([mark == HOLE for row in rows for mark in row])


@lru_cache(maxsize=16)
def _transitions(rows: tuple[str, ...], q: float) -> tuple[_Floats, _Ints]:
    """``T[action, u, v]``, the probability of going from free cell u to free cell v, and each cell's place among the
    free ones. What is missing from a row to 1 goes into a hole."""
    targets = _targets(len(rows), len(rows[0]))
    free = np.flatnonzero(~_holes(rows))
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
def _exact(task: _Task) -> Success:
    """Forward dynamic programming. ``mass[visited, u, v]``: agent 0 in u, agent 1 in v (0 if there is none)."""
    step, place = _transitions(task.rows, task.q)
    pair = len(task.starts) == EXACT_AGENTS
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
        # Few cells hold mass, and small products spare the threads of a linear algebra library.
        us, vs = np.flatnonzero(mass.any(axis=(0, 2))), np.flatnonzero(mass.any(axis=(0, 1)))
        held = mass[:, us[:, None], vs]
        one, other = step[actions[0]][us], (step[actions[1]] if pair else alone)[vs]
        after = one.T @ held @ other
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


def _visit(mass: _Floats, vias: Sequence[int]) -> None:
    """Move the mass that stands in a via cell to the layer where that agent's bit is set."""
    for agent, cell in enumerate(vias):
        where = (cell, slice(None)) if agent == 0 else (slice(None), cell)
        for visited in range(len(mass)):
            if not visited >> agent & 1:
                mass[visited | 1 << agent][where] += mass[visited][where]
                mass[visited][where] = 0.0


@lru_cache(maxsize=4096)
def _sampled(task: _Task, key: str, rollouts: int) -> Success:
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


def _simulate(task: _Task, rng: np.random.Generator, rollouts: int) -> _Ints:
    """The index of the cause that each rollout fails by, -1 for success; shape (1 + rollouts,)."""
    q, holes, targets = task.q, _holes(task.rows), _targets(len(task.rows), len(task.rows[0]))
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


def _first_slips(task: _Task, rng: np.random.Generator, rollouts: int) -> _Ints:
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


def _note(cause: _Ints, failed: NDArray[np.bool_], index: int) -> None:
    cause[failed & (cause < 0)] = index


def wilson(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of n."""
    z = CONFIDENCE**2 / n
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(share * (1 - share) * z + z * z / 4) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)
