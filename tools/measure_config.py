"""Generate a sample of a configuration and measure what it really gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import Field

from envsim.api import EnvsimError, Measurement
from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool, table


class MeasureArgs(Frozen):
    """Arguments of the tool."""

    values: dict[str, float] = Field({}, description="knobs to set on the current configuration, by path")
    n: int = Field(64, ge=1, le=512, description="number of instances to generate")


def measure_config_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the last accepted configuration."""
    environment = context.environment

    def call(args: MeasureArgs) -> ToolResult:
        changed = environment.with_values(context.config, args.values)
        drawn = environment.generate(
            changed, args.n, context.seed, split="probe", progress=context.progress
        ).measurement
        return ToolResult(by_cell(drawn, environment.cells()))

    return logged_tool(
        log,
        name="measure_config",
        description="What the configuration with these values really gives by cell: shares, quantities, difficulty.",
        args=MeasureArgs,
        call=call,
        refusals=(EnvsimError,),
    )


def by_cell(drawn: Measurement, cells: Sequence[str]) -> dict[str, Any]:
    """A measurement as a table of the cells that there are instances of; a quantity that a cell lacks is null."""
    named = list(dict.fromkeys(name for one in drawn.quantities.values() for name in one))
    rows = {
        cell: [
            drawn.share[cell],
            drawn.draws.get(cell),
            drawn.solvable_share.get(cell),
            *(drawn.quantities.get(cell, {}).get(name) for name in named),
        ]
        for cell in cells
        if cell in drawn.share
    }
    whole = {"n": drawn.n, "difficulty": drawn.difficulty, "coordination": drawn.coordination}
    return whole | table(["share", "draws", "solvable_share", *named], rows)
