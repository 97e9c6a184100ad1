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
                listed = f"known are {', '.join(known)}"
                hint = nearest(str(key), known)
                raise ValueError(
                    f"unknown key {str(key)!r} in {where}; {hint if hint == listed else f'{hint} {listed}'}"
                )
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


HOLE_RATIO, WAIT_RATIO = 0.2, 0.2
LEFT_OUT = SizeConfig(data_ratio=0, hole_ratio=HOLE_RATIO, wait_ratio=WAIT_RATIO)


def _default_sizes() -> dict[int, SizeConfig]:
    return {size: SizeConfig(data_ratio=1 / len(SIZES), hole_ratio=HOLE_RATIO, wait_ratio=WAIT_RATIO) for size in SIZES}


class EnvConfig(Frozen):
    """The lake's configuration. A map size that ``sizes`` does not name, or whose data_ratio is 0, is left out."""

    schema_version: int = Field(1, ge=1, le=1)
    sizes: Annotated[
        dict[int, SizeConfig],
        Field(
            description="Map size -> its numbers. Sizes that are not named are left out: they get data_ratio 0",
            json_schema_extra=_closed_over(SIZES),
        ),
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
        if unknown:
            raise ValueError(f"sizes {unknown} are out of range; expected map sizes in {list(SIZES)}")
        if not sizes:
            raise ValueError("no map size is named; expected at least one, or no sizes at all for the default ones")
        sizes = dict.fromkeys(SIZES, LEFT_OUT) | sizes
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
    loc = [str(part) for part in problem["loc"] if part != "[key]"]
    where = ".".join(loc) or "configuration"
    kind = problem["type"]
    message = str(problem["msg"]).removeprefix("Value error, ")
    if kind in _EXPECTED:
        message = _EXPECTED[kind].format(**problem.get("ctx", {}))
    elif kind in ("dict_type", "model_type"):
        message = f"expected a mapping like {_LIKE.get(loc[0] if len(loc) == 1 else 'size' if loc else '', _WHOLE)}"
    value = problem["input"]
    shown = f" (got {value!r})" if isinstance(value, int | float | str | None) else ""
    return f"{where}: {message}{shown}"


_SIZE = "{data_ratio: 1, hole_ratio: 0.2, wait_ratio: 0.2}"
_WHOLE = "{agents: {2: 1}}"
_LIKE = {
    "sizes": f"{{5: {_SIZE}}}",
    "size": _SIZE,
    "agents": "{2: 0.5, 3: 0.5}",
    "placement": "{uniform: 0.5, far: 0.5}",
    "topology": "{random: 0.5, rooms: 0.5}",
    "goals": "{1: 0.5, 2: 0.5}",
}
"""How each part is written."""
_EXPECTED = {
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "greater_than_equal": "expected at least {ge}",
    "less_than_equal": "expected at most {le}",
    "missing": "is missing; a map size has data_ratio, hole_ratio and wait_ratio",
}
"""What was expected, by pydantic's kind of problem, where its own words are for programmers."""


def shares(config: EnvConfig) -> dict[str, float]:
    """Share of each map size, as asked for."""
    return {cell_name(size): entry.data_ratio for size, entry in config.sizes.items()}
