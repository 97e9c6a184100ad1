"""Launch one RL stage inside the bounds that the run sets. Launching a stage twice never trains it twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from langchain_core.tools import StructuredTool
from pydantic import Field

from tools.log import Frozen, ToolLog, ToolResult, logged_tool
from trainer.spec import StageResult, StageSpec
from trainer.stage import OnProgress, run_stage


class LaunchArgs(Frozen):
    """Arguments of the tool."""

    steps: int = Field(gt=0, description="optimiser steps of the stage")
    learning_rate_scale: float = Field(1.0, gt=0, description="scale on the profile's learning rate: 0.5, 1 or 2")


class OutOfBounds(ValueError):
    """A budget that the run does not allow."""


def launch_stage_tool(
    log: ToolLog,
    *,
    spec: Callable[[int, float], StageSpec],
    directory: Path,
    steps: tuple[int, int],
    scales: tuple[float, ...] = (0.5, 1.0, 2.0),
    on_progress: OnProgress | None = None,
    run: Callable[..., StageResult] = run_stage,
) -> StructuredTool:
    """The tool over fixed dependencies. ``spec`` makes the stage's spec from steps and learning-rate scale.

    ``steps`` are the lowest and highest number allowed. A budget out of bounds is refused before anything starts.
    """

    def call(args: LaunchArgs) -> ToolResult:
        low, high = steps
        if not low <= args.steps <= high:
            raise OutOfBounds(f"steps = {args.steps} is out of bounds; expected {low} to {high}")
        if args.learning_rate_scale not in scales:
            raise OutOfBounds(
                f"learning_rate_scale = {args.learning_rate_scale:g} is unknown; expected one of {scales}"
            )
        result = run(spec(args.steps, args.learning_rate_scale), directory, on_progress=on_progress)
        return ToolResult(result.model_dump(mode="json", exclude={"model"}), tokens=result.generated_tokens)

    return logged_tool(
        log,
        name="launch_stage",
        description="Train the policy for one stage on its frozen dataset with this budget.",
        args=LaunchArgs,
        call=call,
        refusals=(OutOfBounds,),
    )
