"""``verify``: the one validator of plans. It grades answers, checks the solver's own plans and runs in the tests.

Classical multi-agent path finding: one move or stay a step, all agents at once, so following and rotation are legal;
two agents may not be in one cell at one time, nor swap cells. A shorter path is padded with its last cell; agents stay
at their goals. An agent's cost is the time of its last arrival at its goal, the makespan the largest cost.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def verify(  # noqa: PLR0911, PLR0912 - one return a fault, in one loop: this is the hot path of grading
    rows: Sequence[str],
    starts: Sequence[Cell],
    goals: Sequence[Cell],
    plan: Plan,
    optimum_makespan: int | None = None,
) -> Verdict:
    """The first fault of a plan, or its makespan.

    The first fault is the one of the earliest time; at one time in the order of ``OUTCOMES``; of one kind that of the
    lowest agent. Without ``optimum_makespan`` optimality is not judged: a valid plan is ``valid_suboptimal`` with
    regret 0.

    Raises
    ------
    EnvsimError
        If a valid plan beats ``optimum_makespan``: the certificate is wrong.

    Notes
    -----
    O(agents^2 * steps).
    """
    agents = len(starts)
    if len(plan) != agents:
        return failed("wrong_agent_count")
    for i, path in enumerate(plan):
        if not path or path[0] != starts[i]:
            return failed("wrong_start", 0, i, path[0] if path else None)
    height, width = len(rows), len(rows[0])
    steps = max(map(len, plan))
    lengths = [len(path) for path in plan]
    before = list(starts)
    for t in range(1, steps):
        after = [path[t] if t < length else path[-1] for path, length in zip(plan, lengths, strict=True)]
        jump = hole = -1
        for i in range(agents):
            r, c = after[i]
            if not (0 <= r < height and 0 <= c < width):
                return failed("out_of_bounds", t, i, after[i])
            p, q = before[i]
            if jump < 0 and abs(r - p) + abs(c - q) > 1:
                jump = i
            if hole < 0 and rows[r][c] == HOLE:
                hole = i
        if jump >= 0:
            return failed("illegal_move", t, jump, after[jump])
        if hole >= 0:
            return failed("hole", t, hole, after[hole])
        if len(set(after)) < agents:
            i = next(i for i in range(agents) if after.count(after[i]) > 1)
            return failed("vertex_conflict", t, i, after[i])
        for i in range(agents - 1):
            cell, origin = after[i], before[i]
            for j in range(i + 1, agents):
                if after[j] == origin and before[j] == cell:
                    return failed("edge_conflict", t, i, cell)
        before = after
    for i in range(agents):
        if before[i] != goals[i]:
            return failed("goal_not_reached", steps - 1, i, before[i])
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
