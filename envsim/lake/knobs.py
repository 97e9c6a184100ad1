"""The knobs of the lake: every number that a designer may move, by path, with where a step leads.

The three of every map size are always there; the opt-in groups are there for who opens them. Steps are those of a
small model that says no more than up or down; numbers may be set at will within the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envsim.api import EnvsimError, Knob
from envsim.lake.config import MIXTURES, EnvConfig, cell_name, nearest, parse_config

KNOB_GROUPS = (*MIXTURES, "success_rate", "shaping")
"""The opt-in knobs; a mixture's are ``agents.3``, ``topology.rooms`` and so on."""
BOUNDS = {"data_ratio": (0.0, 1.0), "hole_ratio": (0.0, 0.5), "wait_ratio": (0.0, 1.0)}
SCALARS = {"success_rate": (0.95, 1.0, 0.01), "shaping": (0.0, 0.3, 0.1)}
"""Lowest and highest value, and a step."""
RATIO_STEP = 0.2
"""A step of the hole or wait ratio, as a share of its range."""
WEIGHT_FROM_ZERO = 0.05
WEIGHT_FLOOR = 0.02
"""A step up from a weight of 0 leads to the one; a step down halves a weight, and stops at the other."""
HOLE_FLOOR = 0.1
"""A step down stops here: on open maps agents hardly ever need to wait, and such instances cannot be had."""


def knobs(config: EnvConfig, groups: Iterable[str] = ()) -> dict[str, Knob]:
    """Knobs by path, with where a step up or down leads (before renormalisation).

    The three of every map size, then those of the opt-in ``groups`` in the order of ``KNOB_GROUPS``. A weight doubles
    or halves, a hole or wait ratio moves by a fifth of its range, success_rate by 0.01, shaping by 0.1.
    Raises EnvsimError for an unknown group.
    """
    found = {path: knob for size in config.sizes for path, knob in _size_knobs(config, size)}
    opened = check_groups(groups)
    for group in KNOB_GROUPS:
        if group in opened:
            found.update(_group_knobs(config, group))
    return found


def check_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """The groups in their order, each once. Raises EnvsimError for an unknown one."""
    asked = list(groups)
    for group in asked:
        if group not in KNOB_GROUPS:
            raise EnvsimError(f"unknown group of knobs {group!r}; {nearest(group, list(KNOB_GROUPS))}")
    return tuple(group for group in KNOB_GROUPS if group in asked)


def _size_knobs(config: EnvConfig, size: int) -> Iterator[tuple[str, Knob]]:
    for field, (low, high) in BOUNDS.items():
        path = f"{cell_name(size)}.{field}"
        value: float = getattr(config.sizes[size], field)
        if field == "data_ratio":
            yield path, _weight_knob(value)
        else:
            floor = HOLE_FLOOR if field == "hole_ratio" else low
            step = RATIO_STEP * (high - low)
            yield path, _stepped(value, low, high, step, floor)


def _group_knobs(config: EnvConfig, group: str) -> Iterator[tuple[str, Knob]]:
    if group in MIXTURES:
        weights = getattr(config, group)
        for part in MIXTURES[group]:
            yield f"{group}.{part}", _weight_knob(weights.get(part, 0.0))
    else:
        low, high, step = SCALARS[group]
        yield group, _stepped(getattr(config, group), low, high, step, low)


def _weight_knob(value: float) -> Knob:
    up = min(1.0, 2 * value) if value else WEIGHT_FROM_ZERO
    down = max(value / 2, min(value, WEIGHT_FLOOR))
    return Knob(value=value, low=0.0, high=1.0, up=round(up, 6), down=round(down, 6))


def _stepped(value: float, low: float, high: float, step: float, floor: float) -> Knob:
    up, down = min(high, value + step), max(value - step, min(value, floor))
    return Knob(value=value, low=low, high=high, up=round(up, 6), down=round(down, 6))


def with_values(config: EnvConfig, values: Mapping[str, float], groups: Iterable[str] = ()) -> EnvConfig:
    """A new configuration with raw knob values set and the weights renormalised.

    Raises EnvsimError naming path, value and bound.
    """
    known = knobs(config, groups)
    sizes: dict[int, dict[str, float]] = {size: entry.model_dump() for size, entry in config.sizes.items()}
    changed: dict[str, Any] = {"sizes": sizes}
    for path, value in values.items():
        if path not in known:
            raise EnvsimError(_unknown(path, known))
        knob = known[path]
        if not knob.low <= value <= knob.high:
            raise EnvsimError(f"{path} = {value!r} is out of bounds; expected {knob.low} to {knob.high}")
        owner, _, field = path.partition(".")
        if owner in SCALARS:
            changed[owner] = value
        elif owner in MIXTURES:
            part = next(part for part in MIXTURES[owner] if str(part) == field)
            changed.setdefault(owner, dict(getattr(config, owner)))[part] = value
        else:
            sizes[int(owner.split("x")[0])][field] = value
    return parse_config(config.model_dump(mode="json") | changed)


def _unknown(path: str, known: Mapping[str, Knob]) -> str:
    closed = {name: group for group in KNOB_GROUPS for name, _ in _group_knobs(EnvConfig(), group)}
    if path in closed:
        return f"the knob {path!r} is not open here; add {closed[path]!r} to the groups that may be edited"
    return f"unknown knob {path!r}; {nearest(path, list(known))}"
