"""``LakeEnv``: the lake as a Gymnasium environment, in which one learner moves all agents at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envsim.api import EnvsimError
from envsim.faces.episode import Array, Episode, Observation, Play, actions_of, observation_space
from envsim.faces.rendering import FPS, MODES, Renderer
from envsim.faces.source import Given, source
from envsim.lake.config import EnvConfig
from envsim.lake.instance import LakeInstance
from envsim.lake.rows import shown
from envsim.lake.simulator import ACTIONS


class LakeEnv(gymnasium.Env[Observation, Array]):
    """Several agents cross a frozen lake, each to its own goal, without meeting and without falling into a hole.

    ## Action Space
    `MultiDiscrete([5] * agents)`: one action for each agent, all executed at once. The first four are FrozenLake's.

    | action | meaning |
    |---|---|
    | 0 | left |
    | 1 | down |
    | 2 | right |
    | 3 | up |
    | 4 | stay |

    It is not `Discrete(5 ** agents)`: a policy can have a head for each agent, `sample(mask=info["action_mask"])`
    works, and five agents have 25 numbers instead of 3,125.

    ## Observation Space
    A `Dict` of the whole state; cells are (row, column), (0, 0) is the top left.

    | key | shape | meaning |
    |---|---|---|
    | `map` | (rows, columns) | 0 free, 1 hole, 2 outside a map that is smaller than the largest |
    | `agents` | (agents, 2) | where each agent is |
    | `goals` | (agents, 2) | where each agent must be at the end |
    | `via` | (agents, 2) | where each agent must have been before; only if instances have such cells |
    | `via_ahead` | (agents,) | 1 while `via` is still ahead; only if instances have such cells |

    ## Rules
    A move off the map stays in its cell. An agent may enter a cell that another leaves in the same step. An agent at
    its goal stays in the lake and blocks its cell. By default actions are certain; with `success_rate` q below 1 a
    moving agent goes where it was told with probability q and to either side of that with (1 - q) / 2, and `stay` never
    slips. (FrozenLake's default is q = 1/3, at which no plan of several agents survives.)

    ## Rewards
    | `reward` | meaning |
    |---|---|
    | `"sparse"` | 1 at the step at which all agents are at their goals without a fault before, else 0 |
    | `"shaped"` | the same plus potential-based shaping by the distance come; set `discount` to the learner's own |

    ## Starting State
    The instance's starts. Where the environment draws instances, every `reset` draws one: certified, so solvable.

    ## Episode End
    Terminated when all agents are at their goals at once, or by the first fault: an agent in a hole, two in one cell,
    two that swap cells. There is no truncation inside; `gymnasium.make` adds a `TimeLimit` (100 steps, 200 on 8x8).

    ## Information
    | key | meaning |
    |---|---|
    | `instance` | id of the instance; `env.unwrapped.instance` is the whole of it |
    | `executed` | the actions as they happened, after slips (not after `reset`) |
    | `action_mask` | for each agent, 1 for every action that stays on the map and out of holes, whatever others do |
    | `outcome` | the verifier's outcome if the episode ended here: `goal_not_reached` until then; `valid` where the \
optimum is not known |
    | `fault` | step, agent and cell of the fault; only if there was one |
    | `metrics` | `CSR` (all arrived), `ISR` (share of agents at goals), `SoC` (sum of last arrivals), `makespan`, \
`ep_length`, named as in POGEMA; an agent that is not at its goal counts with the episode's length |

    ## Arguments
    At most one of `instance`, `map_name` and `config` says what is played; without any it is the map `4x4`.

    | argument | default | meaning |
    |---|---|---|
    | `render_mode` | None | `human`, `ansi` or `rgb_array` |
    | `instance` | None | a `LakeInstance`, its JSON or a bare layout as a mapping, or the path of a `.scen` file |
    | `map_name` | None | `4x4`, `8x8`, `passing` or `rotation` |
    | `config` | None | an `EnvConfig` or its JSON, with one number of agents; draws an instance at every reset |
    | `split` | None | the split that instances of `config` are drawn from; None = `training` |
    | `success_rate` | None | probability in [0, 1] that a move goes where it should; None = the instance's own, by \
default 1 |
    | `reward` | `sparse` | `sparse` or `shaped` |
    | `discount` | 1.0 | of the shaped reward |

    Raises EnvsimError, in one line, for arguments and actions that are none of these.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(MODES), "render_fps": FPS}  # type: ignore[misc]

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
    ) -> None:
        self._source = source(instance, map_name, config, split)
        self._play = Play(self._source, success_rate=success_rate, reward=reward, discount=discount)
        self._renderer = Renderer(render_mode, "Envwright lake")
        self.render_mode = render_mode
        self.action_space = spaces.MultiDiscrete([len(ACTIONS)] * self._source.agents)
        self.observation_space = observation_space(self._source)  # type: ignore[assignment]
        self._episode: Episode | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new episode. ``seed`` decides the instance, where it is drawn, and the noise; there are no ``options``."""
        super().reset(seed=seed, options=options)
        if options:
            raise EnvsimError(f"the options of reset are {shown(options)}; expected none")
        self._episode = self._play.begin(self.np_random)
        return self._seen(self._episode)

    def step(self, action: Array) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """All agents act at once."""
        episode = self._current()
        reward = episode.step(actions_of(action))
        observation, info = self._seen(episode)
        info["executed"] = np.array(episode.simulator.executed, dtype=np.int64)
        return observation, reward, episode.terminated, False, info

    def render(self) -> str | NDArray[np.uint8] | None:
        """The current state in the environment's render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() does nothing without a render_mode: give one to gymnasium.make")
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

    def _seen(self, episode: Episode) -> tuple[Observation, dict[str, Any]]:
        if self.render_mode == "human":
            self._renderer.render(episode)
        masks = tuple(episode.mask(agent) for agent in range(self._source.agents))
        return episode.observation(self._source), episode.info() | {"action_mask": masks}
