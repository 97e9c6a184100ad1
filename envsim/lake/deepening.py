"""Iterative deepening for 3 to 5 agents: is there a plan of this cost? If not, of one more?

Depth first, one agent after the other chooses its next cell, the best first, and a choice is given up as soon as the
exact costs of some two agents exceed what is left. States that failed are remembered with how much was left then, so no
state is searched twice for less. Where the bound of the pairs is the optimum, which is the rule, this walks almost
straight to the goals.

References: Korf, "Depth-First Iterative-Deepening", Artificial Intelligence 1985; the pairs' costs as pruning follow the
pattern databases of Goldenberg et al., "Enhanced Partial Expansion A*", JAIR 2014.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsim.lake.grid import Board
from envsim.lake.joint import costs_to_go
from envsim.lake.pairs import alone, matchings
from envsim.lake.search import UNREACHABLE, LimitReached, Result, Solved, Unsolvable

Cells = tuple[int, ...]
Table = list[int]


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


class _Question:
    """What the depth-first search asks of an objective. A state is (cells, finished agents as bits, time)."""

    def __init__(self, board: Board, goals: Sequence[int], *, waits: bool) -> None:
        self.n, self.goals, self.waits = board.n, tuple(goals), waits
        self.everyone = (1 << len(goals)) - 1
        self.distance = [_filled(board.distances(goal)) for goal in goals]
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

    def begin(self, cells: Cells, cost: int) -> int | None:
        """What is left to spend at the start; None if it is too little."""
        raise NotImplementedError

    def done(self, cells: Cells, finished: int) -> bool:
        raise NotImplementedError

    def next(self, cells: Cells, finished: int, left: int, time: int) -> Iterator[tuple[Cells, int, int]]:
        """(cells, finished agents, left to spend) after each legal joint step, the most promising first."""
        raise NotImplementedError

    timed = False
    """Whether a state is another one at another time."""


def _search(question: _Question, starts: Cells, cost: int, limit: int) -> list[Cells] | None:
    """The cells of all agents by time; empty if there is no plan of that cost; None if the limit is reached."""
    begun = question.begin(starts, cost)
    if begun is None:
        return []
    if question.done(starts, 0):
        return [starts]
    failed: dict[tuple[Cells, int, int], int] = {(starts, 0, 0): begun}
    path = [starts]
    stack = [question.next(starts, 0, begun, 0)]
    while stack:
        step = next(stack[-1], None)
        if step is None:
            stack.pop()
            path.pop()
            continue
        cells, finished, left = step
        time = len(path)
        state = (cells, finished, time if question.timed else 0)
        if failed.get(state, -1) >= left:
            continue
        failed[state] = left
        path.append(cells)
        if question.done(cells, finished):
            return path
        if question.expanded > limit:
            return None
        stack.append(question.next(cells, finished, left, time))
    return []


class _Makespan(_Question):
    """What is left is time."""

    def __init__(self, board: Board, goals: Sequence[int], *, waits: bool) -> None:
        super().__init__(board, goals, waits=waits)
        agents = range(len(goals))
        self._pairs = [[costs_to_go(board, (goals[j], goals[i]), "makespan") for j in range(i)] for i in agents]

    def begin(self, cells: Cells, cost: int) -> int | None:
        far = any(self.distance[i][cell] > cost for i, cell in enumerate(cells))
        far = far or any(
            table[cells[j] * self.n + cells[i]] > cost
            for i, row in enumerate(self._pairs)
            for j, table in enumerate(row)
        )
        return None if far else cost

    def done(self, cells: Cells, finished: int) -> bool:
        return cells == self.goals

    def next(self, cells: Cells, finished: int, left: int, time: int) -> Iterator[tuple[Cells, int, int]]:
        return self._choose(cells, finished, left - 1, ())

    def _choose(self, cells: Cells, finished: int, left: int, chosen: Cells) -> Iterator[tuple[Cells, int, int]]:
        self.expanded += 1
        i = len(chosen)
        here, n, distance, tables = cells[i], self.n, self.distance[i], self._pairs[i]
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
                    yield (*chosen, there), now, left
                else:
                    yield from self._choose(cells, now, left, (*chosen, there))

    def _ways(self, agent: int, here: int, finished: int) -> Iterator[tuple[int, int]]:
        if self.waits:
            for there in self.options(agent, here):
                yield there, finished
            return
        if here == self.goals[agent]:
            yield here, finished | 1 << agent
        if not finished >> agent & 1:
            for there in self.options(agent, here):
                yield there, finished


class _SumOfCosts(_Question):
    """What is left is slack: the cost asked for less what is spent and less the agents' own distances to go.

    A step towards the goal takes none of it, a wait one, a step away two.
    """

    def __init__(self, board: Board, goals: Sequence[int], *, waits: bool, horizon: int | None) -> None:
        super().__init__(board, goals, waits=waits)
        agents = range(len(goals))
        self._horizon = UNREACHABLE if horizon is None else horizon
        self.timed = horizon is not None
        self._both = [[costs_to_go(board, (goals[j], goals[i]), "soc") for j in range(i)] for i in agents]
        self._alone = [[alone(board, goals[j], goals[i]) for j in range(i)] for i in agents]
        self._matchings = [matching for matching in matchings(tuple(agents)) if len(matching) > 1]

    def begin(self, cells: Cells, cost: int) -> int | None:
        slack = cost - sum(self.distance[i][cell] for i, cell in enumerate(cells))
        return None if slack < 0 or self._excess(cells, 0) > slack else slack

    def done(self, cells: Cells, finished: int) -> bool:
        return finished == self.everyone

    def next(self, cells: Cells, finished: int, left: int, time: int) -> Iterator[tuple[Cells, int, int]]:
        return self._choose(cells, finished, left, finished, (), self._horizon - time - 1)

    def _choose(
        self, cells: Cells, before: int, slack: int, finished: int, chosen: Cells, steps: int
    ) -> Iterator[tuple[Cells, int, int]]:
        self.expanded += 1
        i = len(chosen)
        here, distance = cells[i], self.distance[i]
        own = distance[here]
        last = i == len(cells) - 1
        for there, now in self._ways(i, here, before, finished):
            rest = slack if now >> i & 1 else slack - 1 - distance[there] + own
            if rest < 0 or (not now >> i & 1 and distance[there] > steps):
                continue
            for j in range(i):
                other = chosen[j]
                if other == there or (other == here and cells[j] == there):
                    break
                if self._pair_excess(j, i, other, there, now) > rest:
                    break
            else:
                moved = (*chosen, there)
                if not last:
                    yield from self._choose(cells, before, rest, now, moved, steps)
                elif self._excess(moved, now) <= rest:
                    yield moved, now, rest

    def _ways(self, agent: int, here: int, before: int, finished: int) -> Iterator[tuple[int, int]]:
        if before >> agent & 1:
            yield here, finished
            return
        if here == self.goals[agent]:
            yield here, finished | 1 << agent
        for there in self.options(agent, here):
            yield there, finished

    def _pair_excess(self, j: int, i: int, one: int, other: int, finished: int) -> int:
        """What two agents (j < i) have to go beyond their own distances."""
        if not finished & (1 << i | 1 << j):
            return self._both[i][j][one * self.n + other] - self.distance[j][one] - self.distance[i][other]
        if finished >> i & finished >> j & 1:
            return 0
        second, first = self._alone[i][j]
        if finished >> j & 1:
            return second[other] - self.distance[i][other]
        return first[one] - self.distance[j][one]

    def _excess(self, cells: Cells, finished: int) -> int:
        """The best bound from several pairs: their sum over disjoint ones, or over all, each agent's share once."""
        agents = len(cells)
        pairs = {(j, i): self._pair_excess(j, i, cells[j], cells[i], finished) for i in range(agents) for j in range(i)}
        largest = max(pairs.values())
        if largest <= 0:
            return 0
        averaged = -(-sum(pairs.values()) // (agents - 1))
        return max(largest, averaged, *[sum([pairs[pair] for pair in matching]) for matching in self._matchings])


def _filled(distances: Sequence[int]) -> Table:
    return [UNREACHABLE if d < 0 else d for d in distances]
