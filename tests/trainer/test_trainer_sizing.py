"""The sizing page: its formulas against a real architecture, its tables against the page."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.profile import load_profile
from trainer.sizing import GPUS, SHAPES, Assumptions, Shape, main, memory, stage

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
QWEN = SHAPES["Qwen/Qwen3-4B"]


@pytest.mark.parametrize("shape", [QWEN, Shape(2, 64, 4, 2, 32, 96, 300)])
def test_parameters_are_those_of_the_architecture(shape: Shape) -> None:
    config = Qwen3Config(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head,
        intermediate_size=shape.mlp,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    assert shape.parameters() == model.num_parameters()
    linear = [m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and name != "lm_head"]
    assert shape.lora_parameters(8) == sum(8 * (m.in_features + m.out_features) for m in linear)


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.strip() in PAGE.read_text(encoding="utf-8")


def test_more_gpus_need_less_each_and_longer_answers_take_longer() -> None:
    profile, assumed, h100 = load_profile("qwen3-4b"), Assumptions(), GPUS["h100"]
    held = [memory(profile, QWEN, h100, gpus, assumed).state for gpus in (1, 2, 8)]
    assert held[0] == 16 * QWEN.parameters()
    assert held == sorted(held, reverse=True)
    hours = [stage(profile, QWEN, h100, 8, length=length, assumed=assumed).hours for length in (600, 1200, 6000)]
    assert hours == sorted(hours)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "8xh1000"], "no layout '8xh1000'; expected a number, x and one of ['h100', 'h200']"),
        (["--profile", "seedling"], "the shape of 'seedling' is not known"),
        (["--tokens", "622", "-5"], "--tokens is -5, expected 1 to 131,072"),
        (["--tokens", "0"], "--tokens is 0, expected 1 to 131,072"),
        (["--tokens", "nan"], "--tokens is nan, expected 1 to 131,072"),
        (["--profile", "qwen3-4bb"], "did you mean 'qwen3-4b'"),
    ],
)
def test_what_it_cannot_size_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_rollouts_by_a_server_are_not_sized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.yaml"
    profile = load_profile("qwen3-4b").model_dump(mode="json", exclude_unset=True)
    changes = {"rollouts": {"kind": "vllm_server"}, "launch": {"preset": "server", "processes": 4}}
    path.write_text(yaml.safe_dump(profile | changes), encoding="utf-8")
    assert main(["--profile", str(path)]) == 2
    assert capsys.readouterr().err == (
        "the rollouts of profile 'qwen3-4b' are vllm_server; the formulas know vllm_colocate alone, where vLLM shares "
        "the GPUs that train\n"
    )
