"""Shipped profiles are whole; mistakes in one's own are named."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml
from shipped import spec_of

from trainer.profile import ProfileError, load_profile, shipped_profiles
from trainer.stage import check_spec

NAMES = ["qwen3-4b", "qwen3-4b-8gpu", "seedling", "smollm2", "smollm2-warm"]


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
        ("grpo", "batch", 33, "grpo.batch 33 is no multiple of grpo.group 16"),
        ("grpo", "micro_batch", 48, "no multiple of grpo.micro_batch 48"),
        ("grpo", "loss_type", "x", "grpo.loss_type = 'x'"),
        ("grpo", "learning_rate", math.inf, "grpo.learning_rate = inf"),
        ("grpo", "max_grad_norm", math.nan, "grpo.max_grad_norm = nan"),
        ("grpo", "epsilon_high", -3, "grpo.epsilon_high = -3"),
        ("reward", "valid", math.inf, "reward.valid = inf"),
        (None, "reward", {"valid": 0, "optimal": 0}, "both 0"),
        ("generation", "temperature", 0, "generation.temperature is 0"),
        ("generation", "max_new_tokens", 10**9, "generation.max_new_tokens = 1000000000"),
        ("roles", "max_new_tokens", 10**9, "roles.max_new_tokens = 1000000000"),
        (None, "threads", 100_000, "threads = 100000"),
        (None, "rollouts", {"kind": "vllm_colocate"}, "need device cuda, got cpu"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, section: str | None, key: str, value: object, message: str) -> None:
    data = yaml.safe_load(shipped_profiles()["seedling"])
    (data if section is None else data[section])[key] = value
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ProfileError, match=message):
        load_profile(path)


@pytest.mark.parametrize(
    ("section", "key", "value", "says"),
    [
        ("bounds", "min_steps", 10_000, "bounds: min_steps 10000 exceeds max_steps 110"),
        ("grpo", "batch", 33, "grpo.batch 33 is no multiple of grpo.group 16; groups must be whole"),
        ("grpo", "steps", None, "grpo.steps: Field required"),
    ],
)
def test_what_is_wrong_with_a_whole_section_is_told_without_a_dump_of_it(
    tmp_path: Path, section: str, key: str, value: int | None, says: str
) -> None:
    data = yaml.safe_load(shipped_profiles()["seedling"])
    data[section][key] = value
    if value is None:
        del data[section][key]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert str(caught.value) == f"profile {path}: {says}"


def test_a_path_that_leads_to_no_file_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"^profile '/nowhere/seedlng.yml': no such file, did you mean 'seedling'\?"):
        load_profile("/nowhere/seedlng.yml")
    with pytest.raises(
        ProfileError, match=r"^profile 'mine.yaml': no such file; expected a YAML file or one of \['qwen3-4b'"
    ):
        load_profile("mine.yaml")
    with pytest.raises(ProfileError, match=r" is a directory, expected a YAML file or one of \["):
        load_profile(tmp_path)


def test_unknown_names_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="did you mean 'seedling'"):
        load_profile("seedlng")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ProfileError, match="is no valid YAML"):
        load_profile(tmp_path / "broken.yaml")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x89PNG\xff", "no UTF-8"),
        (b"[" * 5000, "nested"),
        (b"seed: " + b"9" * 5000, "YAML"),
        (b"", "is empty, expected a mapping"),
        (b"- a", r"holds \['a'\], expected a mapping"),
    ],
)
def test_files_that_are_no_profile_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=says) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_names_that_no_file_can_have_are_unknown_profiles(name: str) -> None:
    with pytest.raises(ProfileError, match="no profile") as caught:
        load_profile(name)
    assert len(str(caught.value)) < 300
