"""What became of the designed stages so far."""

from __future__ import annotations

from langchain_core.tools import StructuredTool
from pydantic import Field

from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool


class HistoryArgs(Frozen):
    """Arguments of the tool."""

    last: int = Field(8, ge=1, le=64, description="how many stages, the latest ones")


def read_history_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the run's designed stages, oldest first: aggregates of the anchor set, and no sealed set."""

    def call(args: HistoryArgs) -> ToolResult:
        entries = [dict(entry) for entry in context.history]
        return ToolResult({"stages": len(entries), "history": entries[-args.last :]})

    return logged_tool(
        log,
        name="read_history",
        description="The designed stages so far: changes, accepted or rolled back, anchor score before and after.",
        args=HistoryArgs,
        call=call,
    )
