"""vLLM in the training process, as far as a machine without a GPU can see: settings arrive, its reseeding is undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from shipped import spec_of

from trainer import grpo
from trainer.grpo import grpo_config, train
from trainer.profile import load_profile
from trainer.spec import StageSpec, VllmColocate


@pytest.mark.parametrize("name", ["qwen3-4b", "qwen3-4b-8gpu"])
def test_every_setting_of_colocated_vllm_reaches_trl(name: str, tmp_path: Path) -> None:
    rollouts = load_profile(name).rollouts
    assert isinstance(rollouts, VllmColocate)
    # TRL refuses bfloat16 for a GPU where there is none.
    spec = spec_of(name).model_copy(update={"device": "cpu"})
    for given in (rollouts, rollouts.model_copy(update={"gpu_memory_utilization": 0.2, "sleep": False})):
        config = grpo_config(spec.model_copy(update={"rollouts": given}), tmp_path)
        assert (config.use_vllm, config.vllm_mode) == (True, "colocate")
        assert config.vllm_gpu_memory_utilization == given.gpu_memory_utilization
        assert config.vllm_max_model_length == given.max_model_length
        assert config.vllm_enable_sleep_mode == given.sleep
        assert config.vllm_importance_sampling_mode == "token_truncate"
        # A seed of its own for each request would make all answers of a group the same.
        assert "seed" not in (config.generation_kwargs or {})


class Drawn(Exception):
    pass


class Reseeding:
    """Does to the process what vLLM does when the trainer is built, and draws from it when training begins."""

    def __init__(self, **_: Any) -> None:
        Accelerator(cpu=True)
        torch.manual_seed(0)

    def train(self, **_: Any) -> NoReturn:
        raise Drawn(torch.rand(1).item())


def test_two_seeds_draw_apart_although_the_engine_reseeds_the_process(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "StageTrainer", Reseeding)

    def first_draw(seed: int) -> float:
        attempt = tmp_path / f"{seed}"
        attempt.mkdir(exist_ok=True)
        with pytest.raises(Drawn) as drawn:
            train(make_spec(seed=seed), attempt, attempt / "model", resume=None, started=0.0)
        return float(drawn.value.args[0])

    before = torch.get_rng_state()
    one, two, again = first_draw(1), first_draw(2), first_draw(1)
    torch.set_rng_state(before)
    assert one == again != two
