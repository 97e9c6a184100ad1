"""Where agents start, and where they are to go: ``place`` draws it on a board, or finds that the board has no room.

``uniform``: starts are distinct cells with a free neighbour, and each goal is another cell that its agent can reach,
distinct from the other goals. ``far``: every leg of every agent is at least 70 % of the longest shortest way that the
board has. ``crossing``: every agent's first shortest way collides with that of another agent, if each goes its own.

An agent with two goals visits its via cell first; its legs are then start to via and via to goal, and its way is both.
Via cells are distinct, and none is its agent's start or goal.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from envsim.api import EnvsimError
from envsim.lake.chance import members, pick, shuffled
from envsim.lake.config import PLACEMENTS, nearest
from envsim.lake.grid import Board, collide

FAR_PERCENT = 70
"""Least length of a leg of ``far``, as a share of the longest shortest way on the board."""


class Ends(NamedTuple):
    """Cells as numbers, one for each agent; ``via`` is None where agents have one goal."""

    starts: list[int]
    goals: list[int]
    via: list[int] | None = None


def place(placement: str, rng: random.Random, board: Board, agents: int, goals: int = 1) -> Ends | None:
    """Starts, goals and, for two goals an agent, via cells. None if the draw found no room for them.

    Raises EnvsimError for an unknown placement.
    """
    if placement not in _PLACERS:
        raise EnvsimError(f"unknown placement {placement!r}; {nearest(placement, list(PLACEMENTS))}")
    return _PLACERS[placement](rng, board, agents, goals)


def first_way(board: Board, *stops: int) -> list[int] | None:
    """The first shortest paths from stop to stop, joined. None if a stop cannot be reached from the one before."""
    way = [stops[0]]
    for start, stop in pairwise(stops):
        path = board.path(start, stop)
        if path is None:
            return None
        way += path[1:]
    return way


def _starts(rng: random.Random, board: Board, agents: int) -> list[int] | None:
    alive = board.spread(board.free)
    if alive.bit_count() < agents:
        return None
    starts: list[int] = []
    for _ in range(agents):
        start = pick(rng, alive)
        alive ^= start
        starts.append(start.bit_length() - 1)
    return starts


def _reach(board: Board, origin: int) -> int:
    """All cells that can be reached, the origin included."""
    component = 0
    for layer in board.layers(origin):
        component |= layer
    return component


def _uniform(rng: random.Random, board: Board, agents: int, goals: int) -> Ends | None:
    starts = _starts(rng, board, agents)
    if starts is None:
        return None
    found: list[int] = []
    taken = 0
    for start in starts:
        choices = _reach(board, start) & ~(taken | 1 << start)
        if not choices:
            return None
        goal = pick(rng, choices)
        taken |= goal
        found.append(goal.bit_length() - 1)
    if goals == 1:
        return Ends(starts, found)
    via: list[int] = []
    taken = 0
    for start, end in zip(starts, found, strict=True):
        choices = _reach(board, start) & ~(taken | 1 << start | 1 << end)
        if not choices:
            return None
        stop = pick(rng, choices)
        taken |= stop
        via.append(stop.bit_length() - 1)
    return Ends(starts, found, via)


def longest_way(board: Board) -> int:
    """The longest of all shortest ways on a board, in moves."""
    return max((len(board.layers(v)) - 1 for v in members(board.free)), default=0)


def _far(rng: random.Random, board: Board, agents: int, goals: int) -> Ends | None:
    layers = {v: board.layers(v) for v in members(board.free)}
    longest = max(map(len, layers.values())) - 1
    least = max(1, -(-FAR_PERCENT * longest // 100))
    # All cells at least that far from each cell.
    beyond = {v: sum(found[least:]) for v, found in layers.items()}
    ends = Ends([], [], [] if goals == 2 else None)
    for _ in range(agents):
        start = _drawn(rng, sum(1 << v for v, cells in beyond.items() if cells), ends.starts)
        stop = start
        if ends.via is not None and start is not None:
            stop = _drawn(rng, beyond[start], ends.via)
            ends.via.append(-1 if stop is None else stop)
        if start is None or stop is None:
            return None
        goal = _drawn(rng, beyond[stop], [*ends.goals, start])
        if goal is None:
            return None
        ends.starts.append(start)
        ends.goals.append(goal)
    return ends


def _drawn(rng: random.Random, cells: int, taken: list[int]) -> int | None:
    cells &= ~sum(1 << v for v in set(taken))
    return pick(rng, cells).bit_length() - 1 if cells else None


def _crossing(rng: random.Random, board: Board, agents: int, goals: int) -> Ends | None:
    starts = _starts(rng, board, agents)
    if starts is None:
        return None
    ends = Ends(starts, [], [] if goals == 2 else None)
    ways: list[list[int]] = []
    for start in starts:
        reach = _reach(board, start) & ~(1 << start)
        stops = [start]
        if ends.via is not None:
            stop = _drawn(rng, reach, ends.via)
            if stop is None:
                return None
            stops.append(stop)
            ends.via.append(stop)
        choices = [v for v in members(reach) if v not in ends.goals and v not in stops]
        for goal in shuffled(choices, rng):
            way = first_way(board, *stops, goal)
            if way and (not ways or any(collide([way, other]) for other in ways)):
                ways.append(way)
                ends.goals.append(goal)
                break
        else:
            return None
    return ends


_PLACERS: dict[str, Callable[[random.Random, Board, int, int], Ends | None]] = {
    "uniform": _uniform,
    "far": _far,
    "crossing": _crossing,
}
