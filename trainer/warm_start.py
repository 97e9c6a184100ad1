"""`python -m trainer.warm_start`: show a model the environment's demonstrations, and say what it learnt by them.

One supervised stage (kind ``sft``) by a profile's ``sft`` section, on tasks of the training split, with an evaluation
on a part of the validation set before and after. The model lies in DIRECTORY/stage/model; a profile that names it goes
on from there. Run again, it goes on where it stopped. Exit codes: 0 done, 1 a worker failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress

from envsim.api import Environment, EnvsimError
from envsim.documents import DocumentError, read_yaml
from envsim.registry import get
from trainer.checkpoint import CheckpointError, resolve
from trainer.dataset import DatasetError, write_dataset
from trainer.evaluate import EvaluationError, evaluate
from trainer.policy import TransformersPolicy
from trainer.profile import Profile, ProfileError, load_profile
from trainer.spec import DataRef, EvalReport, ModelRef, SftResult, SftSpec, explain
from trainer.stage import StageError, StageInputError, run_sft

_BAD_INPUT = (CheckpointError, DatasetError, DocumentError, EnvsimError, EvaluationError, ProfileError, OSError)
SET = "validation"


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
    parser.add_argument("--evaluate", type=int, default=64, help="validation tasks before and after; 0 = none")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except _BAD_INPUT as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    except StageError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, StageInputError) else 1


def _run(options: argparse.Namespace) -> int:
    profile = load_profile(options.profile)
    for name, least in (("tasks", 1), ("seed", 0), ("evaluate", 0)):
        if getattr(options, name) < least:
            raise ProfileError(f"--{name} is {getattr(options, name)}, expected {least} or more")
    environment = get(options.environment)
    start = resolve(options.model or profile.model)
    directory: Path = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    config = _config(environment, options.config)
    tasks = environment.generate(config, options.tasks, options.seed).instances
    data = write_dataset(tasks, directory / "dataset.jsonl")
    spec = sft_spec(profile, environment.name, start, data, seed=options.seed, steps=options.steps)
    console = Console()
    before = _evaluated(profile, environment, start, directory / "before", options.evaluate)
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("showing demonstrations", total=spec.steps)

        def show(event: dict[str, Any]) -> None:
            if event["event"] == "step":
                bar.update(task, completed=event["step"], description=f"loss {event['loss']:.3f}")

        result = run_sft(spec, directory / "stage", on_progress=show)
    after = _evaluated(profile, environment, result.model, directory / "after", options.evaluate)
    console.print(_learnt(result), soft_wrap=True)
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


def _evaluated(profile: Profile, environment: Environment, ref: ModelRef, directory: Path, n: int) -> EvalReport | None:
    """Greedy answers to n tasks evenly spread over the set."""
    if n == 0:
        return None
    whole = environment.frozen_set(SET)
    some = [whole[index * len(whole) // n] for index in range(n)] if n < len(whole) else whole
    policy = TransformersPolicy(
        ref,
        device=profile.device,
        threads=profile.threads,
        batch_size=profile.evaluation.batch_size,
        chat_template_kwargs=profile.generation.chat_template_kwargs,
    )
    report = evaluate(
        policy,
        environment,
        some,
        set_name=SET,
        model_sha256=ref.sha256,
        style=profile.style,
        generation=profile.generation.model_copy(update={"temperature": 0.0}),
        directory=directory,
    )
    policy.close()
    return report


def _learnt(result: SftResult) -> str:
    return (
        f"{result.steps} steps, {result.answer_tokens} answer tokens in {result.seconds['total']:.0f} s: "
        f"loss {result.loss_first:.3f} -> {result.loss_last:.3f} nats a token"
    )


def _verdicts(when: str, report: EvalReport) -> str:
    outcomes = ", ".join(f"{name} {n}" for name, n in report.outcomes.items())
    return f"{when}: {100 * report.macro_valid:.1f} % valid over cells ({report.n} tasks: {outcomes})"


if __name__ == "__main__":
    raise SystemExit(main())
