"""Iterative deepening for 3 to 5 agents: is there a plan of this cost? If not, of one more?

Depth first, one agent after the other chooses its next cell, the best first, and a choice is given up as soon as the
exact costs of some two agents exceed what is left. States that failed are remembered with how much was left then, so no
state is searched twice for less. Where the bound of the pairs is the optimum, which is the rule, this walks almost
straight to the goals.

References: Korf, "Depth-First Iterative-Deepening", Artificial Intelligence 1985; Goldenberg et al., "Enhanced Partial
Expansion A*", JAIR 2014, for costs of few agents as a bound for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from math import prod
from typing import NamedTuple

import numpy as np

from envsim.lake.grid import Board
from envsim.lake.joint import costs_to_go
from envsim.lake.search import UNREACHABLE, LimitReached, Result, Solved, Unsolvable

Cells = tuple[int, ...]
MAX_COVERS = 5_000
"""Ways to share what pairs cost beyond their distances that are tried."""


def makespan(
    board: Board, starts: Sequence[int], goals: Sequence[int], *, first: int, last: int, limit: int, waits: bool = True
) -> Result:
    """A plan of the smallest makespan from ``first`` to ``last``; Unsolvable if there is none in that range."""
    question = _Makespan(board, goals, waits=waits)
    return _deepen(question, starts, first, last, limit)


def sum_of_costs(
    board: Board,
    starts: Sequence[int],
    goals: Sequence[int],
    *,
    first: int,
    last: int,
    limit: int,
    waits: bool = True,
    horizon: int | None = None,
) -> Result:
    """A plan of the smallest sum of costs from ``first`` to ``last``; Unsolvable if there is none in that range."""
    question = _SumOfCosts(board, goals, waits=waits, horizon=horizon)
    return _deepen(question, starts, first, last, limit)


def _deepen(question: _Question, starts: Sequence[int], first: int, last: int, limit: int) -> Result:
    for cost in range(first, last + 1):
        steps = _search(question, tuple(starts), cost, limit)
        if steps is None:
            return LimitReached(cost, question.expanded)
        if steps:
            while len(steps) > 1 and steps[-1] == steps[-2]:
                steps.pop()
            return Solved(cost, [list(path) for path in zip(*steps, strict=True)], question.expanded)
    return Unsolvable(question.expanded)


def _search(question: _Question, starts: Cells, cost: int, limit: int) -> list[Cells] | None:
    """The cells of all agents by time; empty if there is no plan of that cost; None if the limit is reached."""
    begun = question.begin(starts, cost)
    start = State(starts, 0, 0)
    if begun is None:
        return []
    if question.done(start):
        return [starts]
    failed = {question.key(start): begun}
    path = [starts]
    stack = [question.next(start, begun)]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
            path.pop()
            continue
        state, left = found
        key = question.key(state)
        if failed.get(key, -1) >= left:
            continue
        failed[key] = left
        path.append(state.cells)
        if question.done(state):
            return path
        if question.expanded > limit:
            return None
        stack.append(question.next(state, left))
    return []


class State(NamedTuple):
    cells: Cells
    finished: int
    """Agents that stay where they are for good, as bits."""
    time: int


class _Question(ABC):
    """What the depth-first search asks of an objective."""

    def __init__(self, board: Board, goals: Sequence[int], *, waits: bool) -> None:
        self.n, self.goals, self.waits = board.n, tuple(goals), waits
        self.distance = [_costs_alone(board, goal) for goal in goals]
        self.expanded = 0
        """Choices of an agent's next cell made so far, after those of the agents before it."""
        self._neighbours = board.neighbours
        self._options: list[dict[int, list[int]]] = [{} for _ in goals]

    def options(self, agent: int, here: int) -> list[int]:
        """An agent's next cells, the nearest to its goal first."""
        found = self._options[agent].get(here)
        if found is None:
            cells = [*self._neighbours[here], here] if self.waits else list(self._neighbours[here])
            found = self._options[agent][here] = sorted(cells, key=self.distance[agent].__getitem__)
        return found

    @abstractmethod
    def begin(self, starts: Cells, cost: int) -> int | None:
        """What is left to spend at the start; None if it is too little."""

    @abstractmethod
    def done(self, state: State) -> bool: ...

    @abstractmethod
    def key(self, state: State) -> Hashable:
        """What makes two states the same."""

    @abstractmethod
    def next(self, state: State, left: int) -> Iterator[tuple[State, int]]:
        """The state, and what is left, after each legal joint step, the most promising first."""


