"""``EnvConfig``: what a designer may change of the lake, its bounds, normalisation, canonical hash and knobs.

The weights of the map sizes are normalised to sum 1 in units of 1e-6 when a configuration is loaded, so that loading
what was dumped gives the same configuration and the same hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

from envsim.api import EnvsimError, Frozen, Knob

SIZES = tuple(range(3, 11))
AGENT_COUNTS = (2, 3, 4, 5)
MICRO = 1_000_000

BOUNDS = {"data_ratio": (0.0, 1.0), "hole_ratio": (0.0, 0.5), "wait_ratio": (0.0, 1.0)}
RATIO_STEP = 0.2
"""A step of the hole or wait ratio, as a share of its range."""
DATA_FROM_ZERO = 0.05
DATA_FLOOR = 0.02
HOLE_FLOOR = 0.1
"""A step down stops here: on open maps agents hardly ever need to wait, and such instances cannot be had."""


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


def normalised(weights: Mapping[int, float]) -> dict[int, float]:
    """Weights that sum to exactly 1,000,000 units of 1e-6, by largest remainder."""
    total = sum(weights.values())
    if total <= 0:
        raise ValueError(f"weights {dict(weights)} sum to {total}; at least one must be above 0")
    exact = {key: weight / total * MICRO for key, weight in weights.items()}
    units = {key: int(value) for key, value in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (round(units[key] - exact[key], 6), key))
    for key in by_remainder[: MICRO - sum(units.values())]:
        units[key] += 1
    return {key: unit / MICRO for key, unit in sorted(units.items())}


def _closed_over(keys: tuple[int, ...]) -> dict[str, Any]:
    return {"propertyNames": {"enum": [str(key) for key in keys]}}


class SizeConfig(Frozen):
    """One map size: its share of the data, its holes, and how many of its instances need a wait."""

    data_ratio: float = Field(ge=0, allow_inf_nan=False, description="Weight of this map size, normalised on load")
    hole_ratio: float = Field(ge=0, le=0.5, description="Share of holes: exactly round(hole_ratio * n * n)")
    wait_ratio: float = Field(ge=0, le=1, description="Share of instances whose cheapest plans all need a wait")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        return _refuse_unknown(data, list(BOUNDS), "a map size")

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
    agents: Annotated[
        dict[int, Annotated[float, Field(ge=0, allow_inf_nan=False)]],
        Field(json_schema_extra=_closed_over(AGENT_COUNTS)),
    ] = Field(default={2: 1.0}, description="Number of agents -> weight")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        return _refuse_unknown(data, ["schema_version", "sizes", "agents"], "the configuration")

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
        return normalised(agents)

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


def knobs(config: EnvConfig) -> dict[str, Knob]:
    """The three knobs of every map size by path, with where a step up or down leads (before renormalisation)."""
    found = {}
    for size, entry in config.sizes.items():
        for field, (low, high) in BOUNDS.items():
            value: float = getattr(entry, field)
            if field == "data_ratio":
                up = min(high, 2 * value) if value else DATA_FROM_ZERO
                down = max(value / 2, min(value, DATA_FLOOR))
            else:
                step = RATIO_STEP * (high - low)
                floor = HOLE_FLOOR if field == "hole_ratio" else low
                up, down = min(high, value + step), max(value - step, min(value, floor))
            found[f"{cell_name(size)}.{field}"] = Knob(
                value=value, low=low, high=high, up=round(up, 6), down=round(down, 6)
            )
    return found


def with_values(config: EnvConfig, values: Mapping[str, float]) -> EnvConfig:
    """A new configuration with raw knob values set and the weights renormalised.

    Raises EnvsimError naming path, value and bound.
    """
    known = knobs(config)
    sizes: dict[int, dict[str, float]] = {size: entry.model_dump() for size, entry in config.sizes.items()}
    for path, value in values.items():
        if path not in known:
            raise EnvsimError(f"unknown knob {path!r}; {nearest(path, list(known))}")
        knob = known[path]
        if not knob.low <= value <= knob.high:
            raise EnvsimError(f"{path} = {value!r} is out of bounds; expected {knob.low} to {knob.high}")
        cell, field = path.split(".")
        sizes[int(cell.split("x")[0])][field] = value
    return parse_config(config.model_dump(mode="json") | {"sizes": sizes})
