"""Generate a sample of a configuration and measure what it really gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import Field

from envsim.api import Environment, EnvsimError
from tools.log import Frozen, ToolLog, ToolResult, logged_tool


class MeasureArgs(Frozen):
    """Arguments of the tool."""

    values: dict[str, float] = Field({}, description="knobs to set on the current configuration, by path")
    n: int = Field(64, ge=1, le=512, description="number of instances to generate")


def measure_config_tool(
    log: ToolLog, *, environment: Environment, config: Callable[[], Any], seed: int
) -> StructuredTool:
    """The tool over fixed dependencies. ``config`` gives the configuration that the values are set on."""

    def call(args: MeasureArgs) -> ToolResult:
        changed = environment.with_values(config(), args.values)
        measured = environment.generate(changed, args.n, seed, split="probe").measurement
        return ToolResult(measured.model_dump(mode="json"))

    return logged_tool(
        log,
        name="measure_config",
        description="What the configuration with these values really gives by cell: shares, quantities, difficulty.",
        args=MeasureArgs,
        call=call,
        refusals=(EnvsimError,),
    )
