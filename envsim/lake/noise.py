"""Action noise N1: how likely a plan is to succeed when moves slip.

A moving agent executes the intended direction with probability q and each of the two perpendicular ones with
probability (1 - q)/2, independently of the others; an agent that stays never slips. A move off the map leaves the agent
where it is. A plan is executed open loop: each agent keeps issuing the directions of its path, wherever it is by then.
Entering a hole, two agents in one cell, and a swap of two cells, all judged on the executed moves, fail all agents at
once; so does an agent that does not stand at its goal at the end, or has not been at its via cell.

One or two agents are computed exactly, by dynamic programming forward over joint states. More, those on maps larger
than any that is generated, and plans far longer than any map needs are sampled: the rollout
without any slip is known, it has probability q^moves, and only the rest is estimated, from rollouts with at least one
slip. So the estimate of a valid plan is never 0, and an interval of Wilson's comes with it.

No plan takes more than about a fifth of a second: a step in which nobody moves changes nothing and is left out; a plan
of more than some hundred moving steps is drawn from fewer rollouts; and one for which fewer than ``LEAST_ROLLOUTS``
would be left, which takes 500 moving steps of five agents or 1,250 of two, counts as its rollout without a slip alone,
which is what it succeeds by at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from envsim.api import EnvsimError
from envsim.lake.grid import FREE, Cell
from envsim.lake.instance import check_layout
from envsim.lake.slip_exact import MOST_AGENTS, MOST_CELLS, computed
from envsim.lake.slip_sampled import sampled
from envsim.lake.slips import CAUSES, DIRECTIONS, STAY, Success, Task
from envsim.lake.verifier import first_fault

ROLLOUTS = 10_000
LEAST_ROLLOUTS = 2_000
MOST_DRAWN = 5_000_000
"""Most rollouts x moving steps x agents: some 0.2 s."""
MOST_COMPUTED = 600_000_000
"""Most multiplications of an exact computation, likewise."""
STEP_COST = 100_000
"""What a step of it costs beside them."""


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
        How many are drawn where the probability is estimated; fewer for very long plans if ``exact`` is None.
    exact
        Whether to compute or to sample, whatever it takes; None computes up to two agents on maps of up to 256 cells,
        and no longer than about 0.2 s: 500 moving steps on 10x10.

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
        actions=tuple(step for step in _actions(starts, plan) if set(step) != {STAY}),
        q=q,
    )
    if exact is None:
        return _bounded(task, key, rollouts, affordable and _multiplications(task) <= MOST_COMPUTED) or _least(
            task, valid=first_fault(rows, starts, goals, plan, via) is None
        )
    return computed(task) if exact else sampled(task, key, rollouts)


def _multiplications(task: Task) -> int:
    free = sum(row.count(FREE) for row in task.rows)
    states: int = free ** (1 + len(task.starts)) << len(task.via or ())
    return len(task.actions) * (states + STEP_COST)


def _bounded(task: Task, key: str, rollouts: int, exact: bool) -> Success | None:
    """Computed or sampled; None if neither is affordable."""
    if exact:
        return computed(task)
    rollouts = min(rollouts, MOST_DRAWN // max(1, len(task.actions) * len(task.starts)))
    return sampled(task, key, rollouts) if rollouts >= LEAST_ROLLOUTS else None


def _least(task: Task, *, valid: bool) -> Success:
    """What a plan succeeds by at least; all else counts as failed, of unknown cause, at its end."""
    certain = task.q**task.moves if valid else 0.0
    failures = dict.fromkeys(CAUSES, 0.0) | {"goal_not_reached": 1 - certain}
    return Success(certain, failures, (certain, 1.0))


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
