"""Other people's solvers behind one interface, to compare answers and speed with: w9-pathfinding and pymapf.

Both minimise the sum of costs. They are no dependency: the extra ``oracle`` installs them, and ``Missing`` says so.
``prepare`` puts a layout into a solver's notation, ``solve`` builds the solver's own map and asks it, ``read`` says
what came back. The plans are checked and priced by the one verifier.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from envsim.api import EnvsimError
from envsim.lake.grid import FREE, Cell
from envsim.lake.verifier import costs, first_fault

P = TypeVar("P")
R = TypeVar("R")
GET = "pip install 'envwright[oracle]'"


class Layout(NamedTuple):
    """A lake and who goes where; cells are (row, column)."""

    rows: list[str]
    starts: list[Cell]
    goals: list[Cell]


class Answer(NamedTuple):
    """What a solver says of a layout.

    ``solvable`` is None if it gave up. ``makespan`` and ``soc`` are optimal costs, None where it does not say;
    ``steps`` is the makespan of its own ``plan``. That there is no plan is claimed only for plans of at most
    ``within`` steps, if that is given. ``complete``: all that was asked is answered.
    """

    solvable: bool | None
    makespan: int | None = None
    soc: int | None = None
    steps: int | None = None
    within: int | None = None
    complete: bool = True
    plan: list[list[Cell]] | None = None


GAVE_UP = Answer(None, complete=False)


class Solver(ABC, Generic[P, R]):
    """One way to solve layouts. ``solve`` is what is timed."""

    name: ClassVar[str]

    @abstractmethod
    def prepare(self, layout: Layout) -> P:
        """The layout in the solver's notation."""

    @abstractmethod
    def solve(self, problem: P) -> R:
        """Ask the solver."""

    @abstractmethod
    def read(self, found: R) -> Answer:
        """What the solver's return value means; with a plan where the verifier has not seen it yet."""


class Missing(EnvsimError):
    """A solver to compare with is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: {GET}")


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class _W9Problem(NamedTuple):
    weights: list[list[float]]
    starts: list[tuple[int, int]]
    goals: list[tuple[int, int]]
    longest: int


class _W9Found(NamedTuple):
    paths: list[list[tuple[int, int]]] | None
    longest: int


class W9(Solver[_W9Problem, _W9Found]):
    """A solver of w9-pathfinding that gives up after ``patience`` seconds.

    Its cells are (x, y). Swaps are legal there unless ``edge_collision`` forbids them. An empty list means that there
    is no plan with paths of at most ``max_length``.
    """

    package: ClassVar[str] = "w9-pathfinding"

    def __init__(self, patience: float) -> None:
        try:
            envs, mapf = (import_module(f"w9_pathfinding.{name}") for name in ("envs", "mapf"))
        except ImportError as error:
            raise Missing(self.package) from error
        self._patience, self._grid, self._mapf = patience, envs.Grid, mapf

    def prepare(self, layout: Layout) -> _W9Problem:
        weights = [[1.0 if mark == FREE else -1.0 for mark in row] for row in layout.rows]
        starts, goals = ([(c, r) for r, c in cells] for cells in (layout.starts, layout.goals))
        return _W9Problem(weights, starts, goals, max(100, 2 * len(weights) * len(weights[0])))

    def solve(self, problem: _W9Problem) -> _W9Found:
        solver = self._solver(self._grid(problem.weights, edge_collision=True))
        try:
            paths = solver.mapf(problem.starts, problem.goals, max_length=problem.longest, max_time=self._patience)
        except RuntimeError as error:
            if str(error) != "Timeout":
                raise
            paths = None
        return _W9Found(paths, problem.longest)

    def read(self, found: _W9Found) -> Answer:
        if found.paths is None:
            return GAVE_UP
        if not found.paths:
            return Answer(False, within=found.longest)
        return Answer(True, plan=[[(y, x) for x, y in path] for path in found.paths])

    @abstractmethod
    def _solver(self, grid: Any) -> Any: ...


class W9CBS(W9):
    """Conflict-Based Search with disjoint splitting, in C++."""

    name = "w9 CBS"

    def _solver(self, grid: Any) -> Any:
        return self._mapf.CBS(grid, seed=0)


class W9AStar(W9):
    """Joint A* with operator decomposition, in C++."""

    name = "w9 joint A*"

    def _solver(self, grid: Any) -> Any:
        return self._mapf.MultiAgentAStar(grid)


class _PymapfProblem(NamedTuple):
    blocked: list[list[bool]]
    ends: list[tuple[str, Cell, Cell]]


class _PymapfFound(NamedTuple):
    paths: list[list[Cell]] | None
    in_time: bool


class Pymapf(Solver[_PymapfProblem, _PymapfFound]):
    """Conflict-Based Search in Python; gives up at the first node after ``patience`` seconds."""

    name = "pymapf CBS"
    package: ClassVar[str] = "pymapf"

    def __init__(self, patience: float) -> None:
        try:
            pymapf = import_module("pymapf")
        except ImportError as error:
            raise Missing(self.package) from error
        self._patience, self._pymapf = patience, pymapf

    def prepare(self, layout: Layout) -> _PymapfProblem:
        ends = zip(layout.starts, layout.goals, strict=True)
        return _PymapfProblem(
            [[mark != FREE for mark in row] for row in layout.rows],
            [(str(agent), start, goal) for agent, (start, goal) in enumerate(ends)],
        )

    def solve(self, problem: _PymapfProblem) -> _PymapfFound:
        began = time.perf_counter()
        agents = [self._pymapf.Agent(*end) for end in problem.ends]
        asked = self._pymapf.MAPFProblem(self._pymapf.GridMap(problem.blocked), agents)
        solver = self._pymapf.ConflictBasedSearch(max_expansions=10**9, time_limit=self._patience)
        solution = solver.solve(asked)
        paths = None if solution is None else [solution.paths[name] for name, _, _ in problem.ends]
        return _PymapfFound(paths, time.perf_counter() - began < self._patience)

    def read(self, found: _PymapfFound) -> Answer:
        if found.paths is not None:
            return Answer(True, plan=found.paths)
        return Answer(False) if found.in_time else GAVE_UP


ORACLES: dict[str, tuple[type[W9 | Pymapf], ...]] = {"w9": (W9CBS, W9AStar), "pymapf": (Pymapf,)}
"""What there is to compare with, by package."""


def priced(name: str, layout: Layout, plan: Sequence[Sequence[Cell]]) -> Answer:
    """The answer of a solver of sums of costs that returned ``plan``. Raises EnvsimError if the verifier refuses it."""
    fault = first_fault(layout.rows, layout.starts, layout.goals, plan)
    if fault is not None:
        raise EnvsimError(f"the plan of {name} has {fault.outcome} at step {fault.step}: {described(layout)}")
    spent = costs(layout.goals, plan)
    return Answer(True, soc=sum(spent), steps=max(spent))


def described(layout: Layout) -> str:
    """A layout in one line that can be typed in again."""
    return f"rows {layout.rows}, starts {layout.starts}, goals {layout.goals}"
