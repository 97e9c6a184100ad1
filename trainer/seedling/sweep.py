"""``python -m trainer.seedling.sweep --directory DIR``: one GRPO stage a learning rate, from the same checkpoint."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from envsim import registry
from trainer.checkpoint import resolve
from trainer.dataset import write_dataset
from trainer.evaluate import evaluate
from trainer.policy import TransformersPolicy
from trainer.profile import Profile, load_profile, prompts_needed, stage_spec
from trainer.spec import ModelRef
from trainer.stage import run_stage

RATES = (1e-4, 2.5e-4, 5e-4, 1e-3)


def macro_valid(profile: Profile, ref: ModelRef, directory: Path) -> float:
    environment = registry.get("lake")
    return evaluate(
        TransformersPolicy(ref, threads=profile.threads),
        environment,
        environment.frozen_set("validation"),
        set_name="validation",
        model_sha256=ref.sha256,
        style=profile.style,
        generation=profile.generation.model_copy(update={"temperature": 0.0}),
        directory=directory,
    ).macro_valid


def sweep(profile: Profile, rates: tuple[float, ...], directory: Path, seed: int) -> dict[str, Any]:
    """Macro validity on the validation set before, and after one stage of the profile's length at each rate."""
    environment, ref = registry.get("lake"), resolve(profile.model)
    data = environment.generate(environment.default_config(), prompts_needed(profile.grpo), seed).instances
    directory.mkdir(parents=True, exist_ok=True)
    dataset = write_dataset(data, directory / "dataset.jsonl")
    found: dict[str, Any] = {"steps": profile.grpo.steps, "before": macro_valid(profile, ref, directory), "rates": []}
    for rate in rates:
        place = directory / f"{rate:g}"
        spec = stage_spec(
            profile,
            environment="lake",
            stage=0,
            seed=seed,
            init_model=ref,
            dataset=dataset,
            learning_rate_scale=rate / profile.grpo.learning_rate,
        )
        result = run_stage(spec, place)
        found["rates"].append({"rate": rate, "after": macro_valid(profile, result.model, place)})
        print(f"rate {rate:g}: {found['before']:.3f} -> {found['rates'][-1]['after']:.3f}", file=sys.stderr, flush=True)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.seedling.sweep", description=__doc__)
    parser.add_argument("--profile", default="seedling")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    print(json.dumps(sweep(load_profile(args.profile), tuple(args.rates), args.directory, args.seed), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
