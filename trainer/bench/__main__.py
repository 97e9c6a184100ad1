"""`python -m trainer.bench [FIGURE ...]`: what the trainer costs beside what it could be done with.

stage: our stage and a script that calls TRL directly, the same model, tasks and arguments. evaluation: our policy and a
loop of model.generate over the same prompts, and how much of a batch is padding. step: the parts of one step of GRPO,
and its generation and backward pass alone. startup: what a stage costs beside its steps, by kind of worker. All with
the embedded model on one thread; nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from trainer.imports import prepare

FIGURES = ("stage", "evaluation", "step", "startup")
LEAST = {"steps": 2, "tasks": 1, "seed": 0}
"""The learning rate of a first step is 0 where it warms up, and a stage that moves no weight is an error."""
MOST_SEED = 2**32 - 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.bench",
        description="Time the trainer beside TRL alone, evaluation beside model.generate, and a step part by part.",
    )
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}; default: all")
    parser.add_argument("--steps", type=int, default=16, help="of the stages that are timed")
    parser.add_argument("--tasks", type=int, default=256, help="of the evaluation")
    parser.add_argument("--seed", type=int, default=0, help="of tasks and sampling")
    options = parser.parse_args(arguments)
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"no figure {min(unknown)!r}, expected some of {', '.join(FIGURES)}")
    for name, least in LEAST.items():
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}, expected {least} or more")
    if options.seed > MOST_SEED:
        parser.error(f"--seed is {options.seed}, expected {MOST_SEED} or less")
    # As workers have it; torch reads it when it is imported.
    if os.environ.get("OMP_NUM_THREADS") != "1":
        os.environ["OMP_NUM_THREADS"] = "1"
        flags = ["-P"] if sys.flags.safe_path else []
        own = sys.argv[1:] if arguments is None else list(arguments)
        os.execv(sys.executable, [sys.executable, *flags, "-m", "trainer.bench", *own])
    prepare()
    console = Console(width=100)
    for figure in options.figures or FIGURES:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            console.print(_measured(figure, Path(directory), options))
    return 0


def _measured(figure: str, directory: Path, options: argparse.Namespace) -> object:
    # torch, which each of them imports, must find what was prepared.
    if figure == "stage":
        from trainer.bench import stage  # noqa: PLC0415

        return stage.measure(directory, options.steps, options.seed)
    if figure == "evaluation":
        from trainer.bench import evaluation  # noqa: PLC0415

        return evaluation.measure(options.tasks)
    if figure == "startup":
        from trainer.bench import startup  # noqa: PLC0415

        return startup.measure(directory, options.seed)
    from trainer.bench import step  # noqa: PLC0415

    return step.measure(directory, options.steps, options.seed)


if __name__ == "__main__":
    raise SystemExit(main())
