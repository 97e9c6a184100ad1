"""What all figures are taken on: the embedded model, its profile, and tasks drawn from the default configuration."""

from __future__ import annotations

from pathlib import Path

from envsim.registry import get
from trainer.checkpoint import resolve
from trainer.dataset import write_dataset
from trainer.profile import load_profile, prompts_needed, stage_spec
from trainer.spec import StageSpec

ENVIRONMENT = "lake"
PROFILE = "seedling"


def spec_of(steps: int, directory: Path, *, seed: int = 0, learning_rate_scale: float = 1.0) -> StageSpec:
    """A stage of the shipped profile, shortened; its dataset lies in the directory."""
    profile, environment = load_profile(PROFILE), get(ENVIRONMENT)
    instances = environment.generate(environment.default_config(), prompts_needed(profile.grpo), seed).instances
    whole = stage_spec(
        profile,
        environment=ENVIRONMENT,
        stage=0,
        seed=seed,
        init_model=resolve(profile.model),
        dataset=write_dataset(instances, directory / "dataset.jsonl"),
        learning_rate_scale=learning_rate_scale,
    )
    return whole.model_copy(update={"grpo": whole.grpo.model_copy(update={"steps": steps})})
