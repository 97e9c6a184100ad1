"""The tools that a role may be given, by name. A role file that names another is refused when it is loaded.

The tools lie in modules of their own; this table does not import them, so that reading roles stays cheap.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import BaseModel

from tools.context import ToolContext
from tools.log import Frozen, ToolLog


class ToolEntry(Frozen):
    """Where a tool lies and who may have it."""

    module: str
    arguments: str
    """The class of its arguments."""
    only_for: tuple[str, ...] = ()
    """State keys whose writers alone may have it; none = every role."""
    tasks: str | None = None
    """The argument that says how many tasks the policy answers for it; None = it asks the policy nothing."""
    with_answer: bool = False
    """The run calls it with the role's answer; the model never does."""


TOOLS: Mapping[str, ToolEntry] = {
    "compare_configs": ToolEntry(module="tools.compare_configs", arguments="CompareArgs"),
    "evaluate_checkpoint": ToolEntry(module="tools.evaluate_checkpoint", arguments="EvaluateArgs"),
    "launch_stage": ToolEntry(
        module="tools.launch_stage", arguments="LaunchArgs", only_for=("budget",), with_answer=True
    ),
    "list_failures": ToolEntry(module="tools.failures", arguments="ListArgs"),
    "measure_config": ToolEntry(module="tools.measure_config", arguments="MeasureArgs"),
    "open_failure": ToolEntry(module="tools.failures", arguments="OpenArgs"),
    "probe_policy": ToolEntry(module="tools.probe_policy", arguments="ProbeArgs", tasks="n"),
    "read_history": ToolEntry(module="tools.read_history", arguments="HistoryArgs"),
}


def known_tools() -> tuple[str, ...]:
    """All tool names, sorted."""
    return tuple(sorted(TOOLS))


def entry(name: str) -> ToolEntry:
    """A tool's entry. Raises KeyError with the nearest known name."""
    if name not in TOOLS:
        near = get_close_matches(name, TOOLS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known_tools())}"
        raise KeyError(f"unknown tool {name!r}; {hint}")
    return TOOLS[name]


def arguments_of(name: str) -> type[BaseModel]:
    """The model of a tool's arguments. Raises KeyError."""
    found: type[BaseModel] = getattr(importlib.import_module(entry(name).module), entry(name).arguments)
    return found


def toolbox(names: Iterable[str], context: ToolContext, log: ToolLog) -> dict[str, StructuredTool]:
    """The tools of these names over one context, by name; those that take a role's answer are the run's to make."""
    return {name: _factory(name)(log, context) for name in names if not entry(name).with_answer}


def _factory(name: str) -> Any:
    return getattr(importlib.import_module(entry(name).module), f"{name}_tool")
