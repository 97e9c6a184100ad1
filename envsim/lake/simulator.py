"""``Simulator``: the lake step by step, in plain integers. The standard faces are built on it.

Its rules are the verifier's, with one difference that every FrozenLake has: a move off the map stays in its cell. All
agents act at once, so following and rotation are legal. The first fault ends the episode for all: an agent in a hole,
two in one cell, two that swap. The episode also ends when every agent is at its goal; until then an agent at its goal
still blocks its cell and may move again.

With ``success_rate`` q < 1 each moving agent goes where it was told with probability q and to either side of that with
probability (1 - q) / 2; ``STAY`` never slips. Faults are those of the executed actions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from envsim.api import EnvsimError
from envsim.lake.chance import stream
from envsim.lake.grid import FREE, Board, Cell
from envsim.lake.instance import LakeInstance, check_layout
from envsim.lake.layout import draw

LEFT, DOWN, RIGHT, UP, STAY = ACTIONS = range(5)
"""FrozenLake's four, in its order, and ``STAY``."""

NAMES = ("left", "down", "right", "up", "stay")
_OFFSETS = ((0, -1), (1, 0), (0, 1), (-1, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended an episode: an outcome of the verifier, the lowest agent that it befell, and where and when."""

    outcome: str
    step: int
    agent: int
    cell: Cell


class Simulator:
    """One lake and where its agents are. Cells are numbers, ``row * columns + column``.

    Parameters
    ----------
    rows, starts, goals
        A layout as in ``LakeInstance``.
    via
        For each agent a cell that it must have been in before its goal counts; None if there is none.
    success_rate
        Probability in [0, 1] that a move goes where it was meant to.

    Attributes
    ----------
    positions : list of int
        Where the agents are. After a fault: where the executed actions led.
    time : int
        Steps since the start.
    executed : list of int
        The actions of the last step as they happened; empty before the first.
    failure : Failure or None
        The fault that ended the episode.
    arrived : bool
        Whether the episode ended with all agents at their goals. One in which they all start there ends, without
        a fault, at its first step.

    Raises
    ------
    EnvsimError
        The layout is not sound, or ``success_rate`` is no probability.
    """

    __slots__ = (
        "_arrivals",
        "_certain",
        "_goals",
        "_holes",
        "_moves",
        "_noise",
        "_pending",
        "_starts",
        "_via",
        "arrived",
        "board",
        "executed",
        "failure",
        "positions",
        "success_rate",
        "time",
    )

    def __init__(
        self,
        rows: Sequence[str],
        starts: Sequence[Cell],
        goals: Sequence[Cell],
        *,
        via: Sequence[Cell] | None = None,
        success_rate: float = 1.0,
    ) -> None:
        check_layout(rows, starts, goals, via)
        if not 0 <= success_rate <= 1:
            raise EnvsimError(f"success_rate is {success_rate}; expected a probability from 0 to 1")
        self.board = Board.of(rows)
        self.success_rate = success_rate
        self._certain = success_rate == 1
        self._moves = _moves(len(rows), self.board.columns)
        self._holes = [mark != FREE for mark in "".join(rows)]
        self._starts, self._goals = self._numbers(starts), self._numbers(goals)
        self._via = None if via is None else self._numbers(via)
        self.reset(0)

    @classmethod
    def of(cls, instance: LakeInstance, success_rate: float | None = None) -> Simulator:
        """The simulator of an instance, with the instance's own noise unless another is given."""
        return cls(
            instance.rows,
            instance.starts,
            instance.goals,
            via=instance.via,
            success_rate=instance.success_rate if success_rate is None else success_rate,
        )

    def reset(self, seed: int) -> None:
        """Back to the start. ``seed`` is that of the noise alone: it changes nothing where actions are certain."""
        self._noise = stream("noise", seed)
        self.positions = list(self._starts)
        self.time = 0
        self.executed: list[int] = []
        self.failure: Failure | None = None
        self.arrived = False
        self._arrivals = [0] * len(self._starts)
        waiting = zip(self._via or [], self._starts, strict=bool(self._via))
        self._pending = {i for i, (cell, start) in enumerate(waiting) if cell != start}

    @property
    def over(self) -> bool:
        return self.arrived or self.failure is not None

    def step(self, actions: Sequence[int]) -> bool:
        """Let every agent act once; returns whether the episode is over.

        Raises
        ------
        EnvsimError
            The episode is over already, or there is not one action from 0 to 4 for each agent.

        Notes
        -----
        O(agents).
        """
        before = self.positions
        if self.arrived or self.failure is not None:
            raise EnvsimError(f"the episode ended at step {self.time}; reset it first")
        if len(actions) != len(before):
            raise EnvsimError(f"there are {len(actions)} actions; expected {len(before)}, one for each agent")
        for action in actions:
            if not 0 <= action <= STAY:
                raise EnvsimError(f"the actions are {list(actions)}; expected each from {LEFT} to {STAY}")
        executed = list(actions) if self._certain else self._slipped(actions)
        moves = self._moves
        after = [moves[v][action] for v, action in zip(before, executed, strict=True)]
        self.positions = after
        self.executed = executed
        self.time += 1
        fault = self._fault(before, after)
        if fault is not None:
            outcome, agent = fault
            self.failure = Failure(outcome, self.time, agent, divmod(after[agent], self.board.columns))
            return True
        self._note_arrivals(before, after)
        self.arrived = after == self._goals and not self._pending
        return self.arrived

    def cells(self) -> list[Cell]:
        """Where the agents are, as (row, column)."""
        return [divmod(v, self.board.columns) for v in self.positions]

    def at_goal(self) -> list[bool]:
        """For each agent whether it is at its goal, with its intermediate goal behind it."""
        ends = zip(self.positions, self._goals, strict=True)
        return [v == goal and i not in self._pending for i, (v, goal) in enumerate(ends)]

    def pending(self) -> list[bool]:
        """For each agent whether its intermediate goal is still ahead."""
        return [i in self._pending for i in range(len(self.positions))]

    def costs(self) -> list[int]:
        """Each agent's last arrival at its goal, in steps; the time so far for an agent that is not there."""
        return [arrival if there else self.time for arrival, there in zip(self._arrivals, self.at_goal(), strict=True)]

    def safe_actions(self, agent: int) -> list[bool]:
        """For each action whether it stays on the map and out of holes, whatever the others do. ``STAY`` always does.

        In a hole, where an episode has ended, only ``STAY`` is.
        """
        here = self.positions[agent]
        return [
            action == STAY or (there != here and not self._holes[there] and not self._holes[here])
            for action, there in enumerate(self._moves[here])
        ]

    def _numbers(self, cells: Sequence[Cell]) -> list[int]:
        return [r * self.board.columns + c for r, c in cells]

    def _slipped(self, actions: Sequence[int]) -> list[int]:
        right, left = self.success_rate, (1 + self.success_rate) / 2
        executed = []
        for action in actions:
            if action != STAY:
                luck = self._noise.random()
                if luck >= right:
                    action = (action + (-1 if luck < left else 1)) % STAY  # noqa: PLW2901
            executed.append(action)
        return executed

    def _fault(self, before: list[int], after: list[int]) -> tuple[str, int] | None:
        """The first fault of a step in the verifier's order, and its lowest agent."""
        holes = self._holes
        for agent, v in enumerate(after):
            if holes[v]:
                return "hole", agent
        if len(set(after)) < len(after):
            return "vertex_conflict", next(agent for agent, v in enumerate(after) if after.count(v) > 1)
        for agent, v in enumerate(after):
            if v != before[agent] and v in before and after[before.index(v)] == before[agent]:
                return "edge_conflict", agent
        return None

    def _note_arrivals(self, before: list[int], after: list[int]) -> None:
        for agent, goal in enumerate(self._goals):
            if after[agent] == goal != before[agent]:
                self._arrivals[agent] = self.time
        if self._via is not None:
            self._pending = {agent for agent in self._pending if after[agent] != self._via[agent]}


def actions_along(paths: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """The joint actions that take agents along paths of cells, as the solver prints them: one list a step.

    A path that is shorter than others stays in its last cell.

    Raises
    ------
    EnvsimError
        There are no paths, one is empty, or two cells in turn are no move: says which agent and when.
    """
    if not paths or not all(paths):
        raise EnvsimError(f"the paths are {list(map(list, paths))}; expected at least one cell for each agent")
    found = []
    for t in range(1, max(map(len, paths))):
        step = []
        for agent, path in enumerate(paths):
            (r, c), (i, j) = path[min(t - 1, len(path) - 1)], path[min(t, len(path) - 1)]
            if (i - r, j - c) not in _OFFSETS:
                raise EnvsimError(
                    f"agent {agent} goes from ({r},{c}) to ({i},{j}) at t = {t}; expected a cell that shares a side, "
                    "or the same"
                )
            step.append(_OFFSETS.index((i - r, j - c)))
        found.append(step)
    return found


def _moves(rows: int, columns: int) -> list[tuple[int, ...]]:
    """Where each action leads from each cell; off the map means to stay."""
    found = []
    for v in range(rows * columns):
        r, c = divmod(v, columns)
        targets = [(r + dr, c + dc) for dr, dc in _OFFSETS]
        found.append(tuple(i * columns + j if 0 <= i < rows and 0 <= j < columns else v for i, j in targets))
    return found


def steps_per_second(seconds: float = 1.0, *, size: int = 5, agents: int = 2, success_rate: float = 1.0) -> float:
    """Steps of all agents together a second of processor time, on one core, resets included.

    Random safe-or-not actions on one random lake with a fifth of its cells holes; every episode ends within 50 steps.
    """
    rng = stream("steps_per_second", size, agents)
    layout = None
    while layout is None:
        layout = draw(rng, size, agents, round(0.2 * size * size))
    _, marks, starts, goals = layout
    rows = [marks[r * size : (r + 1) * size] for r in range(size)]
    ends = [[divmod(v, size) for v in cells] for cells in (starts, goals)]
    simulator = Simulator(rows, ends[0], ends[1], success_rate=success_rate)
    script = [[int(rng.random() * 5) for _ in range(agents)] for _ in range(1_000)]
    began = time.process_time()
    done = episodes = 0
    while (spent := time.process_time() - began) < seconds:
        for actions in script:
            if simulator.step(actions) or simulator.time == 50:
                episodes += 1
                simulator.reset(episodes)
        done += len(script)
    return done / spent
