"""``python -m trainer.seedling.adapter --episodes FILE --out DIR``: teach the roles of the seedling another rule.

A low-rank adapter on all linear layers, in peft's format: what the roles know can then be renewed at a twentieth of the
weights' size. `trainer.adapters` merges it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from envsim import registry
from envsim.api import Environment
from trainer.adapters import merge
from trainer.checkpoint import SEEDLING, load, reference
from trainer.seedling.command import log, taught
from trainer.seedling.data import Encoded, plan_rows, read_episodes
from trainer.seedling.recipe import AdapterRecipe
from trainer.seedling.warm_start import warm_start
from trainer.spec import LoraSettings
from trainer.trained import lora_config, optional


def teach(
    environment: Environment,
    base: Path,
    episodes: Path,
    out: Path,
    *,
    recipe: AdapterRecipe,
    log: Callable[[dict[str, float]], None],
) -> dict[str, Any]:
    """Write an adapter of the checkpoint ``base``, with ``recipe.json`` and the hash of what it merges to in
    ``merged.sha256``; returns the recipe's figures.

    Raises:
        ValueError: if the episodes' file is empty or a loss is not finite.
        TrainingInputError: if peft is not installed.
    """
    peft = optional("peft", "lora")
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    plans, roles = plan_rows(environment, recipe), read_episodes(episodes)
    model, tokenizer = load(reference(base))
    adapted = peft.get_peft_model(model, lora_config(LoraSettings(rank=recipe.rank, alpha=recipe.alpha)))
    figures = warm_start(adapted.base_model.model, Encoded(tokenizer, plans), Encoded(tokenizer, roles), recipe, log)
    adapted.half().save_pretrained(out)
    (out / "README.md").unlink()
    _settle(out / "adapter_config.json")
    with tempfile.TemporaryDirectory() as scratch:
        merge(base, out, Path(scratch) / "model")
        merged = reference(Path(scratch) / "model").sha256
    (out / "merged.sha256").write_text(f"{merged}\n", encoding="ascii")
    facts = {
        "parameters": sum(p.numel() for p in adapted.parameters() if p.requires_grad),
        "base_sha256": reference(base).sha256,
        "plan_rows": len(plans),
        "role_rows": len(roles),
        **figures,
        "recipe": recipe.model_dump(mode="json"),
    }
    (out / "recipe.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _settle(config: Path) -> None:
    """Take out what differs from machine to machine and from process to process: where the base lay, which elsewhere is
    nowhere or a name on the hub, and the order of the layers' names, which comes from a set."""
    data = json.loads(config.read_text(encoding="utf-8"))
    data |= {"base_model_name_or_path": None, "target_modules": sorted(data["target_modules"])}
    config.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.seedling.adapter", description=__doc__)
    parser.add_argument("--base", type=Path, default=SEEDLING, help="checkpoint directory without the adapter")

    def made(args: argparse.Namespace, recipe: AdapterRecipe) -> dict[str, Any]:
        return teach(registry.get("lake"), args.base, args.episodes, args.out, recipe=recipe, log=log)

    return taught(parser, argv, AdapterRecipe, made)


if __name__ == "__main__":
    sys.exit(main())
