"""What became of the designed stages so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import Field

from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool


class HistoryArgs(Frozen):
    """Arguments of the tool."""

    last: int = Field(3, ge=1, le=64, description="how many stages, the latest ones")


def read_history_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the run's designed stages, oldest first: aggregates of the anchor set, and no sealed set."""
    cells = context.environment.cells()

    def call(args: HistoryArgs) -> ToolResult:
        told = [shortened(entry, cells) for entry in context.history[-args.last :]]
        return ToolResult({"stages": len(context.history), "cells": cells, "history": told})

    return logged_tool(
        log,
        name="read_history",
        description="The designed stages so far: changes, accepted or rolled back, anchor score before and "
        "after; predicted and measured success in percent, in the order of the cells.",
        args=HistoryArgs,
        call=call,
    )


def shortened(entry: Mapping[str, Any], cells: Sequence[str]) -> dict[str, Any]:
    """An entry with its figures by cell as a list in percent; what it has none of stays left out."""
    predicted, measured = entry.get("predicted"), entry.get("measured")
    told = {name: value for name, value in entry.items() if name not in ("predicted", "measured")}
    if predicted:
        told["predicted"] = [predicted.get(cell) for cell in cells]
    if measured:
        told["measured"] = [round(100 * measured[cell]) if cell in measured else None for cell in cells]
    return told
