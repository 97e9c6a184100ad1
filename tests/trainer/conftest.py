"""A tiny random Llama over bytes, saved as a checkpoint directory, and a stage spec over the toy environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from trainer.checkpoint import reference
from trainer.dataset import write_dataset
from trainer.spec import DataRef, GenerationSettings, GrpoSettings, ModelRef, RewardWeights, StageSpec

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from toy import Toy  # noqa: E402

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


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


def make_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    # Ordinary tokens, as the cells of a lake are in the real model.
    tokenizer.add_tokens([AddedToken(f"({r},{c})", normalized=False) for r in range(3) for c in range(3)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>", clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = TEMPLATE
    return wrapped


def make_checkpoint(directory: Path, seed: int, *, hidden: int = 64, layers: int = 2) -> ModelRef:
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).half().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return reference(directory)


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
