"""Evaluate a checkpoint on a frozen set that roles may see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from langchain_core.tools import StructuredTool
from pydantic import Field

from envsim.api import Environment, Instance, Style
from tools.log import Frozen, ToolLog, ToolResult, logged_tool
from trainer.evaluate import evaluate
from trainer.policy import Policy
from trainer.spec import EvalReport, GenerationSettings


class EvaluateArgs(Frozen):
    """Arguments of the tool. The test and benchmark sets cannot be named."""

    set: Literal["validation", "anchor"] = Field("validation", description="which frozen set")


def evaluate_checkpoint_tool(
    log: ToolLog,
    *,
    environment: Environment,
    policy: Policy,
    model_sha256: str,
    instances: Callable[[str], Sequence[Instance]],
    style: Style,
    generation: GenerationSettings,
    directory: Path,
    seed: int = 0,
) -> StructuredTool:
    """The tool over fixed dependencies. ``instances`` gives the instances of a set by its name.

    The result holds aggregates only: by cell n, valid, optimal and, for the validation set, outcomes.
    """

    def call(args: EvaluateArgs) -> ToolResult:
        report = evaluate(
            policy,
            environment,
            instances(args.set),
            set_name=args.set,
            model_sha256=model_sha256,
            style=style,
            generation=generation,
            directory=directory,
            seed=seed,
            keep_failures=args.set == "validation",
        )
        return ToolResult(aggregates(report, outcomes=args.set == "validation"), tokens=report.generated_tokens)

    return logged_tool(
        log,
        name="evaluate_checkpoint",
        description="Valid and optimal rates of the current checkpoint by cell on the validation or the anchor set.",
        args=EvaluateArgs,
        call=call,
    )


def aggregates(report: EvalReport, *, outcomes: bool) -> dict[str, Any]:
    """What a role may see of a report: no rollouts, no ids."""
    cells: dict[str, Any] = {}
    for name, cell in report.cells.items():
        cells[name] = {"n": cell.n, "valid": cell.valid, "optimal": cell.optimal}
        if outcomes:
            cells[name]["outcomes"] = cell.outcomes
    return {
        "set": report.set,
        "macro_valid": report.macro_valid,
        "macro_optimal": report.macro_optimal,
        "cells": cells,
    }
