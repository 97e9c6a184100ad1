"""Conflict-Based Search: plan the agents one by one, find a conflict, forbid it to one or the other, plan anew.

The low level searches the time-expanded graph, whose nodes are (cell, time) and whose edges lead to the cell itself or
a neighbour one step later; it is never built, successors are computed where the search comes by. The high level
searches the tree of constraints, best cost first. Both prefer fewer conflicts among equals.

A horizon bounds the time-expanded graph: without it the search would not end where there is no plan, as in the original
papers. Best for many agents that meet seldom; two agents in a narrow corridor make the tree exponential in their delay.

References: Sharon, Stern, Felner and Sturtevant, "Conflict-Based Search for Optimal Multi-Agent Pathfinding",
Artificial Intelligence 2015; Standley, AAAI 2010, for the conflict avoidance table.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import NamedTuple

from envsim.lake.grid import Board
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable

Path = list[int]


class Conflict(NamedTuple):
    """Two agents in ``cells[0]`` at a time, or, if the cells differ, swapping them in the step that ends then."""

    time: int
    agents: tuple[int, int]
    cells: tuple[int, int]


class Constraint(NamedTuple):
    """``agent`` may not be in ``cell`` at ``time``; with ``origin``, may not come there from it."""

    agent: int
    time: int
    cell: int
    origin: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the constraint tree: its constraints, and for every agent a shortest path that respects them."""

    constraints: frozenset[Constraint]
    paths: tuple[Path, ...]
    cost: int


def cbs(
    board: Board,
    starts: Sequence[int],
    goals: Sequence[int],
    objective: Objective,
    *,
    limit: int,
    horizon: int,
    most: int | None = None,
) -> Result:
    """The cheapest plan whose makespan is at most ``horizon``, by makespan or by sum of costs.

    ``limit`` is the most nodes of the constraint tree to expand; with ``most`` only plans that cost at most this count.

    Notes
    -----
    Exponential in the number of conflicts; complete because the horizon makes the tree finite.
    """
    graph = TimeExpanded(board, goals, horizon)
    order = count()
    queue: list[tuple[int, int, int, Node]] = []

    def open_node(constraints: frozenset[Constraint], paths: tuple[Path, ...]) -> None:
        lengths = [len(path) - 1 for path in paths]
        cost = sum(lengths) if objective == "soc" else max(lengths)
        if most is None or cost <= most:
            conflicts = sum(1 for pair in combinations(paths, 2) if first_conflict(pair) is not None)
            heapq.heappush(queue, (cost, conflicts, next(order), Node(constraints, paths, cost)))

    shortest: list[Path] = []
    for agent, start in enumerate(starts):
        path = graph.shortest_path(agent, start, frozenset(), shortest)
        if path is None:
            return Unsolvable(0)
        shortest.append(path)
    open_node(frozenset(), tuple(shortest))
    expanded = 0
    while queue:
        _, _, _, node = heapq.heappop(queue)
        if expanded >= limit:
            return LimitReached(node.cost, expanded)
        expanded += 1
        conflict = first_conflict(node.paths)
        if conflict is None:
            longest = max(map(len, node.paths))
            plan = [[*path, *[path[-1]] * (longest - len(path))] for path in node.paths]
            return Solved(node.cost, plan, expanded)
        for constraint in split(conflict):
            agent = constraint.agent
            constraints = node.constraints | {constraint}
            others = [path for other, path in enumerate(node.paths) if other != agent]
            path = graph.shortest_path(agent, starts[agent], constraints, others)
            if path is not None:
                paths = (*node.paths[:agent], path, *node.paths[agent + 1 :])
                open_node(constraints, paths)
    return Unsolvable(expanded)


def split(conflict: Conflict) -> tuple[Constraint, Constraint]:
    """The two ways to avoid a conflict: one for each of its agents."""
    (one, other), (u, v), time = conflict.agents, conflict.cells, conflict.time
    if u == v:
        return Constraint(one, time, u, None), Constraint(other, time, u, None)
    return Constraint(one, time, v, u), Constraint(other, time, u, v)


def first_conflict(paths: Sequence[Path]) -> Conflict | None:
    """The earliest conflict; agents stay at the ends of their paths."""
    best: Conflict | None = None
    for i, j in combinations(range(len(paths)), 2):
        one, other = paths[i], paths[j]
        until = max(len(one), len(other)) if best is None else best.time
        u, v = one[0], other[0]
        for time in range(until):
            x, y = one[min(time, len(one) - 1)], other[min(time, len(other) - 1)]
            if x == y:
                best = Conflict(time, (i, j), (x, x))
                break
            if x == v and y == u:
                best = Conflict(time, (i, j), (u, v))
                break
            u, v = x, y
    return best


class TimeExpanded:
    """The time-expanded graph of a lake up to a horizon, and A* on it for one agent under constraints."""

    def __init__(self, board: Board, goals: Sequence[int], horizon: int) -> None:
        self._goals, self._horizon = goals, horizon
        self._distance = [board.distances(goal) for goal in goals]
        self._neighbours = board.neighbours

    def shortest_path(
        self, agent: int, start: int, constraints: frozenset[Constraint], others: Sequence[Path]
    ) -> Path | None:
        """An agent's shortest path under its constraints, of those one with few conflicts with the others; or None.

        The path ends at the agent's last arrival, so it must not end before a constraint on the goal.
        """
        distance, goal = self._distance[agent], self._goals[agent]
        own = [constraint for constraint in constraints if constraint.agent == agent]
        forbidden = {(c.time, c.cell, c.origin) for c in own}
        settled = max((c.time for c in own if c.cell == goal and c.origin is None), default=-1)
        if (0, start, None) in forbidden or not 0 <= distance[start] <= self._horizon:
            return None
        queue = [(max(distance[start], settled + 1), 0, 0, start, 0)]
        order = count(1)
        parent: dict[tuple[int, int], int] = {}
        best = {(start, 0): 0}
        closed: set[tuple[int, int]] = set()
        while queue:
            _, conflicts, _, here, time = heapq.heappop(queue)
            if (here, time) in closed:
                continue
            closed.add((here, time))
            if here == goal and time > settled:
                return self._path(parent, here, time)
            then = time + 1
            for there in (*self._neighbours[here], here):
                if (there, then) in closed or (then, there, None) in forbidden or (then, there, here) in forbidden:
                    continue
                togo = distance[there]
                if then + togo > self._horizon:
                    continue
                met = conflicts + _meetings(others, here, there, then)
                if best.get((there, then), met + 1) <= met:
                    continue
                best[there, then] = met
                parent[there, then] = here
                heapq.heappush(queue, (max(then + togo, settled + 1), met, -next(order), there, then))
        return None

    @staticmethod
    def _path(parent: dict[tuple[int, int], int], here: int, time: int) -> Path:
        path = [here]
        while time:
            here = parent[here, time]
            time -= 1
            path.append(here)
        return path[::-1]


def _meetings(others: Sequence[Path], here: int, there: int, time: int) -> int:
    """How many of the other agents a step that ends at ``time`` would conflict with."""
    met = 0
    for path in others:
        last = len(path) - 1
        now = path[time] if time < last else path[last]
        met += now == there or (now == here and path[min(time - 1, last)] == there)
    return met
