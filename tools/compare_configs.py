"""Two configurations side by side: which knobs differ, and what each really gives."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.tools import StructuredTool
from pydantic import Field

from envsim.api import EnvsimError
from tools.context import ToolContext
from tools.log import Frozen, ToolLog, ToolResult, logged_tool

Base = Literal["accepted", "proposed"]


class NoProposal(ValueError):
    """There is no proposal at this place of the stage."""


class Side(Frozen):
    """One of the two configurations."""

    base: Base = Field("accepted", description="the last accepted configuration, or the one that is proposed now")
    values: dict[str, float] = Field({}, description="knobs to set on it, by path")


class CompareArgs(Frozen):
    """Arguments of the tool."""

    first: Side = Field(Side(), description="the first configuration")
    second: Side = Field(Side(), description="the second configuration")
    n: int = Field(64, ge=1, le=256, description="number of instances to generate of each")


def compare_configs_tool(log: ToolLog, context: ToolContext) -> StructuredTool:
    """The tool over the last accepted configuration and, where there is one, this round's proposal."""
    environment = context.environment

    def configuration(side: Side) -> Any:
        if side.base == "proposed" and context.proposed is None:
            raise NoProposal("there is no proposed configuration at this place; use base 'accepted'")
        base = context.config if side.base == "accepted" else context.proposed
        return environment.with_values(base, side.values)

    def call(args: CompareArgs) -> ToolResult:
        sides = [configuration(args.first), configuration(args.second)]
        knobs = [environment.knobs(config) for config in sides]
        measured = [
            environment.generate(config, args.n, context.seed, split="probe", progress=context.progress).measurement
            for config in sides
        ]
        changed = {
            path: [knobs[0][path].value, knobs[1][path].value]
            for path in knobs[0]
            if path in knobs[1] and knobs[0][path].value != knobs[1][path].value
        }
        return ToolResult(
            {
                "knobs": changed,
                "share": {cell: [one.share.get(cell, 0.0) for one in measured] for cell in environment.cells()},
                "difficulty": [one.difficulty for one in measured],
                "coordination": [one.coordination for one in measured],
            }
        )

    return logged_tool(
        log,
        name="compare_configs",
        description="Two configurations side by side, each as [first, second]: the knobs that differ, the share of "
        "each cell, difficulty and coordination as really generated.",
        args=CompareArgs,
        call=call,
        refusals=(EnvsimError, NoProposal),
    )
