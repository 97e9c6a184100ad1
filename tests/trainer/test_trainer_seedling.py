"""The embedded model: its size, its tokens, its recipe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from envsim import registry
from trainer.checkpoint import load, resolve
from trainer.policy import TransformersPolicy
from trainer.seedling.build import build
from trainer.seedling.data import IGNORED, Encoded
from trainer.seedling.recipe import PlanMix, Recipe
from trainer.seedling.tokenizer import build_tokenizer, cell_tokens, size_tokens

LAKE = registry.get("lake")
TINY = Recipe(
    merges=40,
    tokenizer_texts=60,
    plans=(PlanMix(n=240, agents={2: 1.0}, sizes={3: 1.0}, hole_ratios=(0.2,)),),
    steps=3,
    plan_batch=4,
    role_batch=4,
    threads=1,
)


@pytest.fixture
def episodes(tmp_path: Path) -> Path:
    row = {"role": "x", "messages": [{"role": "user", "content": "3x3 40 hole"}], "answer": '{"op": "up"}'}
    path = tmp_path / "episodes.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for _ in range(64)))
    return path


def test_it_is_small_and_plain() -> None:
    ref = resolve("seedling")
    model, tokenizer = load(ref)
    assert sum(p.numel() for p in model.parameters()) <= 2_000_000
    assert model.config.head_dim in (32, 64)
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert sum(f.stat().st_size for f in Path(ref.path).iterdir()) <= 5 * 2**20
    for word in [*cell_tokens(), *size_tokens(), *(f" {n}" for n in range(101))]:
        assert len(tokenizer(word, add_special_tokens=False)["input_ids"]) == 1, word
    text = 'any text, e.g. "ü" or 12345 (3,4)\n'
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_it_solves_some_small_maps_and_few_large_ones() -> None:
    instances = LAKE.frozen_set("validation")
    policy = TransformersPolicy(resolve("seedling"), threads=1)
    answers = policy.generate([LAKE.prompt(i, "compact") for i in instances], max_new_tokens=96, temperature=0.0)
    valid = [LAKE.score(i, a[0].text).valid for i, a in zip(instances, answers, strict=True)]
    small = np.mean([v for i, v in zip(instances, valid, strict=True) if i.size == 3])
    large = np.mean([v for i, v in zip(instances, valid, strict=True) if i.size >= 8])
    assert 0.3 <= small <= 0.8
    assert large <= 0.15


def test_the_same_recipe_gives_the_same_bytes(episodes: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        build(LAKE, episodes, tmp_path / name, TINY, lambda _: None)
    for file in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_another_seed_gives_another_model(episodes: Path, tmp_path: Path) -> None:
    build(LAKE, episodes, tmp_path / "a", TINY, lambda _: None)
    build(LAKE, episodes, tmp_path / "b", TINY.model_copy(update={"seed": 1}), lambda _: None)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() != (tmp_path / "b" / "model.safetensors").read_bytes()


def test_no_episode_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(ValueError, match="holds no role episode"):
        build(LAKE, empty, tmp_path / "a", TINY, lambda _: None)


def test_the_loss_falls_on_the_answer_alone() -> None:
    rows = [{"messages": [{"role": "user", "content": f"3x3 {n}"}], "answer": f"up {n}"} for n in range(20)]
    tokenizer = build_tokenizer([r["answer"] for r in rows], merges=10, context=64)
    batch = next(Encoded(tokenizer, rows).batches(5, np.random.default_rng(0)))
    for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True):
        answer = tokenizer.decode(labels[labels != IGNORED])
        assert answer.startswith("up ")
        assert answer.endswith(tokenizer.eos_token)
        prompt = tokenizer.decode(ids[: int((labels != IGNORED).nonzero()[0])])
        assert prompt.endswith("<|assistant|>")
    assert batch["input_ids"].dtype == torch.long
