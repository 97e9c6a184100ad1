"""``certify``: what is exactly true of an instance, proved by search and checked by the verifier.

The order is that of cost: the agents' first shortest paths, if they do not collide, are optimal for both objectives;
otherwise exact search. Every limit is a count of states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from envsim.api import EnvsimError
from envsim.lake.grid import Board, Cell, collide
from envsim.lake.instance import Certificate
from envsim.lake.pair import Pair
from envsim.lake.portfolio import solve
from envsim.lake.search import LimitReached, Objective, Result, Solved, Unsolvable
from envsim.lake.verifier import costs, first_fault, has_wait

LIMIT = 200_000
PAIR_LIMIT = 4_000_000
"""For two agents, where a state is a bit."""
MOVES = {(0, -1): "L", (1, 0): "D", (0, 1): "R", (-1, 0): "U", (0, 0): "S"}
_STEPS = {letter: step for step, letter in MOVES.items()}


def moves_of(path: Sequence[Cell]) -> str:
    """A path as one letter a step: ``L D R U``, ``S`` = stay."""
    return "".join(MOVES[(r - p, c - q)] for (p, q), (r, c) in pairwise(path))


def path_of(start: Cell, moves: str) -> list[Cell]:
    """The cells of a path from its letters."""
    path = [start]
    for letter in moves:
        dr, dc = _STEPS[letter]
        path.append((path[-1][0] + dr, path[-1][1] + dc))
    return path


@dataclass(frozen=True, slots=True)
class Limits:
    """Most states that each search of a certificate may expand."""

    makespan: int = LIMIT
    soc: int = LIMIT

    @classmethod
    def affordable(cls, agents: int) -> Limits:
        """For generation: up to 3 agents nearly always exact, with more the sum of costs gives up early."""
        return cls(makespan=60_000, soc=60_000 if agents <= 3 else 10_000)


class Analysis:
    """What is known so far of one layout; each question is answered once, the cheap ones first.

    Cells are numbers; ``via`` are the agents' intermediate goals, for two agents only. Raises EnvsimError if there are
    such for another number of agents, and from any question if the verifier refuses a plan of the solver.
    """

    def __init__(
        self,
        board: Board,
        rows: Sequence[str],
        starts: Sequence[int],
        goals: Sequence[int],
        limits: Limits,
        *,
        via: Sequence[int] | None = None,
    ) -> None:
        if via is not None and len(starts) != 2:
            raise EnvsimError(f"{len(starts)} agents have intermediate goals; expected 2 agents, or no such goals")
        self.board, self.rows, self.starts, self.goals, self.limits = board, rows, starts, goals, limits
        self.via = via
        self._ends = [board.lattice.cells[v] for v in goals]
        stops = goals if via is None else via
        paths = [board.path(s, g) for s, g in zip(starts, stops, strict=True)]
        if via is not None:
            rest = [board.path(s, g) for s, g in zip(via, goals, strict=True)]
            paths = [one and other and [*one, *other[1:]] for one, other in zip(paths, rest, strict=True)]
        self.reachable = [path for path in paths if path is not None]
        self.connected = len(self.reachable) == len(paths)
        self.distances = [-1 if path is None else len(path) - 1 for path in paths]
        self.collides = self.connected and collide(self.reachable)
        self._pair: Pair | None = None
        self._apart: list[list[int]] | None = None
        self._soc: Result | None = None
        self._makespan: Result | None = None
        self._needs_wait: tuple[bool | None] | None = None

    def soc(self) -> Result:
        """The optimal sum of costs."""
        if self._soc is None:
            self._soc = self._trivial("soc") or self._checked("soc", self._search("soc"))
        return self._soc

    def makespan(self) -> Result:
        """The optimal makespan."""
        if self._makespan is None:
            self._makespan = self._trivial("makespan") or self._checked("makespan", self._search("makespan"))
        return self._makespan

    def needs_wait_soc(self) -> bool | None:
        """Whether every plan of optimal sum of costs has a wait; None if unknown or there is no plan.

        On a bipartite grid the number of waits has the parity of (optimum - sum of distances), so only an even
        difference can need a second search.
        """
        if self._needs_wait is None:
            soc = self.soc()
            if self.connected and not self.collides:
                answer: bool | None = False
            elif not isinstance(soc, Solved):
                answer = None
            elif (soc.cost - sum(self.distances)) % 2:
                answer = True
            else:
                answer = self._needs_wait_beyond("soc", soc)
            self._needs_wait = (answer,)
        return self._needs_wait[0]

    def needs_wait_makespan(self) -> bool | None:
        """Whether every plan of optimal makespan has a wait; None if unknown or there is no plan."""
        makespan = self.makespan()
        return self._needs_wait_beyond("makespan", makespan) if isinstance(makespan, Solved) else None

    def certificate(self) -> Certificate:
        """All of it. ``solvable`` is False only if that is proved; raises EnvsimError if the limit left it open."""
        makespan = self.makespan()
        if isinstance(makespan, LimitReached):
            raise EnvsimError(
                f"the optimal makespan is open after {makespan.expanded} states (at least {makespan.lower_bound}); "
                "raise the solver's limit or drop the instance"
            )
        if isinstance(makespan, Unsolvable):
            return Certificate(solvable=False, distances=self.distances, paths_collide=self.collides)
        soc = self.soc()
        reference, both = makespan, None
        if isinstance(soc, Solved):
            cheapest = self._cheapest_at(makespan, soc)
            if cheapest is not None:
                reference, both = cheapest, cheapest.cost
        plan = self._cells(reference.plan)
        return Certificate(
            solvable=True,
            distances=self.distances,
            makespan=makespan.cost,
            sum_of_costs=soc.cost if isinstance(soc, Solved) else None,
            sum_of_costs_at_makespan=both,
            needs_wait_soc=self.needs_wait_soc(),
            needs_wait_makespan=self.needs_wait_makespan(),
            reference_has_wait=self.collides and has_wait(self._ends, plan),
            paths_collide=self.collides,
            coordination_cost=soc.cost - sum(self.distances) if isinstance(soc, Solved) else None,
            plan=[moves_of(path) for path in plan],
        )

    def _trivial(self, objective: Objective) -> Result | None:
        """Shortest paths that do not collide are optimal for both objectives."""
        if not self.connected:
            return Unsolvable(0)
        if self.collides:
            return None
        cost = self._least(objective)
        if self._apart is not None:
            return Solved(cost, self._apart, 0)
        longest = max(map(len, self.reachable))
        self._apart = [path + [path[-1]] * (longest - len(path)) for path in self.reachable]
        return self._checked(objective, Solved(cost, self._apart, 0))

    def _least(self, objective: Objective) -> int:
        """What each agent would cost alone."""
        return sum(self.distances) if objective == "soc" else max(self.distances)

    def _search(
        self,
        objective: Objective,
        *,
        waits: bool = True,
        most: int | None = None,
        horizon: int | None = None,
        least: int = 0,
    ) -> Result:
        limit = self.limits.soc if objective == "soc" else self.limits.makespan
        if len(self.starts) == 2:
            if self._pair is None:
                self._pair = Pair(self.board, self.starts, self.goals, via=self.via)
            least = max(least, self._least(objective))
            return self._pair.cheapest(objective, limit=limit, waits=waits, most=most, horizon=horizon, least=least)
        ends = (self.board, self.starts, self.goals, objective)
        return solve(*ends, limit=limit, waits=waits, most=most, horizon=horizon, least=least)

    def _needs_wait_beyond(self, objective: Objective, optimal: Solved) -> bool | None:
        if not self.collides or not has_wait(self._ends, self._cells(optimal.plan)):
            return False
        without = self._checked(objective, self._search(objective, waits=False, most=optimal.cost, least=optimal.cost))
        return None if isinstance(without, LimitReached) else isinstance(without, Unsolvable)

    def _cheapest_at(self, makespan: Solved, soc: Solved) -> Solved | None:
        if not self.collides or max(costs(self._ends, self._cells(soc.plan))) == makespan.cost:
            return soc
        most = sum(costs(self._ends, self._cells(makespan.plan)))
        found = self._checked("soc", self._search("soc", horizon=makespan.cost, most=most, least=soc.cost))
        return found if isinstance(found, Solved) else None

    def _checked(self, objective: Objective, result: Result) -> Result:
        if isinstance(result, Solved):
            plan = self._cells(result.plan)
            cells = self.board.lattice.cells
            via = None if self.via is None else [cells[v] for v in self.via]
            fault = first_fault(self.rows, [cells[v] for v in self.starts], self._ends, plan, via)
            spent = costs(self._ends, plan) if fault is None else []
            if (sum(spent) if objective == "soc" else max(spent, default=-1)) != result.cost:
                raise EnvsimError(
                    f"the solver's plan for {objective} {result.cost}: {fault or spent}; this is a defect"
                )
        return result

    def _cells(self, plan: Sequence[Sequence[int]]) -> list[list[Cell]]:
        cells = self.board.lattice.cells
        return [[*map(cells.__getitem__, path)] for path in plan]


def analyse(
    rows: Sequence[str],
    starts: Sequence[Cell],
    goals: Sequence[Cell],
    limits: Limits | None = None,
    *,
    via: Sequence[Cell] | None = None,
) -> Analysis:
    """The analysis of a layout of (row, column) cells."""
    columns = len(rows[0])
    s, g = ([r * columns + c for r, c in cells] for cells in (starts, goals))
    stops = None if via is None else [r * columns + c for r, c in via]
    if limits is None:
        limits = Limits(PAIR_LIMIT, PAIR_LIMIT) if len(starts) == 2 else Limits()
    return Analysis(Board.of(rows), rows, s, g, limits, via=stops)
