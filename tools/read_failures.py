"""Read replayed failures of the validation set. No other set is ever readable: the caller fixes the file."""

from __future__ import annotations

from pathlib import Path

from langchain_core.tools import StructuredTool
from pydantic import Field

from tools.log import Frozen, ToolLog, ToolResult, logged_tool
from trainer.evaluate import Failure
from trainer.files import read_lines

ANSWER_CHARACTERS = 600


class FailuresArgs(Frozen):
    """Arguments of the tool."""

    cell: str | None = Field(None, description="only this cell")
    outcome: str | None = Field(None, description="only this outcome")
    limit: int = Field(4, ge=1, le=16, description="how many to show")


def read_failures_tool(log: ToolLog, *, failures: Path) -> StructuredTool:
    """The tool over one file of failures, in the file's order. Long answers are cut: they are the policy's text."""

    def call(args: FailuresArgs) -> ToolResult:
        rows = [Failure.model_validate_json(line) for line in read_lines(failures)]
        found = [row for row in rows if args.cell in (None, row.cell) and args.outcome in (None, row.outcome)]
        shown = [
            {**row.model_dump(mode="json"), "answer": row.answer[:ANSWER_CHARACTERS]} for row in found[: args.limit]
        ]
        return ToolResult({"found": len(found), "of": len(rows), "failures": shown})

    return logged_tool(
        log,
        name="read_failures",
        description="Failures of the policy on the validation set, replayed up to their first fault.",
        args=FailuresArgs,
        call=call,
    )
