"""Roles of kind python: a function by its import path, from plain inputs to plain output."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Entrypoint = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class EntrypointError(ValueError):
    """What an import path names is missing or is no function."""


def load_entrypoint(path: str) -> Entrypoint:
    """The function that ``package.module:function`` names. Raises EntrypointError."""
    module, _, name = path.partition(":")
    try:
        loaded = importlib.import_module(module)
    except Exception as error:
        raise EntrypointError(
            f"{path!r}: importing {module!r} failed: {type(error).__name__}: {error}; it must be importable where the "
            "run starts"
        ) from error
    found = getattr(loaded, name, None)
    if not inspect.isfunction(found):
        what = "nothing of that name" if found is None else type(found).__name__
        raise EntrypointError(f"{path!r}: {module!r} has {what}, expected a function")
    required = [
        parameter.name
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) != 1:
        raise EntrypointError(f"{path!r} takes {required or 'nothing'}, expected one argument, the inputs by name")
    return found


def source_of(path: str) -> str:
    """The text of the module that holds the function: what decides what the role says. Raises EntrypointError."""
    file = inspect.getsourcefile(load_entrypoint(path))
    return "" if file is None else Path(file).read_text(encoding="utf-8")
