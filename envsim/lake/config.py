"""``EnvConfig``: what a designer may change of the lake, its bounds, normalisation and canonical hash.

Weights are normalised to sum 1 in units of 1e-6 when a configuration is loaded, so that loading what was dumped gives
the same configuration and the same hash. Mixtures (agents, placement, topology, goals) keep no weight of 0, and what is
at its default beyond sizes and agents is left out of the dump: a configuration that does without the opt-in knobs has
the same text and hash as if they did not exist.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator

from envsim.api import EnvsimError, Frozen

SIZES = tuple(range(3, 11))
AGENT_COUNTS = (2, 3, 4, 5)
PLACEMENTS = ("uniform", "far", "crossing")
TOPOLOGIES = ("random", "rooms", "corridor", "warehouse")
GOALS = (1, 2)
MIXTURES: dict[str, tuple[int | str, ...]] = {
    "agents": AGENT_COUNTS,
    "placement": PLACEMENTS,
    "topology": TOPOLOGIES,
    "goals": GOALS,
}
"""What each mixture distributes its weight over; the first part has all of it by default."""
MICRO = 1_000_000
K = TypeVar("K", int, str)


def cell_name(size: int) -> str:
    return f"{size}x{size}"


def nearest(key: str, known: list[str]) -> str:
    """A hint for an unknown key."""
    near = get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"


def _refuse_unknown(data: Any, known: list[str], where: str) -> Any:
    if isinstance(data, Mapping):
        for key in data:
            if str(key) not in known:
                raise ValueError(f"unknown key {str(key)!r} in {where}; {nearest(str(key), known)}")
    return data


def normalised(weights: Mapping[K, float]) -> dict[K, float]:
    """Weights that sum to exactly 1,000,000 units of 1e-6, by largest remainder."""
    total = sum(weights.values())
    if not 0 < total < math.inf:
        raise ValueError(f"weights {dict(weights)} sum to {total}; expected a finite sum above 0")
    exact = {key: weight / total * MICRO for key, weight in weights.items()}
    units = {key: int(value) for key, value in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (round(units[key] - exact[key], 6), key))
    for key in by_remainder[: MICRO - sum(units.values())]:
        units[key] += 1
    return {key: unit / MICRO for key, unit in sorted(units.items())}


def _closed_over(keys: tuple[int | str, ...]) -> dict[str, Any]:
    return {"propertyNames": {"enum": [str(key) for key in keys]}}


def _at(default: Any) -> Callable[[Any], bool]:
    return lambda value: bool(value == default)


Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _mixture(name: str, default: Mapping[Any, float], description: str, *, opt_in: bool = True) -> Any:
    return Field(
        default=dict(default),
        description=description,
        json_schema_extra=_closed_over(MIXTURES[name]),
        exclude_if=_at(dict(default)) if opt_in else None,
    )


def _present(weights: Mapping[K, float], order: tuple[K, ...]) -> dict[K, float]:
    """The normalised weights above 0, in the order of the parts."""
    shares_ = normalised(weights)
    return {key: shares_[key] for key in order if shares_.get(key)}


class SizeConfig(Frozen):
    """One map size: its share of the data, its holes, and how many of its instances need a wait."""

    data_ratio: float = Field(ge=0, allow_inf_nan=False, description="Weight of this map size, normalised on load")
    hole_ratio: float = Field(ge=0, le=0.5, description="Share of holes: exactly round(hole_ratio * n * n)")
    wait_ratio: float = Field(ge=0, le=1, description="Share of instances whose cheapest plans all need a wait")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        return _refuse_unknown(data, list(cls.model_fields), "a map size")

    @field_validator("hole_ratio", "wait_ratio")
    @classmethod
    def _rounded(cls, value: float) -> float:
        return round(value, 6)


def _default_sizes() -> dict[int, SizeConfig]:
    return {size: SizeConfig(data_ratio=1 / len(SIZES), hole_ratio=0.2, wait_ratio=0.2) for size in SIZES}


class EnvConfig(Frozen):
    """The lake's configuration. ``sizes`` names every map size from 3 to 10; a size is left out by data_ratio 0."""

    schema_version: int = Field(1, ge=1, le=1)
    sizes: Annotated[
        dict[int, SizeConfig],
        Field(json_schema_extra=_closed_over(SIZES) | {"required": [str(size) for size in SIZES]}),
    ] = Field(default_factory=_default_sizes)
    agents: dict[int, Weight] = _mixture("agents", {2: 1.0}, "Number of agents -> weight", opt_in=False)
    placement: dict[str, Weight] = _mixture(
        "placement",
        {"uniform": 1.0},
        "Placement of starts and goals -> weight: uniform, far (every goal far from its start), crossing (every "
        "agent's first shortest way collides with another's)",
    )
    topology: dict[str, Weight] = _mixture(
        "topology",
        {"random": 1.0},
        "How the holes lie -> weight: random, rooms (walls with doors), corridor (a maze of narrow passages), "
        "warehouse (aisles between shelves)",
    )
    goals: dict[int, Weight] = _mixture(
        "goals",
        {1: 1.0},
        "Goals per agent, in order -> weight; 2 applies to the part with two agents, all others have 1",
    )
    success_rate: float = Field(
        1.0,
        ge=0.95,
        le=1,
        description="Chance that a move goes where it was meant to; else it slips to either side. 1 = certain",
        exclude_if=_at(1.0),
    )
    shaping: float = Field(
        0.0,
        ge=0,
        le=0.3,
        description="Weight of the progress up to the first fault in the reward: 0 = sparse, above 0 = shaped",
        exclude_if=_at(0.0),
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        return _refuse_unknown(data, list(cls.model_fields), "the configuration")

    @field_validator("sizes")
    @classmethod
    def _all_sizes(cls, sizes: dict[int, SizeConfig]) -> dict[int, SizeConfig]:
        unknown = sorted(set(sizes) - set(SIZES))
        missing = sorted(set(SIZES) - set(sizes))
        if unknown or missing:
            raise ValueError(
                f"sizes must be exactly {list(SIZES)}; missing {missing}, unknown {unknown} "
                "(leave a size out of the data by data_ratio 0)"
            )
        weights = normalised({size: sizes[size].data_ratio for size in SIZES})
        return {size: sizes[size].model_copy(update={"data_ratio": weights[size]}) for size in SIZES}

    @field_validator("agents")
    @classmethod
    def _agent_counts(cls, agents: dict[int, float]) -> dict[int, float]:
        unknown = sorted(set(agents) - set(AGENT_COUNTS))
        if unknown:
            raise ValueError(f"agents {unknown} are out of range; expected counts in {list(AGENT_COUNTS)}")
        return _present(agents, AGENT_COUNTS)

    @field_validator("goals")
    @classmethod
    def _goal_counts(cls, goals: dict[int, float]) -> dict[int, float]:
        unknown = sorted(set(goals) - set(GOALS))
        if unknown:
            raise ValueError(f"goals {unknown} are out of range; expected counts in {list(GOALS)}")
        return _present(goals, GOALS)

    @field_validator("placement")
    @classmethod
    def _placements(cls, placement: dict[str, float]) -> dict[str, float]:
        return _present(_refuse_unknown(placement, list(PLACEMENTS), "placement"), PLACEMENTS)

    @field_validator("topology")
    @classmethod
    def _topologies(cls, topology: dict[str, float]) -> dict[str, float]:
        return _present(_refuse_unknown(topology, list(TOPOLOGIES), "topology"), TOPOLOGIES)

    @field_validator("success_rate", "shaping")
    @classmethod
    def _rounded(cls, value: float) -> float:
        return round(value, 6)

    @model_validator(mode="after")
    def _two_goals_need_two_agents(self) -> EnvConfig:
        if self.goals.get(2) and not self.agents.get(2):
            raise ValueError(
                f"goals.2 is {self.goals[2]} but agents has only {list(self.agents)}; two goals are for two agents: "
                "raise agents.2, or set goals.2 to 0"
            )
        return self

    def canonical_hash(self) -> str:
        """sha256 of the sorted, compact JSON after normalisation and rounding."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def parse_config(data: Any) -> EnvConfig:
    """A configuration from plain JSON. Raises EnvsimError with one line: field, value, bound."""
    try:
        return EnvConfig.model_validate(data)
    except ValidationError as error:
        raise EnvsimError("; ".join(_line(problem) for problem in error.errors())) from error


def _line(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "configuration"
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = problem["input"]
    shown = f" (got {value!r})" if isinstance(value, int | float | str | None) else ""
    return f"{where}: {message}{shown}"


def shares(config: EnvConfig) -> dict[str, float]:
    """Share of each map size, as asked for."""
    return {cell_name(size): entry.data_ratio for size, entry in config.sizes.items()}
