"""A designer's changes -> a configuration; what changed, in words; whether a critic's conditions were met.

Steps (``up``, ``down``) go through the environment's own knobs, so that only the environment knows what a step is.
Steps alone never give a cell up: halving a share stage after stage would, once the others are renormalised.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from agents.schemas import Change
from envsim.api import Environment, EnvsimError, Knob

TOLERANCE = 1e-6
"""Configurations are rounded to this before they are hashed, so smaller differences do not exist."""
SHARE_KNOB = "data_ratio"
"""The knob of a cell that holds its share of the data, by the environments' convention."""
SHARE_FLOOR = 0.02
"""Steps hold every share at this; only ``set`` goes below."""


def change_errors(knobs: Mapping[str, Knob], changes: Sequence[Change]) -> list[str]:
    """What is wrong with a list of changes: paths unknown or used twice, values missing, unwanted or out of bounds."""
    errors = []
    seen: set[str] = set()
    for change in changes:
        path = change.path
        knob = knobs.get(path)
        if knob is None:
            near = difflib.get_close_matches(path, list(knobs), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(knobs)}"
            errors.append(f"{path}: not an editable knob; {hint}")
            continue
        if path in seen:
            errors.append(f"{path}: changed twice; give each path once")
        seen.add(path)
        if change.op == "set" and change.value is None:
            errors.append(f"{path}: op 'set' has no value; expected a number in [{knob.low:g}, {knob.high:g}]")
        elif change.op != "set" and change.value is not None:
            errors.append(f"{path}: op {change.op!r} takes no value, got {change.value:g}; leave it out or use 'set'")
        elif change.value is not None and not knob.low <= change.value <= knob.high:
            errors.append(f"{path}: value {change.value:g} is outside [{knob.low:g}, {knob.high:g}]")
    return errors


def apply_changes(environment: Environment, config: Any, changes: Sequence[Change]) -> Any:
    """The configuration after the changes; ``keep`` changes nothing.

    A share that was at least SHARE_FLOOR and is not set by value is held there; so is one that a step down leads to the
    floor, although the others give way.
    Raises EnvsimError naming each faulty path, its value and its bound, or whatever the environment refuses.
    """
    knobs = environment.knobs(config)
    errors = change_errors(knobs, changes)
    if errors:
        raise EnvsimError("the changes cannot be applied: " + "; ".join(errors))
    values: dict[str, float] = {}
    for change in changes:
        if change.op == "set" and change.value is not None:
            values[change.path] = change.value
        elif change.op == "up":
            values[change.path] = knobs[change.path].up
        elif change.op == "down":
            values[change.path] = knobs[change.path].down
    by_value = {change.path for change in changes if change.op == "set"}
    lowered = {change.path for change in changes if change.op == "down"}
    values.update(_held_shares(knobs, values, by_value, lowered))
    return environment.with_values(config, values) if values else config


def describe_changes(environment: Environment, before: Any, after: Any) -> list[str]:
    """One line a changed knob, e.g. ``5x5.data_ratio 0.125 -> 0.250``, in the environment's order."""
    old, new = environment.knobs(before), environment.knobs(after)
    return [
        f"{path} {old[path].value:.3f} -> {knob.value:.3f}"
        for path, knob in new.items()
        if path in old and abs(knob.value - old[path].value) > TOLERANCE
    ]


def without_effect(environment: Environment, before: Any, after: Any, changes: Sequence[Change]) -> list[Change]:
    """The changes asked for that moved nothing: at its bound, or all shares of a whole moved alike."""
    old, new = environment.knobs(before), environment.knobs(after)
    return [
        one
        for one in changes
        if one.op != "keep"
        and one.path in old
        and one.path in new
        and abs(new[one.path].value - old[one.path].value) <= TOLERANCE
    ]


