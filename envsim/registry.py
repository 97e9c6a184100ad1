"""Names of environments: ``get("lake")``, or ``get("module:factory")`` for one that lives elsewhere.

A name crosses process borders inside a stage's spec, so ``module:factory`` always works without registering first.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches

from envsim.api import Environment, EnvsimError

_FACTORIES = {"lake": "envsim.lake.environment:Lake"}


def register(name: str, factory: str) -> None:
    """Give ``"module:factory"`` a short name in this process. Raises EnvsimError if the name means something else."""
    if ":" not in factory:
        raise EnvsimError(f"factory of environment {name!r} is {factory!r}; expected 'module:factory'")
    if _FACTORIES.setdefault(name, factory) != factory:
        raise EnvsimError(f"environment {name!r} is already {_FACTORIES[name]!r}; choose another name for {factory!r}")


def get(name: str) -> Environment:
    """The environment of a registered name or of a ``"module:factory"``. Raises EnvsimError."""
    path = _FACTORIES.get(name, name)
    module_name, _, factory_name = path.partition(":")
    if not factory_name:
        near = get_close_matches(name, _FACTORIES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {sorted(_FACTORIES)}, or 'module:factory'"
        raise EnvsimError(f"unknown environment {name!r}; {hint}")
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise EnvsimError(f"cannot load environment {path!r}: {error}; check the module and the factory") from error
    environment: Environment = factory()
    return environment
