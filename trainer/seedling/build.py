"""Build the seedling from its recipe: tokenizer, random model, warm start, files.

The weights are kept in float16, which halves the repository's burden and changes no verdict that was looked at; they
are loaded as float32 everywhere.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from envsim.api import Environment
from trainer.seedling.data import Encoded, plan_rows, read_episodes
from trainer.seedling.model import CONTEXT, build_model
from trainer.seedling.recipe import Recipe
from trainer.seedling.tokenizer import build_tokenizer
from trainer.seedling.warm_start import warm_start


def build(
    environment: Environment, episodes: Path, out: Path, recipe: Recipe, log: Callable[[dict[str, float]], None]
) -> dict[str, Any]:
    """Write a checkpoint directory with ``recipe.json`` beside the weights; returns the recipe's figures.

    Raises:
        ValueError: if the episodes' file is empty or a loss is not finite.
    """
    torch.set_num_threads(recipe.threads)
    plans, roles = plan_rows(environment, recipe), read_episodes(episodes)
    shown = itertools.chain(plans[: recipe.tokenizer_texts // 3], roles[: recipe.tokenizer_texts])
    texts = [text for row in shown for text in (*(m["content"] for m in row["messages"]), row["answer"])]
    tokenizer = build_tokenizer(texts, merges=recipe.merges, context=CONTEXT)
    model = build_model(tokenizer, recipe.seed)
    figures = warm_start(model, Encoded(tokenizer, plans), Encoded(tokenizer, roles), recipe, log)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(out)
    model.half().save_pretrained(out)  # type: ignore[no-untyped-call]
    facts = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "plan_rows": len(plans),
        "role_rows": len(roles),
        **figures,
        "recipe": recipe.model_dump(mode="json"),
    }
    (out / "recipe.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts
