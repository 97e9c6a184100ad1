"""Arguments that are wrong in every stage of a run: cells, outcomes and knobs that the environment does not have.

The tools refuse them when they are called, and role files with such fixed calls are refused when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from envsim.api import Environment, EnvsimError


def constant_errors(request: BaseModel, environment: Environment, config: Any) -> list[str]:
    """What no stage could answer of a tool's arguments, one line each, beginning with the argument.

    ``config`` gives the knobs and their bounds. Arguments are told by name: ``cell``, ``outcome``, and ``values``
    at any depth.
    """
    errors: list[str] = []
    for name, given in request:
        match name, given:
            case _, BaseModel():
                errors.extend(f"{name}.{line}" for line in constant_errors(given, environment, config))
            case "cell", str():
                errors.extend(unknown("cell", given, environment.cells()))
            case "outcome", str():
                errors.extend(unknown("outcome", given, environment.outcomes))
            case "values", dict():
                errors.extend(f"values: {line}" for line in value_errors(given, environment, config))
    return errors


def unknown(what: str, given: str, known: Sequence[str]) -> list[str]:
    """The line on a word that is none of the known ones; nothing if it is."""
    if given in known:
        return []
    near = get_close_matches(given, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return [f"{what}: unknown {what} {given!r}; {hint}"]


def value_errors(values: Mapping[str, float], environment: Environment, config: Any) -> list[str]:
    """Knobs that there are none of, values out of their bounds, and a configuration that all of them do not make."""
    knobs = environment.knobs(config)
    errors: list[str] = []
    for path, value in values.items():
        if path not in knobs:
            near = get_close_matches(path, knobs, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(knobs)}"
            errors.append(f"unknown knob {path!r}; {hint}")
        elif not knobs[path].low <= value <= knobs[path].high:
            errors.append(f"{path} = {value:g} is out of bounds; expected {knobs[path].low:g} to {knobs[path].high:g}")
    if errors:
        return errors
    try:
        environment.with_values(config, values)
    except EnvsimError as error:
        return [str(error)]
    return []