class _Makespan(_Question):
    """What is left is time."""

    def __init__(self, board: Board, goals: Sequence[int], *, waits: bool) -> None:
        super().__init__(board, goals, waits=waits)
        self._pairs = [
            [costs_to_go(board, (goals[j], goal), "makespan").ravel().tolist() for j in range(i)]
            for i, goal in enumerate(goals)
        ]

    def begin(self, starts: Cells, cost: int) -> int | None:
        pairs = [
            table[starts[j] * self.n + starts[i]] for i, row in enumerate(self._pairs) for j, table in enumerate(row)
        ]
        return cost if max(pairs) <= cost else None

    def done(self, state: State) -> bool:
        return state.cells == self.goals

    def key(self, state: State) -> Hashable:
        return state.cells if self.waits else (state.cells, state.finished)

    def next(self, state: State, left: int) -> Iterator[tuple[State, int]]:
        return self._choose(state, left - 1, state.finished, ())

    def _choose(self, state: State, left: int, finished: int, chosen: Cells) -> Iterator[tuple[State, int]]:
        self.expanded += 1
        cells, i, n = state.cells, len(chosen), self.n
        here, distance, tables = cells[i], self.distance[i], self._pairs[i]
        last = i == len(cells) - 1
        for there, now in self._ways(i, here, finished):
            if distance[there] > left:
                continue
            for j in range(i):
                other = chosen[j]
                if other == there or (other == here and cells[j] == there) or tables[j][other * n + there] > left:
                    break
            else:
                if last:
                    yield State((*chosen, there), now, state.time + 1), left
                else:
                    yield from self._choose(state, left, now, (*chosen, there))

    def _ways(self, agent: int, here: int, finished: int) -> Iterable[tuple[int, int]]:
        """(next cell, finished agents): only where waits are forbidden does it matter who has finished."""
        if self.waits:
            return [(there, finished) for there in self.options(agent, here)]
        stays = [(here, finished | 1 << agent)] if here == self.goals[agent] else []
        if finished >> agent & 1:
            return stays
        return stays + [(there, finished) for there in self.options(agent, here)]


