"""`python -m trainer.warm_start`: show a model the environment's demonstrations, and say what it learnt by them.

One supervised stage (kind ``sft``) by a profile's ``sft`` section, on tasks of the training split, with an evaluation
before and after on tasks of the same configuration and the validation split. The model lies in
DIRECTORY/stage/model; a profile that names it goes on from there. Run again, it goes on where it stopped. Exit codes:
0 done, 1 a worker failed, 2 bad input, 75 stopped by SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress

from envsim.api import Environment, EnvsimError, Instance
from envsim.documents import DocumentError, read_yaml
from envsim.registry import get
from trainer.attempts import attempts
from trainer.checkpoint import CheckpointError, resolve
from trainer.dataset import DatasetError, write_dataset
from trainer.evaluate import EvaluationError, evaluate
from trainer.files import make_directory
from trainer.launch.contract import LaunchError
from trainer.launch.places import evaluation_plan, launcher
from trainer.metrics import SftMetrics, stage_rows
from trainer.policy import PolicyError
from trainer.profile import Profile, ProfileError, load_profile
from trainer.serving.settings import UrlBackend, engine
from trainer.spec import DataRef, EvalReport, ModelRef, SftResult, SftSpec, explain
from trainer.stage import StageCancelled, StageError, StageInputError, run_sft
from trainer.statistics import wilson
from trainer.stopping import EXIT_DRAINED, stopped_by_signals
from trainer.training_settings import SftTripwires
from trainer.tripwires import extremes

_BAD_INPUT = (CheckpointError, DatasetError, DocumentError, EnvsimError, EvaluationError, ProfileError, OSError)
SPLIT = "validation"
_PARTS = 10
"""Of the curve of the loss."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.warm_start", description="A supervised warm start from an environment's demonstrations."
    )
    parser.add_argument("--profile", required=True, help="a shipped profile or a YAML file, with a section 'sft'")
    parser.add_argument("--directory", type=Path, required=True, help="where everything goes; resumes there")
    parser.add_argument("--model", help="seedling, smollm2, a directory or a hub id; default: the profile's")
    parser.add_argument("--environment", default="lake")
    parser.add_argument("--config", type=Path, help="YAML file of the tasks' configuration; default: the environment's")
    parser.add_argument("--steps", type=int, help="default: the profile's")
    parser.add_argument("--tasks", type=int, default=1000, help="distinct tasks to be shown, again if need be")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluate", type=int, default=64, help="held-out tasks before and after; 0 = none")
    options = parser.parse_args(arguments)
    try:
        with stopped_by_signals() as stop:
            return _run(options, stop)
    except _BAD_INPUT as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except (LaunchError, PolicyError) as error:
        print(error, file=sys.stderr)
        return 1
    except StageError as error:
        print(error, file=sys.stderr)
        return EXIT_DRAINED if isinstance(error, StageCancelled) else 2 if isinstance(error, StageInputError) else 1


