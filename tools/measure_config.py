"""Generate a sample of a configuration and measure what it really gives."""

from __future__ import annotations

from langchain_core.tools import StructuredTool
from pydantic import Field

from envsim.api import EnvsimError
from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool


class MeasureArgs(Frozen):
    """Arguments of the tool."""

    values: dict[str, float] = Field({}, description="knobs to set on the current configuration, by path")
    n: int = Field(64, ge=1, le=512, description="number of instances to generate")


def measure_config_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the last accepted configuration."""

    def call(args: MeasureArgs) -> ToolResult:
        changed = context.environment.with_values(context.config, args.values)
        drawn = context.environment.generate(
            changed, args.n, context.seed, split="probe", progress=context.progress
        ).measurement
        return ToolResult(drawn.model_dump(mode="json"))

    return logged_tool(
        log,
        name="measure_config",
        description="What the configuration with these values really gives by cell: shares, quantities, difficulty.",
        args=MeasureArgs,
        call=call,
        refusals=(EnvsimError,),
    )
