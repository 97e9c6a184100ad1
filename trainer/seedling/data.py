"""Supervised rows of the warm start: prompts with solver plans, and role episodes read from a file.

Only instances of the training split are used, so every held-out set stays unseen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from envsim.api import Environment
from trainer.seedling.recipe import PlanMix, Teaching

IGNORED = -100


PORTION = 240
"""Instances asked for at once. Within one call they are distinct, and the smallest maps have few distinct instances."""


def plan_rows(environment: Environment, recipe: Teaching) -> list[dict[str, Any]]:
    """Rows ``{"messages", "answer"}`` with a demonstrator's plan each, shuffled."""
    rows = []
    for index, mix in enumerate(recipe.plans):
        for part, hole_ratio in enumerate(mix.hole_ratios):
            config = _config(environment, mix, hole_ratio, recipe.wait_ratio)
            portions = max(1, round(mix.n / len(mix.hole_ratios) / PORTION))
            seeds = np.random.SeedSequence([recipe.seed, index, part]).generate_state(portions)
            for seed in seeds:
                generated = environment.generate(config, PORTION, int(seed), split="training")
                rows += [
                    {
                        "messages": environment.prompt(instance, "compact"),
                        # A policy that knows but one plan of many has nothing left to explore.
                        "answer": environment.demonstration(instance, "compact", int(seed) + place, recipe.careless),
                    }
                    for place, instance in enumerate(generated.instances)
                ]
    order = np.random.default_rng(recipe.seed).permutation(len(rows))
    return [rows[i] for i in order]


def _config(environment: Environment, mix: PlanMix, hole_ratio: float, wait_ratio: float) -> Any:
    base = environment.default_config().model_dump(mode="json")
    for size, knobs in base["sizes"].items():
        knobs.update(data_ratio=mix.sizes.get(int(size), 0.0), hole_ratio=hole_ratio, wait_ratio=wait_ratio)
    base["agents"] = {str(k): w for k, w in mix.agents.items()}
    return environment.config_model.model_validate(base)


def read_episodes(path: Path) -> list[dict[str, Any]]:
    """Raises ValueError if the file holds none."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    if not rows:
        msg = f"{path} holds no role episode; write some with python -m agents.episodes"
        raise ValueError(msg)
    return rows


class Encoded:
    """Rows as token ids, sorted by length into batches; the loss falls on the answer alone."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, rows: Sequence[dict[str, Any]]) -> None:
        prompts = tokenizer.apply_chat_template(
            [row["messages"] for row in rows], tokenize=False, add_generation_prompt=True
        )
        prompt_ids = tokenizer(prompts, add_special_tokens=False)["input_ids"]
        answer_ids = tokenizer([row["answer"] + tokenizer.eos_token for row in rows], add_special_tokens=False)[
            "input_ids"
        ]
        # Arrays of int32 take an eighth of the memory of lists of Python integers.
        self.rows = [
            (np.array(p, dtype=np.int32), np.array(a, dtype=np.int32))
            for p, a in zip(prompt_ids, answer_ids, strict=True)
        ]
        self.lengths = np.array([len(p) + len(a) for p, a in self.rows])
        self.pad = int(tokenizer.pad_token_id)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[dict[str, torch.Tensor]]:
        """Batches for ever: an epoch is a random permutation, cut into chunks that are sorted by length."""
        while True:
            order = rng.permutation(len(self.rows))
            chunks = [order[i : i + 16 * size] for i in range(0, len(order), 16 * size)]
            ordered = np.concatenate([chunk[np.argsort(self.lengths[chunk], kind="stable")] for chunk in chunks])
            groups = [ordered[i : i + size] for i in range(0, len(ordered) - size + 1, size)]
            for g in rng.permutation(len(groups)):
                yield self._collate(groups[g])

    def _collate(self, indices: np.ndarray) -> dict[str, torch.Tensor]:
        width = int(self.lengths[indices].max())
        ids = torch.full((len(indices), width), self.pad, dtype=torch.long)
        labels = torch.full((len(indices), width), IGNORED, dtype=torch.long)
        for row, index in enumerate(indices):
            prompt, answer = self.rows[index]
            whole = torch.from_numpy(np.concatenate([prompt, answer]).astype(np.int64))
            ids[row, : len(whole)] = whole
            labels[row, len(prompt) : len(whole)] = whole[len(prompt) :]
        return {"input_ids": ids, "labels": labels, "attention_mask": (ids != self.pad).long()}
