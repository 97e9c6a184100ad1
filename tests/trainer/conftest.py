"""A tiny random Llama over bytes, saved as a checkpoint directory, and a stage spec over the toy environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.dataset import write_dataset
from trainer.spec import DataRef, GenerationSettings, GrpoSettings, ModelRef, RewardWeights, StageSpec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from tiny_model import make_checkpoint  # noqa: E402
from toy import Toy  # noqa: E402


@pytest.fixture(autouse=True)
def _toy_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes import the toy environment by name."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "model", seed=0)


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def toy_data(tmp_path: Path, toy: Toy) -> DataRef:
    return write_dataset(toy.instances(32), tmp_path / "dataset.jsonl")


@pytest.fixture
def make_spec(tiny: ModelRef, toy_data: DataRef) -> Callable[..., StageSpec]:
    def make(**changes: Any) -> StageSpec:
        numbers: dict[str, Any] = {
            "steps": 4, "batch": 16, "group": 4, "micro_batch": 8, "learning_rate": 1e-3, "save_every": 2
        }  # fmt: skip
        for key in list(changes):
            if key in GrpoSettings.model_fields:
                numbers[key] = changes.pop(key)
        values: dict[str, Any] = {
            "environment": "toy:Toy",
            "style": "compact",
            "stage": 0,
            "seed": 7,
            "init_model": tiny,
            "dataset": toy_data,
            "reward": RewardWeights(),
            "generation": GenerationSettings(max_new_tokens=8),
            "grpo": GrpoSettings(**numbers),
            "threads": 1,
        }
        return StageSpec(**(values | changes))

    return make