def check_conditions(
    environment: Environment,
    criticised_config: Any,
    revised_config: Any,
    conditions: Sequence[Change],
    *,
    base: Any | None = None,
) -> list[str]:
    """The conditions that a revision does not meet, one line each; empty if it meets all.

    Relative to the criticised configuration: ``up`` must be higher, ``down`` lower, ``keep`` equal; ``set`` must equal
    its value. A knob at its bound cannot go further, so staying there meets ``up`` at the top, ``down`` at the bottom.
    A share that moved only because the environment renormalised the others counts as kept.

    ``base`` is the configuration that both were proposed on. With it, a knob that the criticised proposal had already
    moved the wanted way need only stay on that side of the base: a designer that works by steps cannot take two.
    """
    root = environment.knobs(base) if base is not None else {}
    old, new = environment.knobs(criticised_config), environment.knobs(revised_config)
    unmet = []
    for condition in conditions:
        path = condition.path
        if path not in old or path not in new:
            unmet.append(f"{path}: not an editable knob, so the condition cannot be met")
            continue
        before, after = old[path].value, new[path].value
        low = max(old[path].low, SHARE_FLOOR) if path.endswith(f".{SHARE_KNOB}") else old[path].low
        start = root[path].value if path in root else before
        wanted = {
            "up": after > before + TOLERANCE
            or min(after, before) > start + TOLERANCE
            or after >= old[path].high - TOLERANCE,
            "down": after < before - TOLERANCE
            or max(after, before) < start - TOLERANCE
            or after <= low + 2 * TOLERANCE,
            "keep": abs(after - before) <= TOLERANCE or _only_renormalised(path, old, new, environment.cells()),
            "set": condition.value is not None and abs(after - condition.value) <= TOLERANCE,
        }
        if not wanted[condition.op]:
            target = f" {condition.value:g}" if condition.value is not None else ""
            unmet.append(f"{path}: wanted {condition.op}{target}, but it went from {before:.3f} to {after:.3f}")
    return unmet


def _held_shares(
    knobs: Mapping[str, Knob], values: Mapping[str, float], by_value: Collection[str], lowered: Collection[str]
) -> dict[str, float]:
    """Raw weights for those shares that the values would push under the floor once they sum to 1 again, and for those
    lowered to it, which others that fall more would raise."""
    raw = {path: values.get(path, knob.value) for path, knob in knobs.items() if path.endswith(f".{SHARE_KNOB}")}
    may_be_held = {path for path in raw if path not in by_value and knobs[path].value >= SHARE_FLOOR - TOLERANCE}
    held = {path for path in may_be_held if path in lowered and raw[path] <= SHARE_FLOOR + TOLERANCE}
    while raw:
        total = sum(value for path, value in raw.items() if path not in held) / (1 - SHARE_FLOOR * len(held))
        low = {path for path in may_be_held - held if raw[path] < SHARE_FLOOR * total}
        if not low:
            return dict.fromkeys(held, SHARE_FLOOR * total)
        held |= low
    return {}


def mixtures(knobs: Iterable[str], cells: Collection[str]) -> dict[str, list[str]]:
    """The paths of every mixture by its group: those of ``group.choice`` whose group is no cell."""
    found: dict[str, list[str]] = {}
    for path in knobs:
        group, dot, _ = path.partition(".")
        if dot and group not in cells:
            found.setdefault(group, []).append(path)
    return found


def _family(path: str, knobs: Iterable[str], cells: Collection[str]) -> list[str]:
    """The knobs that may share their sum with this one: the same of every cell, or all of one mixture."""
    group, _, name = path.partition(".")
    if group in cells:
        return [other for other in knobs if other.partition(".")[0] in cells and other.partition(".")[2] == name]
    return mixtures(knobs, cells).get(group, [path])


def _only_renormalised(path: str, old: Mapping[str, Knob], new: Mapping[str, Knob], cells: Collection[str]) -> bool:
    """Whether the knob is one of shares that sum to 1 and kept its proportion to another of them."""
    family = [other for other in _family(path, old, cells) if other in new]
    sums = [sum(knobs[other].value for other in family) for knobs in (old, new)]
    if any(abs(total - 1) > len(family) * TOLERANCE for total in sums):
        return False
    return any(
        abs(new[path].value * old[other].value - new[other].value * old[path].value) <= 2 * TOLERANCE
        for other in family
        if other != path and old[other].value > 0
    )
