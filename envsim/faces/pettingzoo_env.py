"""``LakeParallelEnv``: the lake as a PettingZoo parallel environment, in which every agent has its own learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from envsim.api import EnvsimError
from envsim.faces.episode import Array, Episode, Play, actions_of, observation_space
from envsim.faces.rendering import FPS, MODES, Renderer
from envsim.faces.source import Given, source
from envsim.lake.config import EnvConfig
from envsim.lake.instance import LakeInstance
from envsim.lake.rows import shown
from envsim.lake.simulator import ACTIONS

Seen = dict[str, Any]


class LakeParallelEnv(ParallelEnv[str, Seen, Any]):
    """Several agents cross a frozen lake, each to its own goal, without meeting and without falling into a hole.

    Agents are `agent_0`, `agent_1` and so on. The rules, arguments and rewards are those of
    `envsim.faces.gymnasium_env.LakeEnv`; in addition `max_cycles` is the number of steps after which an episode is
    truncated, 100 by default.

    ## Action Space
    `Discrete(5)` for each agent: 0 left, 1 down, 2 right, 3 up, 4 stay.

    ## Observation Space
    A `Dict` for each agent.

    | key | meaning |
    |---|---|
    | `observation` | the whole state as in `LakeEnv`; the rows of `agents`, `goals`, `via` and `via_ahead` begin with \
the agent itself and go on in turn, so that all agents can share one policy |
    | `action_mask` | 1 for every action that stays on the map and out of holes, whatever the others do |

    `state()` is the whole state, agents in their order, as one array of integers: `gymnasium.spaces.flatten` of it.

    ## Rewards
    The same for all agents: they win and fail together.

    ## Episode End
    All agents end together, because an agent at its goal still blocks its cell and may have to move: terminated when
    all are at their goals at once or by the first fault, truncated after `max_cycles` steps.

    ## Information
    For each agent: `executed`, its action as it happened, after slips (not after `reset`), and the same `instance`,
    `outcome`, `fault` and `metrics` for all, as in `LakeEnv`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "lake_v0",
        "render_modes": list(MODES),
        "render_fps": FPS,
        "is_parallelizable": True,
    }

    def __init__(
        self,
        render_mode: str | None = None,
        *,
        instance: Given | None = None,
        map_name: str | None = None,
        config: EnvConfig | Mapping[str, Any] | None = None,
        split: str | None = None,
        success_rate: float | None = None,
        reward: str = "sparse",
        discount: float = 1.0,
        max_cycles: int = 100,
    ) -> None:
        if isinstance(max_cycles, bool) or not isinstance(max_cycles, int | np.integer) or max_cycles < 1:
            raise EnvsimError(f"max_cycles is {max_cycles!r}; expected at least 1 step, a whole number")
        self._source = source(instance, map_name, config, split)
        self._play = Play(self._source, success_rate=success_rate, reward=reward, discount=discount)
        self.max_cycles = max_cycles
        self._renderer = Renderer(render_mode, "Envwright lake")
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{i}" for i in range(self._source.agents)]
        self.agents: list[str] = []
        # One space an agent, kept: whoever seeds a space samples from that one.
        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": observation_space(self._source),
                    "action_mask": spaces.Box(0, 1, (len(ACTIONS),), dtype=np.int8),
                }
            )
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Discrete(len(ACTIONS)) for agent in self.possible_agents}
        self._whole = observation_space(self._source)
        self.state_space = spaces.flatten_space(self._whole)
        self._random: np.random.Generator | None = None
        self._episode: Episode | None = None

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The same object at every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The same object at every call."""
        return self.action_spaces[agent]

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Seen], dict[str, dict[str, Any]]]:
        """A new episode. ``seed`` decides the instance, where it is drawn, and the noise.

        There are no ``options``. Any are ignored, not refused: PettingZoo's own tests give some that are unknown.
        """
        if seed is not None or self._random is None:
            self._random, _ = np_random(seed)
        self._episode = self._play.begin(self._random)
        self.agents = list(self.possible_agents)
        self._show()
        return self._observations(), {agent: self._episode.info() for agent in self.agents}

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Seen], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """All agents act at once. Raises EnvsimError unless there is one action for each live agent."""
        episode = self._current()
        if not isinstance(actions, Mapping):
            raise EnvsimError(f"the actions are {shown(actions)}; expected a mapping from agent to action")
        if set(actions) != set(self.agents) or not self.agents:
            raise EnvsimError(f"there are actions for {shown(list(actions))}; expected one for each of {self.agents}")
        reward = episode.step(actions_of([actions[agent] for agent in self.possible_agents]))
        truncated = not episode.terminated and episode.simulator.time >= self.max_cycles
        live = self.agents
        infos = {
            agent: episode.info() | {"executed": action}
            for agent, action in zip(live, episode.simulator.executed, strict=True)
        }
        observations = self._observations()
        if episode.terminated or truncated:
            self.agents = []
        self._show()
        return (
            observations,
            dict.fromkeys(live, reward),
            dict.fromkeys(live, episode.terminated),
            dict.fromkeys(live, truncated),
            infos,
        )

    def state(self) -> Array:
        """The whole state as one array; in ``state_space``."""
        return np.asarray(spaces.flatten(self._whole, self._current().observation(self._source)))

    def render(self) -> str | NDArray[np.uint8] | None:
        """The current state in the environment's render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() does nothing without a render_mode: give one to the environment")
            return None
        return self._renderer.render(self._current())

    @property
    def instance(self) -> LakeInstance:
        """The instance that is played, certificate and all. Raises EnvsimError before the first reset."""
        return self._current().instance

    def close(self) -> None:
        """Close the window, if any."""
        self._renderer.close()

    def _current(self) -> Episode:
        if self._episode is None:
            raise EnvsimError("there is no episode yet; call reset first")
        return self._episode

    def _show(self) -> None:
        if self.render_mode == "human":
            self._renderer.render(self._current())

    def _observations(self) -> dict[str, Seen]:
        episode = self._current()
        return {
            agent: {"observation": episode.observation(self._source, i), "action_mask": episode.mask(i)}
            for i, agent in enumerate(self.possible_agents)
        }


def parallel_env(**arguments: Any) -> LakeParallelEnv:
    """PettingZoo's name for the constructor of a parallel environment."""
    return LakeParallelEnv(**arguments)


def env(**arguments: Any) -> AECEnv[str, Seen, Any]:
    """The lake in PettingZoo's other interface, where agents act in turn and the step is done after the last."""
    return parallel_to_aec(LakeParallelEnv(**arguments))
