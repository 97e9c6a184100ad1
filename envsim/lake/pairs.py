"""Exact costs to go of two agents for all their cells at once: the bound that makes searches of 3 to 5 agents small.

A set of joint cells is one bit mask of the second agent's cells for each cell of the first, so a backward step over the
whole joint space is a few integer operations a row.

References: operator decomposition with pairwise tables follows Goldenberg et al., "Enhanced Partial Expansion A*",
JAIR 2014; the bounds from several pairs are the disjoint and the averaged sum of Felner et al., ICAPS 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from envsim.lake.grid import Board
from envsim.lake.search import UNREACHABLE, Bound


def makespan_bound(board: Board, goals: Sequence[int]) -> Bound:
    """The largest of the exact makespans of all pairs."""
    n = board.n
    tables = [(i, j, makespan_table(board, goals[i], goals[j])) for i, j in combinations(range(len(goals)), 2)]

    def bound(cells: Sequence[int], _finished: int) -> int:
        return max([table[cells[i] * n + cells[j]] for i, j, table in tables])

    return bound


def soc_bound(board: Board, goals: Sequence[int]) -> Bound:
    """The best of the sums over disjoint pairs, the rest alone, and the averaged sum over all pairs, rounded up."""
    n, agents = board.n, len(goals)
    alone = [_filled(board.distances(goal)) for goal in goals]
    pairs = list(combinations(range(agents), 2))
    tables = [(i, j, *soc_table(board, goals[i], goals[j])) for i, j in pairs]
    matchings = [[pairs.index(pair) for pair in matching] for matching in _matchings(tuple(range(agents)))]

    def bound(cells: Sequence[int], finished: int) -> int:
        own = [0 if finished >> i & 1 else alone[i][cell] for i, cell in enumerate(cells)]
        excess = []
        for i, j, both, first_done, second_done in tables:
            if not finished >> i & 1:
                cost = second_done[cells[i]] if finished >> j & 1 else both[cells[i] * n + cells[j]]
            else:
                cost = 0 if finished >> j & 1 else first_done[cells[j]]
            excess.append(cost - own[i] - own[j])
        averaged = -(-sum(excess) // (agents - 1))
        if averaged <= 0:
            return sum(own)
        return sum(own) + max(averaged, *[sum([excess[k] for k in matching]) for matching in matchings])

    return bound


def makespan_table(board: Board, first: int, second: int) -> list[int]:
    """Optimal makespan of two agents from cells (a, b), at index a * n + b, to two goals."""
    n = board.n
    table = [UNREACHABLE] * (n * n)
    rows = [0] * n
    rows[first] = 1 << second
    unseen = [board.free & ~(1 << a) if board.free >> a & 1 else 0 for a in range(n)]
    steps = 0
    while any(rows):
        _write(table, rows, unseen, steps, n)
        rows = before(board, rows)
        rows = [row & left for row, left in zip(rows, unseen, strict=True)]
        steps += 1
    return table


def soc_table(board: Board, first: int, second: int) -> tuple[list[int], list[int], list[int]]:
    """Optimal sum of costs of two agents from (a, b); of the second once the first has finished; and the other way."""
    n = board.n
    first_done = _filled(board.distances(second, blocked=1 << first))
    second_done = _filled(board.distances(first, blocked=1 << second))
    table = [UNREACHABLE] * (n * n)
    levels: dict[int, list[int]] = {}
    for v in range(n):
        for a, b, cost in ((first, v, first_done[v]), (v, second, second_done[v])):
            if a != b and cost < UNREACHABLE:
                levels.setdefault(cost, [0] * n)[a] |= 1 << b
    unseen = [board.free & ~(1 << a) if board.free >> a & 1 else 0 for a in range(n)]
    cost = 0
    while levels:
        rows = levels.pop(cost, None)
        if rows is not None:
            rows = [row & left for row, left in zip(rows, unseen, strict=True)]
            if any(rows):
                _write(table, rows, unseen, cost, n)
                earlier = before(board, rows)
                known = levels.get(cost + 2, [0] * n)
                levels[cost + 2] = [one | other for one, other in zip(earlier, known, strict=True)]
        cost += 1
    return table, first_done, second_done


def before(board: Board, rows: Sequence[int]) -> list[int]:
    """The joint cells from which one legal step of both agents leads into a set of joint cells."""
    neighbours, masks = board.neighbours, board.lattice.masks
    widened = [board.spread(row) | row if row else 0 for row in rows]
    found = list(widened)
    for a, row in enumerate(widened):
        if row:
            for u in neighbours[a]:
                found[u] |= row
    for a, reached in enumerate(found):
        row = reached & ~(1 << a)
        close = row & masks[a]
        while close:
            bit = close & -close
            close ^= bit
            b = bit.bit_length() - 1
            if rows[b] >> a & 1 and not _apart(rows, a, b, neighbours[a], masks):
                row ^= bit
        found[a] = row
    return found


def _apart(rows: Sequence[int], a: int, b: int, beside: Sequence[int], masks: Sequence[int]) -> bool:
    """Whether (a, b) leads into the set by another step than the swap to (b, a)."""
    reach = masks[b] | 1 << b
    if rows[b] & reach & ~(1 << a):
        return True
    return any(rows[u] & reach for u in (*beside, a) if u != b)


def _write(table: list[int], rows: Sequence[int], unseen: list[int], value: int, n: int) -> None:
    for a, row in enumerate(rows):
        unseen[a] &= ~row
        rest = row
        while rest:
            bit = rest & -rest
            rest ^= bit
            table[a * n + bit.bit_length() - 1] = value


def _filled(distances: Sequence[int]) -> list[int]:
    return [UNREACHABLE if d < 0 else d for d in distances]


def _matchings(agents: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """All sets of disjoint pairs that leave at most one agent out."""
    if len(agents) < 2:
        yield []
        return
    first, rest = agents[0], agents[1:]
    for k, other in enumerate(rest):
        for pairs in _matchings(rest[:k] + rest[k + 1 :]):
            yield [(first, other), *pairs]
    if len(agents) % 2:
        yield from _matchings(rest)