def _run(options: argparse.Namespace, stop: threading.Event) -> int:
    profile = load_profile(options.profile)
    for name, least in (("tasks", 1), ("seed", 0), ("evaluate", 0)):
        if getattr(options, name) < least:
            raise ProfileError(f"--{name} is {getattr(options, name)}, expected {least} or more")
    if isinstance(profile.backend, UrlBackend) and options.evaluate:
        raise ProfileError(
            f"profile {profile.name} evaluates by {profile.backend.base_url}, which cannot answer for the model "
            "that is trained; give another backend, or --evaluate 0"
        )
    environment = get(options.environment)
    start = resolve(options.model or profile.model)
    directory: Path = options.directory
    make_directory(directory)
    config = _config(environment, options.config)
    tasks = environment.generate(config, options.tasks, options.seed).instances
    data = write_dataset(tasks, directory / "dataset.jsonl")
    spec = sft_spec(profile, environment.name, start, data, seed=options.seed, steps=options.steps)
    console = Console()
    asked = _held_out(environment, config, options.evaluate)
    before = _evaluated(profile, environment, start, directory / "before", tasks=asked, stop=stop)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("showing demonstrations", total=spec.steps)

        def show(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                bar.update(task, completed=event["step"], description=f"loss {event['loss']:.3f}")

        result = run_sft(spec, directory / "stage", on_progress=show, stop=stop, launcher=launcher(profile.launch))
    after = _evaluated(profile, environment, result.model, directory / "after", tasks=asked, stop=stop)
    console.print(_learnt(result), soft_wrap=True)
    rows = stage_rows(attempts(directory / "stage"), SftMetrics)
    console.print(_curve(rows), soft_wrap=True)
    console.print(_watched(rows), soft_wrap=True)
    if before is not None and after is not None:
        console.print(_verdicts("before", before), soft_wrap=True)
        console.print(_verdicts("after", after), soft_wrap=True)
    console.print(f"the model: {result.model.path}", soft_wrap=True)
    return 0


def sft_spec(
    profile: Profile, environment: str, start: ModelRef, data: DataRef, *, seed: int, steps: int | None = None
) -> SftSpec:
    """The supervised stage that a profile makes of a model and tasks.

    Raises:
        ProfileError: the profile has no section ``sft``, or ``steps`` is out of bounds.
    """
    if profile.sft is None:
        raise ProfileError(f"profile {profile.name} has no section 'sft'; expected one with at least 'steps'")
    sft = profile.sft.model_dump() | ({} if steps is None else {"steps": steps})
    try:
        return SftSpec.model_validate(
            {
                "environment": environment,
                "style": profile.style,
                "stage": 0,
                "seed": seed,
                "init_model": start,
                "dataset": data,
                "generation": profile.generation,
                "sft": sft,
                "lora": profile.lora,
                "device": profile.device,
                "threads": profile.threads,
            }
        )
    except ValidationError as error:
        raise ProfileError(explain(error)) from error


def _config(environment: Environment, path: Path | None) -> Any:
    if path is None:
        return environment.default_config()
    try:
        return environment.config_model.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ProfileError(f"--config {path}: {explain(error)}") from error


def _held_out(environment: Environment, config: Any, n: int) -> Sequence[Instance]:
    """n tasks of the configuration that are shown to nobody; the same ones whatever the stage's seed is."""
    return environment.generate(config, n, 0, split=SPLIT).instances if n else ()


def _evaluated(
    profile: Profile,
    environment: Environment,
    ref: ModelRef,
    directory: Path,
    *,
    tasks: Sequence[Instance],
    stop: threading.Event,
) -> EvalReport | None:
    """Greedy answers to the tasks; None without any. Raises StageCancelled between two chunks of answers."""
    if not tasks:
        return None

    def go_on(done: int, total: int) -> None:
        if stop.is_set():
            raise StageCancelled(f"stopped after {done} of {total} answers; run it again to go on")

    plan = evaluation_plan(profile, environment=environment.name, set_name=SPLIT, model=ref)
    with closing(plan.policy(directory)) as policy:
        return evaluate(
            policy,
            environment,
            tasks,
            set_name=SPLIT,
            model_sha256=ref.sha256,
            style=profile.style,
            generation=plan.generation,
            directory=directory,
            backend=engine(plan.backend),
            progress=go_on,
        )


def _learnt(result: SftResult) -> str:
    return (
        f"{result.steps} steps, {result.answer_tokens} answer tokens in {result.seconds['total']:.0f} s: "
        f"loss {result.loss_first:.3f} -> {result.loss_last:.3f} nats a token"
        + ("" if result.tripped is None else f"; stopped early, {result.tripped}")
    )


def _curve(rows: Sequence[SftMetrics]) -> str:
    """The mean loss of each tenth of the steps."""
    edges = [len(rows) * part // _PARTS for part in range(_PARTS + 1)]
    means = [f"{sum(row.loss for row in rows[a:b]) / (b - a):.2f}" for a, b in pairwise(edges) if b > a]
    return f"loss by tenths of the steps: {' '.join(means)}"


def _watched(rows: Sequence[SftMetrics]) -> str:
    """How near the stage came to tripwires of the usual window, armed or not."""
    wires = SftTripwires()
    figures = extremes(rows, wires)
    if len(figures) < 2:
        return f"tripwires: {len(rows)} steps are too few to judge; expected more than {wires.window}"
    return (
        f"tripwires: over {wires.window} steps the loss was at most {figures['loss_growth']:.2f} times its best, "
        f"the gradient's norm at most {figures['gradient_norm_above']:.3g}"
    )


def _verdicts(when: str, report: EvalReport) -> str:
    """Shares over all tasks with their 95 % intervals, and how the answers ended."""
    shares = []
    for name in ("valid", "optimal"):
        n = round(sum(getattr(cell, name) * cell.n for cell in report.cells.values()))
        low, high = wilson(n, report.n)
        shares.append(f"{100 * n / report.n:.1f} % {name} ({100 * low:.1f} to {100 * high:.1f})")
    outcomes = ", ".join(f"{name} {n}" for name, n in report.outcomes.items())
    return f"{when}: {', '.join(shares)} of {report.n} tasks: {outcomes}"


if __name__ == "__main__":
    raise SystemExit(main())
