"""One episode of a lake as both faces see it: reward, outcome, metrics, and what an observation holds."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envsim.api import EnvsimError
from envsim.faces.source import Source
from envsim.lake.grid import HOLE, Cell
from envsim.lake.instance import LakeInstance
from envsim.lake.simulator import STAY, Simulator

Reward = Literal["sparse", "shaped"]
Array = NDArray[Any]
Observation = dict[str, Array]

FREE_CELL, HOLE_CELL, OUTSIDE = range(3)
"""Marks of an observed map. A move to a cell outside the map stays."""


class Episode:
    """An instance being played.

    The sparse reward is 1 for the step at which all agents have arrived without a fault, else 0. The shaped one adds
    ``discount * potential(after) - potential(before)``, where the potential is the share of the agents' distances that
    they have come: 1 - (sum of the distances that are left) / (the sum at the start), and 0 once an episode has ended.
    So what progress earns is paid back at the end, and with the learner's own discount no policy becomes better or
    worse by it: Ng, Harada and Russell, "Policy invariance under reward transformations" (ICML 1999); that the
    potential of the end must be 0: Grzes, "Reward shaping in episodic reinforcement learning" (AAMAS 2017). An episode
    that is cut short by a time limit has not ended, so nothing is paid back then.
    """

    def __init__(
        self, instance: LakeInstance, seed: int, *, success_rate: float | None, reward: Reward, discount: float
    ) -> None:
        self.instance = instance
        self.simulator = Simulator.of(instance, success_rate)
        self.simulator.reset(seed)
        self._discount = discount
        self._left: list[tuple[list[int], list[int], int]] | None = None
        if reward == "shaped":
            self._left = _distances(self.simulator, instance)
            self._whole = max(1, self._remaining())
            self._potential = 0.0

    @property
    def terminated(self) -> bool:
        return self.simulator.over

    def step(self, actions: Sequence[int]) -> float:
        """Let every agent act; returns the reward, which all agents share."""
        self.simulator.step(actions)
        reward = float(self.simulator.arrived)
        if self._left is not None:
            after = 0.0 if self.terminated else 1 - self._remaining() / self._whole
            reward += self._discount * after - self._potential
            self._potential = after
        return reward

    def outcome(self) -> str:
        """The verifier's outcome if the episode ended here; ``valid`` where the optimum is not known."""
        if self.simulator.failure is not None:
            return self.simulator.failure.outcome
        if not self.simulator.arrived:
            return "goal_not_reached"
        certificate = self.instance.certificate
        best = None if certificate is None else certificate.makespan
        if best is None:
            return "valid"
        return "optimal" if max(self.simulator.costs()) == best else "valid_suboptimal"

    def info(self) -> dict[str, Any]:
        """What is the same for all agents: ``instance``, ``outcome``, ``metrics``, and ``fault`` if there was one."""
        costs, there = self.simulator.costs(), self.simulator.at_goal()
        found: dict[str, Any] = {
            "instance": self.instance.id,
            "outcome": self.outcome(),
            "metrics": {
                "CSR": float(self.simulator.arrived),
                "ISR": sum(there) / len(there),
                "SoC": sum(costs),
                "makespan": max(costs),
                "ep_length": self.simulator.time,
            },
        }
        failure = self.simulator.failure
        if failure is not None:
            # Absent, not None, before: vector environments cannot join a None and a dictionary.
            found["fault"] = {"step": failure.step, "agent": failure.agent, "cell": failure.cell}
        return found

    def mask(self, agent: int) -> NDArray[np.int8]:
        """1 for each action of an agent that stays on the map and out of holes."""
        return np.array(self.simulator.safe_actions(agent), dtype=np.int8)

    def observation(self, source: Source, first: int = 0) -> Observation:
        """The whole state, agents in turn from ``first`` on; new arrays every time."""
        order = [(first + i) % source.agents for i in range(source.agents)]
        rows = self.instance.rows
        seen = np.full((source.height, source.width), OUTSIDE, dtype=np.int8)
        seen[: len(rows), : len(rows[0])] = [[HOLE_CELL if mark == HOLE else FREE_CELL for mark in row] for row in rows]

        def cells(of: Sequence[Cell]) -> Array:
            return np.array([of[agent] for agent in order], dtype=np.int64)

        found: Observation = {
            "map": seen,
            "agents": cells(self.simulator.cells()),
            "goals": cells(self.instance.goals),
        }
        if source.has_via:
            pending = self.simulator.pending()
            found["via"] = cells(self.instance.via or self.instance.goals)
            found["via_ahead"] = np.array([pending[agent] for agent in order], dtype=np.int8)
        return found

    def _remaining(self) -> int:
        assert self._left is not None
        ahead = self.simulator.pending()
        return sum(
            to_via[v] + rest if pending else to_goal[v]
            for v, pending, (to_goal, to_via, rest) in zip(self.simulator.positions, ahead, self._left, strict=True)
        )


