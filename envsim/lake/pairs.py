"""Exact costs to go of every two agents as a bound for all: what makes searches of 3 to 5 agents small.

References: operator decomposition with pairwise tables follows Goldenberg et al., "Enhanced Partial Expansion A*",
JAIR 2014; the bounds from several pairs are the disjoint and the averaged sum of Felner et al., ICAPS 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from envsim.lake.grid import Board
from envsim.lake.joint import costs_to_go
from envsim.lake.search import UNREACHABLE, Bound


def makespan_bound(board: Board, goals: Sequence[int]) -> Bound:
    """The largest of the exact makespans of all pairs."""
    n = board.n
    pairs = combinations(range(len(goals)), 2)
    tables = [(i, j, costs_to_go(board, (goals[i], goals[j]), "makespan")) for i, j in pairs]

    def bound(cells: Sequence[int], _finished: int) -> int:
        return max([table[cells[i] * n + cells[j]] for i, j, table in tables])

    return bound


def soc_bound(board: Board, goals: Sequence[int]) -> Bound:
    """The best of the sums over disjoint pairs, the rest alone, and the averaged sum over all pairs, rounded up."""
    n, agents = board.n, len(goals)
    own_costs = [_filled(board.distances(goal)) for goal in goals]
    pairs = list(combinations(range(agents), 2))
    tables = [
        (i, j, costs_to_go(board, (goals[i], goals[j]), "soc"), *alone(board, goals[i], goals[j])) for i, j in pairs
    ]
    disjoint = [[pairs.index(pair) for pair in matching] for matching in matchings(tuple(range(agents)))]

    def bound(cells: Sequence[int], finished: int) -> int:
        own = [0 if finished >> i & 1 else own_costs[i][cell] for i, cell in enumerate(cells)]
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
        return sum(own) + max(averaged, *[sum([excess[k] for k in matching]) for matching in disjoint])

    return bound


def alone(board: Board, first: int, second: int) -> tuple[list[int], list[int]]:
    """What the second of two agents has to go once the first has finished, and the other way."""
    return _filled(board.distances(second, blocked=1 << first)), _filled(board.distances(first, blocked=1 << second))


def _filled(distances: Sequence[int]) -> list[int]:
    return [UNREACHABLE if d < 0 else d for d in distances]


def matchings(agents: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """All sets of disjoint pairs that leave at most one agent out."""
    if len(agents) < 2:
        yield []
        return
    first, rest = agents[0], agents[1:]
    for k, other in enumerate(rest):
        for pairs in matchings(rest[:k] + rest[k + 1 :]):
            yield [(first, other), *pairs]
    if len(agents) % 2:
        yield from matchings(rest)
