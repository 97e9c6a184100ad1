"""`python -m trainer evaluate|stage|schema`: one checkpoint on one set, one stage from its spec, or the protocol.

Exit codes: 0 done, 1 a worker failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from envsim.api import EnvsimError
from envsim.documents import DocumentError, read_text
from envsim.registry import get
from trainer.checkpoint import CheckpointError, resolve
from trainer.evaluate import EvaluationError, evaluate
from trainer.policy import TransformersPolicy
from trainer.profile import ProfileError, load_profile
from trainer.spec import EvalReport, SftResult, SftSpec, StageResult, StageSpec, explain, read_spec
from trainer.stage import StageError, StageInputError, run_any

SCHEMAS: dict[str, type[BaseModel]] = {
    model.__name__: model for model in (StageSpec, StageResult, SftSpec, SftResult, EvalReport)
}
_BAD_INPUT = (CheckpointError, DocumentError, EnvsimError, EvaluationError, ProfileError, ValidationError, OSError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    _evaluate_arguments(commands.add_parser("evaluate", help="a checkpoint on a frozen set"))
    stage = commands.add_parser("stage", help="train one stage from its spec")
    stage.add_argument("--spec", type=Path, required=True, help="JSON file of a stage's spec")
    stage.add_argument("--directory", type=Path, required=True, help="the stage's directory")
    stage.set_defaults(run=_stage)
    schema = commands.add_parser("schema", help="print the protocol of stages and evaluations as JSON Schema")
    schema.add_argument("name", nargs="?", choices=sorted(SCHEMAS), help="one schema only; none = all by name")
    schema.set_defaults(run=_schema)
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        run(options)
    except _BAD_INPUT as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except StageError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, StageInputError) else 1
    return 0


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="seedling, smollm2, a directory or a hub id; default: the profile's")
    parser.add_argument("--profile", default="seedling", help="a shipped profile or a YAML file")
    parser.add_argument("--set", default="anchor", help="anchor, validation, test or benchmark")
    parser.add_argument("--environment", default="lake")
    parser.add_argument("--directory", type=Path, required=True, help="where rollouts and report go; resumes there")
    parser.add_argument("--limit", type=int, default=0, help="only the first N instances; 0 = all")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 = greedy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep-failures", action="store_true", help="replay the failures into a file as well")
    parser.set_defaults(run=_evaluate)


def _check_numbers(options: argparse.Namespace) -> None:
    ranges = {"samples": (1, 10_000), "limit": (0, math.inf), "seed": (0, 2**31 - 1), "temperature": (0, 100)}
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if not low <= value <= high:
            expected = f"{low} or more" if high == math.inf else f"{low} to {high}"
            raise EvaluationError(f"--{name} is {value}, expected {expected}")


def _evaluate(options: argparse.Namespace) -> None:
    _check_numbers(options)
    profile = load_profile(options.profile)
    environment = get(options.environment)
    ref = resolve(options.model or profile.model)
    instances = environment.frozen_set(options.set)
    policy = TransformersPolicy(
        ref,
        device=profile.device,
        threads=profile.threads,
        batch_size=profile.evaluation.batch_size,
        chat_template_kwargs=profile.generation.chat_template_kwargs,
    )
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(options.set, total=len(instances))
        report = evaluate(
            policy,
            environment,
            instances[: options.limit or None],
            set_name=options.set,
            model_sha256=ref.sha256,
            style=profile.style,
            generation=profile.generation.model_copy(update={"temperature": options.temperature}),
            directory=options.directory,
            samples=options.samples,
            seed=options.seed,
            keep_failures=options.keep_failures,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    _print(report)


def _print(report: EvalReport) -> None:
    table = Table("cell", "n", "valid", "optimal", "tokens", title=f"{report.set}: {report.n} tasks x {report.samples}")
    noisy = any(cell.success is not None for cell in report.cells.values())
    if noisy:
        table.add_column("success of valid plans")
    for name, cell in report.cells.items():
        row = [name, str(cell.n), f"{cell.valid:.1%}", f"{cell.optimal:.1%}", f"{cell.mean_tokens:.1f}"]
        table.add_row(*row, *(["-" if cell.success is None else f"{cell.success:.1%}"] if noisy else []))
    table.add_section()
    table.add_row("macro", str(report.n), f"{report.macro_valid:.1%}", f"{report.macro_optimal:.1%}", "")
    console = Console()
    console.print(table)
    console.print(f"{report.generated_tokens} tokens in {report.seconds:.1f} s; outcomes {report.outcomes}")


def _stage(options: argparse.Namespace) -> None:
    try:
        spec = read_spec(read_text(options.spec))
    except ValidationError as error:
        raise StageInputError(f"--spec {options.spec} is no stage spec: {explain(error)}") from error
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"stage {spec.stage}", total=spec.steps)

        def show(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                shown = "loss" if isinstance(spec, SftSpec) else "reward"
                bar.update(task, completed=event["step"], description=f"{shown} {event[shown]:.3f}")

        result = run_any(spec, options.directory, on_progress=show)
    print(result.model_dump_json(indent=1))


def _schema(options: argparse.Namespace) -> None:
    schemas = {name: model.model_json_schema() for name, model in SCHEMAS.items()}
    print(json.dumps(schemas if options.name is None else schemas[options.name], indent=2))


if __name__ == "__main__":
    raise SystemExit(main())