class Play:
    """How episodes are begun and paid; both faces have one. Raises EnvsimError for arguments that cannot be."""

    def __init__(self, source: Source, *, success_rate: float | None, reward: str, discount: float) -> None:
        self._source = source
        self._reward = checked_reward(reward, discount)
        self._discount = discount
        self._success_rate = checked_success_rate(success_rate)

    def begin(self, random: np.random.Generator) -> Episode:
        """A new episode; ``random`` decides the instance, where it is drawn, and the noise."""
        # Both are drawn always, so that noise changes nothing about the instances.
        instance_seed, noise_seed = (int(number) for number in random.integers(2**63, size=2))
        return Episode(
            self._source.instance(instance_seed),
            noise_seed,
            success_rate=self._success_rate,
            reward=self._reward,
            discount=self._discount,
        )


def observation_space(source: Source) -> spaces.Dict:
    """The space of ``Episode.observation``."""
    agents, last = source.agents, [source.height - 1, source.width - 1]
    cells = spaces.Box(0, np.array([last] * agents), dtype=np.int64)
    parts: dict[str, spaces.Space[Any]] = {
        "map": spaces.Box(FREE_CELL, OUTSIDE, (source.height, source.width), dtype=np.int8),
        "agents": cells,
        "goals": cells,
    }
    if source.has_via:
        parts |= {"via": cells, "via_ahead": spaces.MultiBinary(agents)}
    return spaces.Dict(parts)


def checked_reward(reward: str, discount: float) -> Reward:
    """Raises EnvsimError unless the reward is known and the discount in [0, 1]."""
    if not isinstance(reward, str) or reward not in get_args(Reward):
        raise EnvsimError(f"reward is {reward!r}; expected one of {', '.join(get_args(Reward))}")
    _check_share("discount", discount)
    return "sparse" if reward == "sparse" else "shaped"


def checked_success_rate(success_rate: float | None) -> float | None:
    """Raises EnvsimError unless it is None or in [0, 1]."""
    if success_rate is not None:
        _check_share("success_rate", success_rate)
    return success_rate


def _check_share(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
        raise EnvsimError(f"{name} is {value!r}; expected 0 to 1")


def actions_of(values: Sequence[Any] | Array) -> list[int]:
    """Actions as plain integers. Raises EnvsimError for what is none."""
    try:
        found = np.asarray(values)
    except ValueError:  # some are sequences and others are not
        found = np.empty(0)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise EnvsimError(f"the actions are {values!r}; expected a whole number from 0 to {STAY} for each agent")
    plain: list[int] = found.tolist()
    return plain


def _distances(simulator: Simulator, instance: LakeInstance) -> list[tuple[list[int], list[int], int]]:
    """For each agent: from every cell to its goal, from every cell to its via cell, and from there to the goal."""
    board = simulator.board

    def to(cell: Cell) -> list[int]:
        # A cell without a way counts as farther than any other.
        return [board.n if d < 0 else d for d in board.distances(cell[0] * board.columns + cell[1])]

    found = []
    for goal, via in zip(instance.goals, instance.via or instance.goals, strict=True):
        to_goal = to(goal)
        found.append((to_goal, to(via), to_goal[via[0] * board.columns + via[1]]))
    return found
