"""A random model over the second environment, and a profile with which a stage takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from loops import finish, settings_text, start
from parity import Parity

from trainer.seedling.model import CONTEXT, build_model
from trainer.seedling.tokenizer import build_tokenizer


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seedling's architecture with random weights: it plays every role, badly."""
    directory = tmp_path_factory.mktemp("random") / "model"
    environment = Parity()
    texts = [
        message["content"]
        for task in environment.frozen_set("anchor")
        for message in environment.prompt(task, "compact")
    ]
    tokenizer = build_tokenizer(texts, merges=20, context=CONTEXT)
    tokenizer.save_pretrained(directory)
    build_model(tokenizer, 0).to(torch.float16).save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory, random_model: Path) -> Path:
    """Stages of seconds."""
    path = tmp_path_factory.mktemp("profile") / "tiny.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "name": "tiny",
                "model": str(random_model),
                "style": "full",
                "threads": 1,
                "grpo": {"steps": 4, "batch": 16, "group": 8, "learning_rate": 1e-3, "save_every": 2},
                "bounds": {"min_steps": 3, "max_steps": 5},
                "generation": {"max_new_tokens": 8},
                "roles": {"max_new_tokens": 64},
                "probe": {"tasks": 8, "samples": 4},
            }
        )
    )
    return path


@pytest.fixture(scope="session")
def straight(tmp_path_factory: pytest.TempPathFactory, profile: Path) -> tuple[Path, Path]:
    """Settings and directory of a run that nothing disturbed. Nobody may change it.

    Its roles are cut short, for what a random model says is of no use however long it is; one proposal is sent back.
    """
    folder = tmp_path_factory.mktemp("straight")
    config, short = folder / "settings.yaml", folder / "short.yaml"
    short.write_text(yaml.safe_dump(yaml.safe_load(profile.read_text()) | {"roles": {"max_new_tokens": 16}}))
    config.write_text(settings_text(short, designer="self", max_revisions=1))
    finish(start(folder, "--config", config, "--run-dir", folder / "run"))
    return config, folder / "run"
