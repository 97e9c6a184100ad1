"""The arrows between rooms, read from the syntax tree of every module: a room imports only to its right.

graph -> agents -> tools -> trainer -> envsim. Relative imports are resolved first, so ``from ..agents import x`` counts
as what it is; one that climbs out of its room is an error by itself. Imports by name (``importlib.import_module("x")``,
``__import__("x")``) count as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("graph", "agents", "tools", "trainer", "envsim")
NEVER = {
    "envsim": {"torch", "transformers", "trl", "langchain", "langchain_core", "langchain_openai", "langgraph"},
    "trainer": {"langgraph", "langchain", "langchain_core"},
    "tools": {"langgraph"},
    "agents": {"langgraph"},
    "graph": {"trl", "tests"},
}
IMPORTERS = {"import_module", "__import__", "find_spec", "run_module"}


def imported(source: str, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything that a module imports; a climb out of the room is ``"<outside>"``."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.lineno, node.module or ""
                continue
            base = package[: len(package) - node.level + 1]
            if not base:
                yield node.lineno, "<outside>"
                continue
            stem = ".".join([*base, node.module] if node.module else base)
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            if called in IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                name = first.value
                yield node.lineno, "<outside>" if name.startswith("..") else name.lstrip(".")


def offences(source: str, module: str, *, is_package: bool = False) -> list[str]:
    room = module.split(".", maxsplit=1)[0]
    left = set(ROOMS[: ROOMS.index(room)])
    found = []
    for line, name in imported(source, module, is_package=is_package):
        top = name.split(".")[0]
        if top == "<outside>" or top in left or top in NEVER[room]:
            found.append(f"{module}:{line} imports {name}")
    return found


def modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_no_room_imports_to_its_left() -> None:
    assert len(modules()) > len(ROOMS)
    found = []
    for path in modules():
        parts = path.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        found += offences(path.read_text(encoding="utf-8"), module, is_package=is_package)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "module", "is_package"),
    [
        ("import agents", "trainer.stage", False),
        ("import agents.roles as r", "tools.registry", False),
        ("from graph import run", "agents.bench", False),
        ("from ..agents import roles", "trainer.stage", False),
        ("from ... import agents", "trainer.seedling.recipe", False),
        ("from .. import trainer", "envsim", True),
        ("from ..trainer import spec", "envsim.registry", False),
        ("def f():\n    from agents import roles", "tools.registry", False),
        ("if 0:\n    import graph.run", "agents.chat", False),
        ("import importlib\nimportlib.import_module('agents.roles')", "trainer.stage", False),
        ("__import__('graph')", "agents.chat", False),
        ("import_module('..agents', __package__)", "trainer.stage", False),
        ("import torch", "envsim.lake.solver", False),
        ("from langgraph.graph import StateGraph", "agents.chat", False),
    ],
)
def test_every_way_to_dodge_is_seen(source: str, module: str, is_package: bool) -> None:
    assert offences(source, module, is_package=is_package)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from . import seedling", "trainer.stage"),
        ("from ..spec import StageSpec", "trainer.seedling.recipe"),
        ("from envsim.api import Environment", "agents.gates.g1"),
        ("import graphlib\nimport toolz", "envsim.lake.solver"),
        ("import trainer.spec", "graph.run"),
    ],
)
def test_what_is_allowed_passes(source: str, module: str) -> None:
    assert offences(source, module) == []
