"""Replayed failures of the validation set: a list, and one at a time. No other set is ever readable."""

from __future__ import annotations

from langchain_core.tools import StructuredTool
from pydantic import Field

from tools.constants import constant_errors
from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool
from trainer.evaluate import Failure
from trainer.files import read_lines

ANSWER_CHARACTERS = 600
STATES = 24
"""Steps of a replay that are shown: the last ones, which lead to the fault."""


class NoSuchFailure(ValueError):
    """An id, a cell or an outcome that no failure has or ever could have."""


class ListArgs(Frozen):
    """Arguments of the list."""

    cell: str | None = Field(None, description="only this cell")
    outcome: str | None = Field(None, description="only this outcome")
    limit: int = Field(8, ge=1, le=32, description="how many to show")


class OpenArgs(Frozen):
    """Arguments of the look at one."""

    id: str = Field(description="an id from list_failures")


def list_failures_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """Ids, cells, outcomes and first faults, in the file's order."""

    def call(args: ListArgs) -> ToolResult:
        if wrong := constant_errors(args, context.environment, context.config):
            raise NoSuchFailure("; ".join(wrong))
        rows = _failures(context)
        found = [row for row in rows if args.cell in (None, row.cell) and args.outcome in (None, row.outcome)]
        shown = [
            {"id": row.id, "cell": row.cell, "outcome": row.outcome, "step": row.fault.step if row.fault else None}
            for row in found[: args.limit]
        ]
        return ToolResult({"found": len(found), "of": len(rows), "failures": shown})

    return logged_tool(
        log,
        name="list_failures",
        description="Failures of the current policy on the validation set: id, cell, outcome, step of the first fault.",
        args=ListArgs,
        call=call,
        refusals=(NoSuchFailure,),
    )


def open_failure_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """One failure with its answer, cut because it is the policy's text, and its replay up to the first fault."""

    def call(args: OpenArgs) -> ToolResult:
        row = next((row for row in _failures(context) if row.id == args.id), None)
        if row is None:
            raise NoSuchFailure(f"no failure of the validation set has the id {args.id!r}; see list_failures")
        data = row.model_dump(mode="json")
        cut = {
            "answer": row.answer[:ANSWER_CHARACTERS],
            "states": data["states"][-STATES:],
            "actions": data["actions"][-STATES:],
            "rewards": data["rewards"][-STATES:],
        }
        return ToolResult({**data, **cut, "steps": len(row.states)})

    return logged_tool(
        log,
        name="open_failure",
        description="One failure of the validation set: the answer, its replay up to the first fault, and the fault.",
        args=OpenArgs,
        call=call,
        refusals=(NoSuchFailure,),
    )


def _failures(context: ToolContext) -> list[Failure]:
    return [Failure.model_validate_json(line) for line in read_lines(context.failures)]
