"""Where an environment's instances come from: one instance, a named map, or a new certified one at every reset."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from pathlib import Path
from typing import Any, Protocol, TypeVar

from envsim.api import SPLITS, EnvsimError
from envsim.formats.movingai import read_scenario
from envsim.lake.chance import stream
from envsim.lake.config import MIXTURES, EnvConfig, nearest, parse_config
from envsim.lake.generate import generate
from envsim.lake.grid import Cell
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.rows import instance_of, shown
from envsim.lake.search import LimitReached
from envsim.lake.solver import Limits, analyse

Given = LakeInstance | Mapping[str, Any] | str | Path
"""What an instance may be given as: itself, its JSON or a bare layout, or the path of a MovingAI scenario."""

DEFAULT_SPLIT = "training"
Layout = tuple[list[str], list[Cell], list[Cell]]
K = TypeVar("K")
MAX_CELLS = 128 * 128
MAX_JOINT_CELLS = 2**20
"""Of all pairs of agents together, for an instance that is certified here: a second or two."""

MAPS: dict[str, Layout] = {
    "4x4": (["....", ".@.@", "...@", "@..."], [(0, 0), (3, 3)], [(3, 3), (0, 0)]),
    "8x8": (
        ["........", "........", "...@....", ".....@..", "...@....", ".@@...@.", ".@..@.@.", "...@...."],
        [(0, 0), (7, 7)],
        [(7, 7), (0, 0)],
    ),
    "passing": (["@@.@@", "....."], [(1, 0), (1, 4)], [(1, 4), (1, 0)]),
    "rotation": (["..", ".."], [(0, 0), (0, 1), (1, 1), (1, 0)], [(0, 1), (1, 1), (1, 0), (0, 0)]),
}
"""FrozenLake's two maps, with one agent from its start to its goal and one back; two agents that must pass each other
where only a bay lets them; four that can only go round together."""


class Source(Protocol):
    """What instances there will be, and how large. Spaces are built from the numbers."""

    @property
    def agents(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def has_via(self) -> bool: ...

    def instance(self, seed: int) -> LakeInstance:
        """The instance of a seed."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The same instance at every reset."""

    only: LakeInstance

    @property
    def agents(self) -> int:
        return self.only.agents

    @property
    def height(self) -> int:
        return len(self.only.rows)

    @property
    def width(self) -> int:
        return len(self.only.rows[0])

    @property
    def has_via(self) -> bool:
        return self.only.via is not None

    def instance(self, seed: int) -> LakeInstance:  # noqa: ARG002
        return self.only


@dataclass(frozen=True)
class Drawn:
    """A new certified instance of a configuration at every reset, one map size and mixture drawn by weight each time.

    Maps smaller than the largest are padded in observations.
    """

    config: EnvConfig
    split: str

    @property
    def agents(self) -> int:
        return next(iter(self.config.agents))

    @property
    def height(self) -> int:
        return max(size for size, entry in self.config.sizes.items() if entry.data_ratio)

    @property
    def width(self) -> int:
        return self.height

    @property
    def has_via(self) -> bool:
        return 2 in self.config.goals

    def instance(self, seed: int) -> LakeInstance:
        rng = stream(seed, "face")
        size = _picked(rng, {size: entry.data_ratio for size, entry in self.config.sizes.items()})
        waits = rng.random() < self.config.sizes[size].wait_ratio
        data = self.config.model_dump(mode="json")
        data |= {key: {_picked(rng, getattr(self.config, key)): 1.0} for key in MIXTURES}
        for key, entry in data["sizes"].items():
            entry["data_ratio"] = float(int(key) == size)
        data["sizes"][str(size)]["wait_ratio"] = float(waits)
        made, _ = generate(parse_config(data), 1, seed, self.split)
        return made[0]


def source(
    instance: Given | None = None,
    map_name: str | None = None,
    config: EnvConfig | Mapping[str, Any] | None = None,
    split: str | None = None,
) -> Source:
    """The source that the arguments of an environment name; the map ``4x4`` if they name none.

    Raises
    ------
    EnvsimError
        More than one of the three is given, the instance, the map or the split is none, the configuration is out of
        bounds, it mixes numbers of agents, which the spaces of an environment cannot, or a split is given without one.
    YieldError
        The instance of seed 0 cannot be drawn from the configuration.
    DocumentError
        A scenario cannot be read.
    """
    given = [
        name
        for name, value in (("instance", instance), ("map_name", map_name), ("config", config))
        if value is not None
    ]
    if len(given) > 1:
        raise EnvsimError(f"{' and '.join(given)} are given; expected one of instance, map_name and config")
    if split is not None and config is None:
        raise EnvsimError(
            f"split is {split!r} but there is no config; only instances of a config are drawn from splits"
        )
    if instance is not None:
        return Fixed(certified(_read(instance)))
    if config is not None:
        parsed = config if isinstance(config, EnvConfig) else parse_config(config)
        if len(parsed.agents) > 1:
            raise EnvsimError(
                f"agents is {parsed.agents}; expected one number of agents: an environment's spaces are fixed"
            )
        split = DEFAULT_SPLIT if split is None else split
        if split not in SPLITS:
            raise EnvsimError(f"unknown split {split!r}; {nearest(str(split), list(SPLITS))}")
        drawn = Drawn(parsed, split)
        # What can never be drawn is told here, not in the middle of a training.
        drawn.instance(0)
        return drawn
    name: object = "4x4" if map_name is None else map_name
    if not isinstance(name, str):
        raise EnvsimError(f"map_name is {shown(name)}; expected one of {', '.join(MAPS)}")
    if name not in MAPS:
        raise EnvsimError(f"unknown map {name!r}; {nearest(str(name), list(MAPS))}")
    return Fixed(_named(name))


def _read(given: Given) -> LakeInstance:
    """Raises EnvsimError or DocumentError if it is no instance."""
    if isinstance(given, LakeInstance):
        return given
    if isinstance(given, Mapping):
        return instance_of(given, "instance")
    if isinstance(given, str | Path) and Path(given).suffix.lower() == ".scen":
        return read_scenario(Path(given))
    raise EnvsimError(
        f"instance is {shown(given)}; expected a LakeInstance, a mapping with rows, starts and goals, or the path of a "
        "MovingAI .scen file"
    )


def certified(instance: LakeInstance) -> LakeInstance:
    """The instance with a certificate, so that an optimal episode can be told from another.

    As it is if it has one, or if proving one would take more than a moment.
    """
    cells, agents = len(instance.rows) * len(instance.rows[0]), instance.agents
    if instance.certificate is not None or cells > MAX_CELLS or (instance.via is not None and agents != 2):
        return instance
    limits = Limits.affordable(agents)
    analysis = analyse(instance.rows, instance.starts, instance.goals, limits, via=instance.via)
    if analysis.collides and max(1, comb(agents, 2)) * cells**2 > MAX_JOINT_CELLS:
        return instance
    if isinstance(analysis.makespan(), LimitReached):
        return instance
    return instance.model_copy(update={"certificate": analysis.certificate()})


@lru_cache(maxsize=len(MAPS))
def _named(name: str) -> LakeInstance:
    return certified(make_instance(*MAPS[name]))


def _picked(rng: random.Random, weights: Mapping[K, float]) -> K:
    left = rng.random() * sum(weights.values())
    positive = [key for key, weight in weights.items() if weight > 0]
    for key in positive:
        left -= weights[key]
        if left < 0:
            return key
    return positive[-1]
