"""Prioritised planning: one agent after the other around those before it. Quick, incomplete, and exact by luck only:
a plan at a lower bound is optimal, so most searches of many agents end here.

Reachable cells at a time are one bit mask, so an agent costs a few integer operations a step.

References: Silver, "Cooperative Pathfinding", AIIDE 2005.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations

from envsim.lake.grid import Board


class _Reserved:
    """Cells and moves of the agents planned so far, by time up to a horizon."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.cells = [0] * (horizon + 1)
        self.moves: list[dict[int, int]] = [{} for _ in range(horizon)]
        """``moves[t][v] = u``: someone goes from u to v, so nobody may go from v to u."""

    def add(self, path: Sequence[int]) -> None:
        for t in range(self.horizon + 1):
            self.cells[t] |= 1 << path[min(t, len(path) - 1)]
        for t in range(len(path) - 1):
            if path[t] != path[t + 1]:
                self.moves[t][path[t + 1]] = path[t]


def plans(
    board: Board, starts: Sequence[int], goals: Sequence[int], horizon: int, *, waits: bool = True, orders: int = 60
) -> Iterator[list[list[int]]]:
    """Plans of makespan at most ``horizon`` by different orders of the agents, each agent as early as it can.

    Orders begin with the agents that have the longest way. Without ``waits`` no agent stays before it arrives.
    """
    distance = [board.distances(goal)[start] for start, goal in zip(starts, goals, strict=True)]
    ranked = sorted(range(len(starts)), key=lambda i: (-distance[i], i))
    for order in islice(permutations(ranked), orders):
        for lowest in (True, False):
            reserved = _Reserved(horizon)
            paths: dict[int, list[int]] = {}
            for i in order:
                path = _path(board, starts[i], goals[i], reserved, waits=waits, lowest=lowest)
                if path is None:
                    break
                paths[i] = path
                reserved.add(path)
            else:
                longest = max(map(len, paths.values()))
                yield [paths[i] + [goals[i]] * (longest - len(paths[i])) for i in range(len(starts))]


def _path(board: Board, start: int, goal: int, reserved: _Reserved, *, waits: bool, lowest: bool) -> list[int] | None:
    masks = board.lattice.masks
    last_use = max((t for t, cells in enumerate(reserved.cells) if cells >> goal & 1), default=-1)
    reached = [1 << start]
    t = 0
    while not (reached[t] >> goal & 1 and t > last_use):
        if t == reserved.horizon or not reached[t]:
            return None
        here = reached[t]
        ahead = (board.spread(here) | (here if waits else 0)) & ~reserved.cells[t + 1]
        for v, u in reserved.moves[t].items():
            if ahead >> u & 1 and here >> v & 1:
                others = (masks[u] | (1 << u if waits else 0)) & here & ~(1 << v)
                if not others:
                    ahead ^= 1 << u
        reached.append(ahead)
        t += 1
    path = [goal]
    while t:
        t -= 1
        v = path[-1]
        options = (masks[v] | (1 << v if waits else 0)) & reached[t]
        for w, u in reserved.moves[t].items():
            if u == v:
                options &= ~(1 << w)
        path.append(((options & -options) if lowest else options).bit_length() - 1)
    path.reverse()
    return path
