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

from collections.abc import Sequence
from itertools import pairwise

from envsim.api import EnvsimError
from envsim.lake.grid import Cell
from envsim.lake.instance import check_layout
from envsim.lake.slip_exact import MOST_AGENTS, MOST_CELLS, computed
from envsim.lake.slip_sampled import sampled
from envsim.lake.slips import DIRECTIONS, STAY, Success, Task

ROLLOUTS = 10_000


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
    affordable = len(starts) <= MOST_AGENTS and len(rows) * columns <= MOST_CELLS
    if exact and not affordable:
        raise EnvsimError(
            f"{len(starts)} agents on {len(rows)}x{columns} cannot be computed exactly; expected at most "
            f"{MOST_AGENTS} agents and {MOST_CELLS} cells"
        )
    task = Task(
        rows=tuple(rows),
        starts=_numbers(starts, columns),
        goals=_numbers(goals, columns),
        via=None if via is None else _numbers(via, columns),
        actions=_actions(starts, plan),
        q=q,
    )
    return computed(task) if exact or (exact is None and affordable) else sampled(task, key, rollouts)


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