class _SumOfCosts(_Question):
    """What is left is slack: the cost asked for less what is spent and less the agents' own distances to go.

    A step towards the goal takes none of it, a wait one, a step away two.
    """

    def __init__(self, board: Board, goals: Sequence[int], *, waits: bool, horizon: int | None) -> None:
        super().__init__(board, goals, waits=waits)
        self._everyone = (1 << len(goals)) - 1
        self._horizon = horizon
        self._both: list[list[list[int]]] = []
        """By agents i > j and cells of j and i: what the two have to go beyond their own distances."""
        self._around: list[list[tuple[list[int], list[int]]]] = []
        """The same of i once j has finished, by its cell, and of j once i has."""
        own = [np.array(row) for row in self.distance]
        for i, goal in enumerate(goals):
            both = [costs_to_go(board, (goals[j], goal), "soc") - own[j][:, None] - own[i] for j in range(i)]
            self._both.append([table.ravel().tolist() for table in both])
            self._around.append([(self._detours(board, i, goals[j]), self._detours(board, j, goal)) for j in range(i)])

    def _detours(self, board: Board, agent: int, parked: int) -> list[int]:
        around = _costs_alone(board, self.goals[agent], parked)
        return [longer - own for longer, own in zip(around, self.distance[agent], strict=True)]

    def begin(self, starts: Cells, cost: int) -> int | None:
        slack = cost - sum(self.distance[i][cell] for i, cell in enumerate(starts))
        return None if slack < 0 or self._excess(starts, 0) > slack else slack

    def done(self, state: State) -> bool:
        return state.finished == self._everyone

    def key(self, state: State) -> Hashable:
        return state[:2] if self._horizon is None else state

    def next(self, state: State, left: int) -> Iterator[tuple[State, int]]:
        return self._choose(state, left, state.finished, ())

    def _choose(self, state: State, slack: int, finished: int, chosen: Cells) -> Iterator[tuple[State, int]]:
        self.expanded += 1
        cells, i, n = state.cells, len(chosen), self.n
        here, distance, both = cells[i], self.distance[i], self._both[i]
        steps = UNREACHABLE if self._horizon is None else self._horizon - state.time - 1
        last = i == len(cells) - 1
        for there, now in self._ways(i, here, state.finished, finished):
            rest = slack
            if not now >> i & 1:
                rest += distance[here] - 1 - distance[there]
                if rest < 0 or distance[there] > steps:
                    continue
            for j in range(i):
                other = chosen[j]
                if other == there or (other == here and cells[j] == there):
                    break
                beyond = self._beyond(j, i, other, there, now) if now else both[j][other * n + there]
                if beyond > rest:
                    break
            else:
                moved = (*chosen, there)
                if not last:
                    yield from self._choose(state, rest, now, moved)
                elif self._excess(moved, now) <= rest:
                    yield State(moved, now, state.time + 1), rest

    def _ways(self, agent: int, here: int, before: int, finished: int) -> list[tuple[int, int]]:
        """(next cell, finished agents): at its goal an agent may finish, which is free from then on."""
        if before >> agent & 1:
            return [(here, finished)]
        finish = [(here, finished | 1 << agent)] if here == self.goals[agent] else []
        return finish + [(there, finished) for there in self.options(agent, here)]

    def _beyond(self, j: int, i: int, one: int, other: int, finished: int) -> int:
        """What two agents (j < i) in cells ``one`` and ``other`` have to go beyond their own distances."""
        if finished >> j & 1:
            return 0 if finished >> i & 1 else self._around[i][j][0][other]
        return self._around[i][j][1][one] if finished >> i & 1 else self._both[i][j][one * self.n + other]

    def _excess(self, cells: Cells, finished: int) -> int:
        """What all agents have to go beyond their own distances, at least."""
        agents = len(cells)
        weights = [self._beyond(j, i, cells[j], cells[i], finished) for i in range(agents) for j in range(i)]
        return smallest_cover(tuple(weights)) if any(weights) else 0


@lru_cache(maxsize=1 << 18)
def smallest_cover(weights: tuple[int, ...]) -> int:
    """The least that agents can go beyond their own distances if every two together go at least a weight beyond.

    ``weights`` are those of agents (0, 1), (0, 2), (1, 2), (0, 3), ... This is the edge-weighted vertex cover of Li et
    al., "Improved Heuristics for Multi-Agent Path Finding with Conflict-Based Search", IJCAI 2019. Where weights are so
    large that all ways to share them cannot be tried, it is a bound from below: the largest weight, or all of them
    together, in which each agent is counted agents - 1 times.
    """
    agents = next(k for k in count(2) if k * (k - 1) // 2 == len(weights))
    rows = [weights[i * (i - 1) // 2 : i * (i + 1) // 2] for i in range(agents)]
    if prod(max(row, default=0) + 1 for row in rows) > MAX_COVERS:
        return max(*weights, -(-sum(weights) // (agents - 1)))

    def least(i: int, taken: tuple[int, ...]) -> int:
        if i < 0:
            return 0
        row = rows[i]
        return min(
            own + least(i - 1, tuple([max(low, weight - own) for low, weight in zip(taken, row, strict=False)]))
            for own in range(taken[i], max(taken[i], *row, 0) + 1)
        )

    return least(agents - 1, (0,) * agents)


def _costs_alone(board: Board, goal: int, parked: int | None = None) -> list[int]:
    """An agent's distance to its goal from every cell, around one that is parked at a cell."""
    distances = board.distances(goal, 0 if parked is None else 1 << parked)
    return [UNREACHABLE if d < 0 else d for d in distances]
