"""A designer of one's own, by import path or by file. It is the user's code and runs as such."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from agents.designers.base import Designer
from agents.designers.settings import OwnSettings

_TEXTS: dict[str, str] = {}
"""What the source of each place said when it was imported: a later edit changes nothing of this process."""


def load_designer(settings: OwnSettings) -> Designer:
    """The designer that ``entrypoint`` names, made with the given parameters.

    Raises ValueError in one line: the module or class is not there, it is no Designer, or it refuses the parameters.
    """
    place, _, name = settings.entrypoint.rpartition(":")
    where = f"designer entrypoint {settings.entrypoint!r}"
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        _TEXTS.setdefault(place, _text_of(module))
    except Exception as error:
        raise ValueError(f"{where}: {place} cannot be imported: {type(error).__name__}: {error}") from error
    kind: Any = getattr(module, name, None)
    if kind is None:
        raise ValueError(f"{where}: {place} has no {name!r}")
    if not (isinstance(kind, type) and issubclass(kind, Designer)):
        raise ValueError(f"{where}: {name} is no subclass of agents.designers.Designer")
    try:
        made = kind(**settings.parameters)
        # Known before the class is there to be asked, and so the same in lists, reports and the states of a run.
        made.name = name
    except Exception as error:
        raise ValueError(f"{where}: {name}(**{settings.parameters}) fails: {type(error).__name__}: {error}") from error
    return made


def source_text(settings: OwnSettings) -> str:
    """The source of the module, once ``load_designer`` has made a designer of it; what that imports is not part."""
    return _TEXTS[settings.entrypoint.rpartition(":")[0]]


def _text_of(module: ModuleType) -> str:
    """Empty for a module without a source file."""
    file = inspect.getsourcefile(module)
    return "" if file is None else Path(file).read_text(encoding="utf-8")


def _from_file(path: Path) -> ModuleType:
    """The module of a file, under a name that no package has; imported once a process."""
    key = f"designer file {path.resolve()}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[key] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[key]
            raise
    return sys.modules[key]
