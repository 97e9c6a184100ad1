"""``verify``: the one validator of plans. It grades answers, checks the solver's own plans and runs in the tests.

Classical multi-agent path finding: one move or stay a step, all agents at once, so following and rotation are legal;
two agents may not be in one cell at one time, nor swap cells. A shorter path is padded with its last cell; agents stay
at their goals. An agent's cost is the time of its last arrival at its goal, the makespan the largest cost. Where agents
have via cells, each must be in its own at some time, the start and the end included. That changes no cost: an agent
that has come to rest at its goal has been there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envsim.api import EnvsimError, Fault, Verdict
from envsim.lake.grid import HOLE, Cell

Plan = Sequence[Sequence[Cell]]
"""For each agent its cells, t = 0 first."""

OUTCOMES = (
    "parse_error",
    "wrong_agent_count",
    "wrong_start",
    "out_of_bounds",
    "illegal_move",
    "hole",
    "vertex_conflict",
    "edge_conflict",
    "goal_not_reached",
    "valid_suboptimal",
    "optimal",
)
OUT_OF_BOUNDS, ILLEGAL_MOVE, IN_HOLE, VERTEX_CONFLICT, EDGE_CONFLICT = range(3, 8)
_FirstFault = tuple[int, int, int]
"""(time, index of the outcome, agent): the smallest is the first."""


def failed(outcome: str, step: int | None = None, agent: int | None = None, cell: Cell | None = None) -> Verdict:
    """The verdict of an answer that is not a valid plan: regret 1."""
    location = None if cell is None else f"({cell[0]},{cell[1]})"
    fault = Fault(step=step, agent=agent, location=location)
    return Verdict(outcome=outcome, valid=False, optimal=False, regret=1.0, fault=fault)


def costs(goals: Sequence[Cell], plan: Plan) -> list[int]:
    """Each agent's last arrival at its goal, in moves. The plan must be valid."""
    found = []
    for goal, path in zip(goals, plan, strict=True):
        t = len(path) - 1
        while t and path[t - 1] == goal:
            t -= 1
        found.append(t)
    return found


def has_wait(goals: Sequence[Cell], plan: Plan) -> bool:
    """Whether some agent stays in a cell for a step before its last arrival."""
    return any(path[t] == path[t + 1] for path, cost in zip(plan, costs(goals, plan), strict=True) for t in range(cost))


class FirstFault(NamedTuple):
    """What is first wrong with a plan. ``agent``, ``step`` and ``cell`` are None where the plan has no such thing."""

    outcome: str
    step: int | None = None
    agent: int | None = None
    cell: Cell | None = None


def first_fault(
    rows: Sequence[str],
    starts: Sequence[Cell],
    goals: Sequence[Cell],
    plan: Plan,
    via: Sequence[Cell] | None = None,
) -> FirstFault | None:
    """The first fault of a plan; None if it is valid.

    That is the one of the earliest time; at one time in the order of ``OUTCOMES``; of one kind that of the lowest
    agent. If there is none, the lowest agent that ends elsewhere than at its goal, or was never in its ``via`` cell,
    makes it ``goal_not_reached``. O(agents^2 * steps).
    """
    agents = len(starts)
    if len(plan) != agents:
        return FirstFault("wrong_agent_count")
    for i, path in enumerate(plan):
        if not path or path[0] != starts[i]:
            return FirstFault("wrong_start", 0, i, path[0] if path else None)
    steps = max(map(len, plan))
    paths = [path if len(path) == steps else [*path, *[path[-1]] * (steps - len(path))] for path in plan]
    first = min(filter(None, [_own_fault(rows, path, i) for i, path in enumerate(paths)]), default=None)
    until = steps if first is None else first[0] + 1
    for i in range(agents - 1):
        for j in range(i + 1, agents):
            conflict = _conflict(paths[i], paths[j], until, i)
            if conflict is not None and (first is None or conflict < first):
                first, until = conflict, conflict[0] + 1
    if first is not None:
        step, rank, agent = first
        return FirstFault(OUTCOMES[rank], step, agent, paths[agent][step])
    for i, path in enumerate(paths):
        if path[-1] != goals[i] or (via is not None and via[i] not in path):
            return FirstFault("goal_not_reached", steps - 1, i, path[-1])
    return None


def verify(
    rows: Sequence[str],
    starts: Sequence[Cell],
    goals: Sequence[Cell],
    plan: Plan,
    optimum_makespan: int | None = None,
    *,
    via: Sequence[Cell] | None = None,
) -> Verdict:
    """The first fault of a plan, or its makespan.

    Without ``optimum_makespan`` optimality is not judged: a valid plan is ``valid_suboptimal`` with regret 0. Raises
    EnvsimError if a valid plan beats ``optimum_makespan``: the certificate is wrong.
    """
    fault = first_fault(rows, starts, goals, plan, via)
    if fault is not None:
        return failed(fault.outcome, fault.step, fault.agent, fault.cell)
    makespan = max(costs(goals, plan))
    if optimum_makespan is None:
        return Verdict(outcome="valid_suboptimal", valid=True, optimal=False, regret=0.0, cost=makespan)
    if makespan < optimum_makespan:
        raise EnvsimError(
            f"a valid plan has makespan {makespan}, below the certified optimum {optimum_makespan}; "
            "the certificate is wrong: certify the instance again"
        )
    optimal = makespan == optimum_makespan
    regret = (makespan - optimum_makespan) / max(optimum_makespan, 1)
    outcome = "optimal" if optimal else "valid_suboptimal"
    return Verdict(outcome=outcome, valid=True, optimal=optimal, regret=regret, cost=makespan)


def _own_fault(rows: Sequence[str], path: Sequence[Cell], agent: int) -> _FirstFault | None:
    """The first fault of one agent on its own."""
    height, width = len(rows), len(rows[0])
    p, q = path[0]
    for t, (r, c) in enumerate(path):
        if not (0 <= r < height and 0 <= c < width):
            return t, OUT_OF_BOUNDS, agent
        if abs(r - p) + abs(c - q) > 1:
            return t, ILLEGAL_MOVE, agent
        if rows[r][c] == HOLE:
            return t, IN_HOLE, agent
        p, q = r, c
    return None


def _conflict(one: Sequence[Cell], other: Sequence[Cell], until: int, agent: int) -> _FirstFault | None:
    """The first conflict of two agents before a time."""
    u, v = one[0], other[0]
    for t in range(until):
        x, y = one[t], other[t]
        if x == y:
            return t, VERTEX_CONFLICT, agent
        if x == v and y == u:
            return t, EDGE_CONFLICT, agent
        u, v = x, y
    return None
