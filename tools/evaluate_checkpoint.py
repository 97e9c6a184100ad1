"""Evaluate the current checkpoint on a frozen set that roles may see."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.tools import StructuredTool
from pydantic import Field

from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool, table
from trainer.spec import EvalReport


class EvaluateArgs(Frozen):
    """Arguments of the tool. The test and benchmark sets cannot be named."""

    set: Literal["validation", "anchor"] = Field("validation", description="which frozen set")


def evaluate_checkpoint_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the run's evaluations, which are made once and then read.

    The result holds aggregates only: a row of n, valid, optimal and, for the validation set, outcomes for each cell.
    """

    def call(args: EvaluateArgs) -> ToolResult:
        return ToolResult(aggregates(context.evaluate(args.set), outcomes=args.set == "validation"))

    return logged_tool(
        log,
        name="evaluate_checkpoint",
        description="Valid and optimal rates of the current checkpoint by cell on the validation or the anchor set.",
        args=EvaluateArgs,
        call=call,
    )


def aggregates(report: EvalReport, *, outcomes: bool) -> dict[str, Any]:
    """What a role may see of a report: no rollouts, no ids. With ``outcomes`` each that occurred is a column."""
    named = sorted({name for cell in report.cells.values() for name in cell.outcomes}) if outcomes else []
    return {
        "set": report.set,
        "macro_valid": report.macro_valid,
        "macro_optimal": report.macro_optimal,
        **table(
            ["n", "valid", "optimal", *(f"n {name}" for name in named)],
            {
                name: [cell.n, cell.valid, cell.optimal, *(cell.outcomes.get(one, 0) for one in named)]
                for name, cell in report.cells.items()
            },
        ),
    }
