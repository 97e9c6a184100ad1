"""Whether three agents can get to their goals at all.

Three agents never fill a cycle of a grid, so whatever they can do at once they can do one after the other, and it is
enough to flood the joint space by moves of one agent. All joint states are bits of one integer: state (a, b, c) is bit
``(a * n + b) * n + c``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from envsim.lake.grid import Board, Lattice
from envsim.lake.joint import spread_out


def solvable(board: Board, starts: Sequence[int], goals: Sequence[int]) -> bool:
    """Whether there is a plan. Integers of n ** 3 bits: 125 KB for a 10x10 lake."""
    n = board.n
    moves, apart = _space(board.lattice)
    row = board.free
    pair = spread_out(row, n) * row
    unseen = spread_out(row, n * n) * pair & apart
    frontier, goal = (1 << (a * n + b) * n + c for a, b, c in (starts, goals))
    while frontier and not frontier & goal:
        unseen &= ~frontier
        reached = 0
        for shift, ahead, back in moves:
            reached |= (frontier & ahead) << shift | (frontier & back) >> shift
        frontier = reached & unseen
    return bool(frontier)


@lru_cache(maxsize=16)
def _space(lattice: Lattice) -> tuple[list[tuple[int, int, int]], int]:
    """Each agent's axes as (shift, states that can move ahead, back); the states with all agents apart."""
    n = lattice.rows * lattice.columns
    row = (1 << n) - 1
    plane = spread_out(row, n) * row
    every_row, every_pair = spread_out(row, n), spread_out(row, n * n)
    every_second = every_pair * every_row
    moves = []
    for d, *sources in lattice.axes:
        first = [spread_out(cells, n * n) * plane for cells in sources]
        second = [every_pair * (spread_out(cells, n) * row) for cells in sources]
        third = [every_second * cells for cells in sources]
        moves += [(d * n * n, first[0], first[1]), (d * n, second[0], second[1]), (d, third[0], third[1])]
    same = sum(1 << v * n + v for v in range(n))
    clash = every_pair * same
    for v in range(n):
        clash |= (every_row << v) << v * n * n
        clash |= row << (v * n + v) * n
    return moves, spread_out(row, n * n) * plane & ~clash
