"""The names of the tools that a role may be given. A role file that names another is refused when it is loaded."""

from __future__ import annotations

TOOL_NAMES = ("evaluate_checkpoint", "launch_stage", "measure_config", "probe_policy", "read_failures")


def known_tools() -> tuple[str, ...]:
    """All tool names, sorted."""
    return TOOL_NAMES
