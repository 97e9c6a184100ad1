"""`python -m trainer evaluate|stage|completions|schema`: evaluate a checkpoint, train a stage, read answers, schemas.

Exit codes: 0 done, 1 a worker failed, 2 bad input, 75 a stage was stopped by SIGTERM or SIGINT and can go on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from envsim.api import EnvsimError
from envsim.documents import DocumentError, read_text
from envsim.registry import get
from trainer.checkpoint import CheckpointError, resolve
from trainer.completions import CompletionsError
from trainer.completions_table import add_arguments as add_completions_arguments
from trainer.completions_table import show as show_completions
from trainer.evaluate import EvaluationError, evaluate
from trainer.files import make_directory
from trainer.launch.contract import Launcher, LaunchError
from trainer.launch.places import evaluation_plan, launcher
from trainer.launch.settings import LONGEST_GRACE, LaunchSettings, RaySettings
from trainer.launch.sharded import ShardedPolicy
from trainer.metrics import metrics_of
from trainer.policy import OwnedPolicy, PolicyError
from trainer.processes import GRACE_SECONDS
from trainer.profile import Profile, ProfileError, load_profile
from trainer.serving.health import ServingInputError
from trainer.serving.server import interpreter
from trainer.serving.settings import Backend, UrlBackend, VllmBackend, check_url, engine
from trainer.spec import (
    EvalReport,
    ModelRef,
    SftResult,
    SftSpec,
    StageResult,
    StageSpec,
    TrackerName,
    canonical_hash,
    explain,
    read_spec,
)
from trainer.spec_faults import explain_spec
from trainer.stage import StageCancelled, StageError, StageInputError, run_any
from trainer.stopping import EXIT_DRAINED, stopped_by_signals
from trainer.tracking import TrackingError, stage_curves

SCHEMAS: dict[str, type[BaseModel]] = {
    model.__name__: model for model in (StageSpec, StageResult, SftSpec, SftResult, EvalReport)
}
_BAD_INPUT = (
    CheckpointError,
    CompletionsError,
    DocumentError,
    EnvsimError,
    EvaluationError,
    ProfileError,
    ServingInputError,
    TrackingError,
    OSError,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    _evaluate_arguments(commands.add_parser("evaluate", help="a checkpoint on a frozen set"))
    stage = commands.add_parser("stage", help="train one stage from its spec")
    stage.add_argument("--spec", type=Path, required=True, help="JSON file of a stage's spec")
    stage.add_argument("--directory", type=Path, required=True, help="the stage's directory")
    stage.add_argument(
        "--tracking", nargs="*", default=["tensorboard"], choices=get_args(TrackerName), help="where the curves go"
    )
    stage.add_argument(
        "--grace", type=float, default=GRACE_SECONDS, metavar="SECONDS", help="what a worker has for saving at SIGTERM"
    )
    _place_arguments(stage)
    stage.set_defaults(run=_stage)
    kept = commands.add_parser("completions", help="what a policy answered while it trained")
    add_completions_arguments(kept)
    kept.set_defaults(run=show_completions)
    schema = commands.add_parser("schema", help="print the protocol of stages and evaluations as JSON Schema")
    schema.add_argument("name", nargs="?", choices=sorted(SCHEMAS), help="one schema only; none = all by name")
    schema.set_defaults(run=_schema)
    options = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = options.run
    try:
        run(options)
    except ValidationError as error:
        print(explain(error), file=sys.stderr)
        return 2
    except _BAD_INPUT as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except (LaunchError, PolicyError) as error:
        print(error, file=sys.stderr)
        return 1
    except StageError as error:
        print(error, file=sys.stderr)
        return EXIT_DRAINED if isinstance(error, StageCancelled) else 2 if isinstance(error, StageInputError) else 1
    return 0


def _evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="seedling, smollm2, a directory or a hub id; default: the profile's")
    parser.add_argument(
        "--profile", help="a shipped profile or a YAML file; default: seedling, for the model seedling alone"
    )
    parser.add_argument("--set", default="anchor", help="anchor, validation, test or benchmark")
    parser.add_argument("--environment", default="lake")
    parser.add_argument("--directory", type=Path, required=True, help="where rollouts and report go; resumes there")
    parser.add_argument("--limit", type=int, default=0, help="only the first N instances; 0 = all")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 = greedy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep-failures", action="store_true", help="replay the failures into a file as well")
    parser.add_argument(
        "--vllm", metavar="PYTHON", nargs="?", const="", help="by a vLLM server of its own; PYTHON has it"
    )
    parser.add_argument("--url", help="by the server at this OpenAI-compatible URL, such as http://host:8000/v1")
    parser.add_argument("--served-model", metavar="NAME", help="the model's name at --url")
    parser.add_argument("--shards", type=int, help="tasks to split it into; default: the profile's, else 1")
    _place_arguments(parser)
    parser.set_defaults(run=_evaluate)


def _place_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ray", metavar="ADDRESS", help="on a Ray cluster: host:port of its head, or auto")


def _place(options: argparse.Namespace, settings: LaunchSettings | None = None) -> Launcher:
    if options.ray is not None:
        ray = {"where": "ray", "ray": RaySettings(address=options.ray)}
        settings = (settings or LaunchSettings()).model_copy(update=ray)
    return launcher(settings)


def _check_numbers(options: argparse.Namespace) -> None:
    ranges = {
        "shards": (1, 256),
        "samples": (1, 10_000),
        "limit": (0, math.inf),
        "seed": (0, 2**31 - 1),
        "temperature": (0, 100),
    }
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if value is None:
            continue
        if not low <= value <= high:
            expected = f"{low} or more" if high == math.inf else f"{low} to {high}"
            raise EvaluationError(f"--{name} is {value}, expected {expected}")


def _evaluate(options: argparse.Namespace) -> None:
    _check_numbers(options)
    profile = _profile(options)
    environment = get(options.environment)
    profile = profile.model_copy(update={"backend": _backend(options, profile)})
    ref = _model(options, profile)
    if isinstance(profile.backend, VllmBackend) and options.ray is None and not _on_ray(profile):
        interpreter(profile.backend)
    instances = environment.frozen_set(options.set)
    instances = instances[: options.limit or None]
    plan = evaluation_plan(
        profile,
        environment=options.environment,
        set_name=options.set,
        model=ref,
        temperature=options.temperature,
        samples=options.samples,
        seed=options.seed,
    )
    shards = options.shards or (1 if profile.launch is None else profile.launch.shards)
    if isinstance(profile.backend, UrlBackend) and (shards > 1 or options.ray is not None):
        raise EvaluationError(
            f"an evaluation by URL is not split into tasks, got {shards}; its backend's concurrency says how many "
            "requests are under way"
        )
    make_directory(options.directory)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(options.set, total=len(instances))

        def show(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        policy: OwnedPolicy
        with ExitStack() as held:
            place = _place(options, profile.launch) if shards > 1 or options.ray is not None else None
            if place is not None:
                policy = ShardedPolicy(
                    place, plan, environment, instances, directory=options.directory, shards=shards, progress=show
                )
            else:
                policy = held.enter_context(closing(plan.policy(options.directory)))
            report = evaluate(
                policy,
                environment,
                instances,
                set_name=options.set,
                model_sha256=ref.sha256,
                style=profile.style,
                generation=plan.generation,
                directory=options.directory,
                samples=options.samples,
                seed=options.seed,
                backend=engine(plan.backend),
                keep_failures=options.keep_failures,
                progress=show,
            )
        if isinstance(policy, ShardedPolicy):
            # Its parts go only once the evaluation has them: one that was cut off needs them.
            policy.close()
    _print(report)


def _profile(options: argparse.Namespace) -> Profile:
    """The profile that was named; the seedling needs none."""
    if options.profile is not None:
        return load_profile(options.profile)
    if options.url is None and options.model in (None, "seedling"):
        return load_profile("seedling")
    asked = f"--model {options.model}" if options.url is None else f"--url {options.url}"
    raise EvaluationError(
        f"{asked} needs a --profile, which says how prompts look and how long answers may be; for a run's checkpoint "
        "take the one that its run.yaml names"
    )


def _on_ray(profile: Profile) -> bool:
    """Where this machine need not have what the task does."""
    return profile.launch is not None and profile.launch.where == "ray"


def _backend(options: argparse.Namespace, profile: Profile) -> Backend:
    if options.url is not None and options.vllm is not None:
        raise EvaluationError("--url and --vllm exclude each other; give one of them")
    if (options.url is None) != (options.served_model is None):
        raise EvaluationError("--url and --served-model belong together; give both or neither")
    if options.url is not None:
        try:
            check_url("--url", options.url)
        except ValueError as error:
            raise EvaluationError(str(error)) from error
        return UrlBackend(base_url=options.url, model=options.served_model)
    if options.vllm is not None:
        given = profile.backend if isinstance(profile.backend, VllmBackend) else VllmBackend()
        return given.model_copy(update={"python": options.vllm or given.python})
    return profile.backend


def _model(options: argparse.Namespace, profile: Profile) -> ModelRef:
    """The checkpoint, or what stands for one that lies elsewhere."""
    if not isinstance(profile.backend, UrlBackend):
        return resolve(options.model or profile.model)
    if options.model is not None:
        raise EvaluationError(
            f"--model is {options.model}, but {profile.backend.base_url} answers with its own "
            f"{profile.backend.model!r}; leave --model out, or evaluate the checkpoint with --vllm"
        )
    return ModelRef(path=profile.backend.model, sha256=canonical_hash(profile.backend.content()))


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
    if not 0 < options.grace <= LONGEST_GRACE:
        raise StageInputError(f"--grace is {options.grace:g}, expected more than 0, up to {LONGEST_GRACE:,}")
    try:
        spec = read_spec(read_text(options.spec))
    except ValidationError as error:
        raise StageInputError(f"--spec {options.spec} is no stage spec: {explain_spec(error)}") from error
    make_directory(options.directory)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task(f"stage {spec.stage}", total=spec.steps)

        def show(event: dict[str, Any]) -> None:
            curves.event(event)
            if event["event"] == "step":
                shown = "loss" if isinstance(spec, SftSpec) else "reward"
                bar.update(task, completed=event["step"], description=f"{shown} {event[shown]:.3f}")

        config = spec.model_dump(mode="json")
        directory: Path = options.directory
        place = _place(options, LaunchSettings(grace_seconds=options.grace))
        kind = metrics_of(spec)
        with (
            stopped_by_signals() as stop,
            stage_curves(options.tracking, directory, directory, stage=spec.stage, config=config, kind=kind) as curves,
        ):
            result = run_any(spec, directory, on_progress=show, stop=stop, launcher=place)
    print(result.model_dump_json(indent=1))


def _schema(options: argparse.Namespace) -> None:
    schemas = {name: model.model_json_schema() for name, model in SCHEMAS.items()}
    print(json.dumps(schemas if options.name is None else schemas[options.name], indent=2))


if __name__ == "__main__":
    raise SystemExit(main())
