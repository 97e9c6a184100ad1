"""The stage that a shipped profile makes over the lake; its model and its data exist only by name."""

from __future__ import annotations

from trainer.profile import load_profile, prompts_needed, stage_spec
from trainer.spec import DataRef, ModelRef, StageSpec


def spec_of(name: str, *, steps: int | None = None, learning_rate_scale: float = 1.0) -> StageSpec:
    profile = load_profile(name)
    return stage_spec(
        profile,
        environment="lake",
        stage=1,
        seed=2,
        init_model=ModelRef(path="m", sha256="0"),
        dataset=DataRef(path="d", sha256="0", n=prompts_needed(profile.grpo)),
        steps=steps,
        learning_rate_scale=learning_rate_scale,
    )
