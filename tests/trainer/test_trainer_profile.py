"""Shipped profiles are whole; mistakes in one's own are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from shipped import spec_of

from trainer.profile import ProfileError, load_profile, shipped_profiles
from trainer.stage import check_spec

NAMES = ["qwen3-4b", "seedling", "smollm2"]


def test_all_profiles_are_shipped() -> None:
    assert sorted(shipped_profiles()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_makes_a_stage_that_can_be_trained(name: str) -> None:
    check_spec(spec_of(name))


def test_rate_scale_and_steps_reach_the_stage() -> None:
    profile = load_profile("seedling")
    spec = spec_of("seedling", steps=profile.bounds.min_steps, learning_rate_scale=0.5)
    assert spec.grpo.steps == profile.bounds.min_steps
    assert spec.grpo.learning_rate == pytest.approx(profile.grpo.learning_rate / 2)
    with pytest.raises(ProfileError, match="outside the bounds"):
        spec_of("seedling", steps=profile.bounds.max_steps + 1)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        (None, "modl", "x", "did you mean 'model'"),
        ("grpo", "learning_rat", 1e-5, "did you mean 'learning_rate'"),
        ("bounds", "minsteps", 1, "did you mean 'min_steps'"),
        ("roles", "temperature", 0.5, "roles.temperature = 0.5: Extra inputs"),
        ("evaluation", "sampled_n", 4, "evaluation.sampled_n = 4: Extra inputs"),
        ("evaluation", "sampled_temperature", 1.0, "evaluation.sampled_temperature = 1.0: Extra inputs"),
        ("grpo", "group", 1, "grpo.group = 1"),
        ("generation", "temperature", -1, "generation.temperature = -1"),
        ("grpo", "steps", 10_000, "lies outside bounds"),
        ("bounds", "min_steps", 10_000, "exceeds max_steps"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, section: str | None, key: str, value: object, message: str) -> None:
    data = yaml.safe_load(shipped_profiles()["seedling"])
    (data if section is None else data[section])[key] = value
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ProfileError, match=message):
        load_profile(path)


def test_unknown_names_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="did you mean 'seedling'"):
        load_profile("seedlng")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ProfileError, match="is no YAML"):
        load_profile(tmp_path / "broken.yaml")
