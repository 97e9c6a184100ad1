"""The tools that a role may be given, by name. A role file that names another is refused when it is loaded.

The factories lie in modules of the same names; this table does not import them, so that reading roles stays cheap.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from difflib import get_close_matches

from langchain_core.tools import StructuredTool

FACTORIES = {
    "evaluate_checkpoint": "tools.evaluate_checkpoint:evaluate_checkpoint_tool",
    "launch_stage": "tools.launch_stage:launch_stage_tool",
    "measure_config": "tools.measure_config:measure_config_tool",
    "probe_policy": "tools.probe_policy:probe_policy_tool",
    "read_failures": "tools.read_failures:read_failures_tool",
}


def known_tools() -> tuple[str, ...]:
    """All tool names, sorted."""
    return tuple(sorted(FACTORIES))


def get(name: str) -> Callable[..., StructuredTool]:
    """The factory of a tool: ``factory(log, **dependencies)``. Raises KeyError with the nearest known name."""
    if name not in FACTORIES:
        near = get_close_matches(name, FACTORIES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known_tools())}"
        raise KeyError(f"unknown tool {name!r}; {hint}")
    module, _, factory = FACTORIES[name].partition(":")
    found: Callable[..., StructuredTool] = getattr(importlib.import_module(module), factory)
    return found
