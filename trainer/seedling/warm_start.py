"""Supervised warm start: a plain loop over plan batches and role batches side by side.

Where the recipe says so Muon moves the matrices and AdamW the rest: at this size the same steps then teach several
times as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import Qwen3ForCausalLM, get_cosine_schedule_with_warmup

from trainer.seedling.data import IGNORED, Encoded
from trainer.seedling.recipe import Teaching


def answer_loss(model: Qwen3ForCausalLM, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean cross entropy over answer tokens. Logits are formed only where a label stands."""
    hidden = model.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    targets = batch["labels"][:, 1:]
    kept = targets != IGNORED
    logits = model.lm_head(hidden[:, :-1][kept])
    return torch.nn.functional.cross_entropy(logits.float(), targets[kept])


def _optimizers(model: Qwen3ForCausalLM, recipe: Teaching) -> list[torch.optim.Optimizer]:
    moving = {name: p for name, p in model.named_parameters() if p.requires_grad}
    by_muon = recipe.matrix_learning_rate is not None
    inner = [p for name, p in moving.items() if by_muon and p.ndim == 2 and "embed" not in name]
    outer = [p for name, p in moving.items() if not by_muon or p.ndim != 2 or "embed" in name]
    adamw = torch.optim.AdamW(
        outer, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=recipe.weight_decay, fused=True
    )
    if recipe.matrix_learning_rate is None:
        return [adamw]
    return [torch.optim.Muon(inner, lr=recipe.matrix_learning_rate, weight_decay=recipe.weight_decay), adamw]


def warm_start(
    model: Qwen3ForCausalLM,
    plans: Encoded,
    roles: Encoded,
    recipe: Teaching,
    log: Callable[[dict[str, float]], None],
) -> dict[str, float]:
    """Train in place; returns the last losses and the minutes it took.

    Raises:
        ValueError: if a loss is not finite.
    """
    torch.manual_seed(recipe.seed)
    rng = np.random.default_rng(np.random.SeedSequence([recipe.seed, 1]))
    plan_batches, role_batches = plans.batches(recipe.plan_batch, rng), roles.batches(recipe.role_batch, rng)
    optimizers = _optimizers(model, recipe)
    schedules = [get_cosine_schedule_with_warmup(one, recipe.warmup_steps, recipe.steps) for one in optimizers]
    start = time.perf_counter()
    sums, last = {"plan_loss": 0.0, "role_loss": 0.0}, {"plan_loss": float("nan"), "role_loss": float("nan")}
    # On the CPU, at these lengths, the fused attention's backward pass costs twice the plain one.
    model.set_attn_implementation("eager")
    model.train()
    for step in range(recipe.steps):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=recipe.bf16):
            role_loss = answer_loss(model, next(role_batches))
            plan_loss = answer_loss(model, next(plan_batches))
            loss = role_loss + plan_loss
        if not torch.isfinite(loss):
            msg = f"warm start: loss is {loss.item()} at step {step}; lower learning_rate ({recipe.learning_rate})"
            raise ValueError(msg)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad(set_to_none=True)
        sums["plan_loss"] += plan_loss.item()
        sums["role_loss"] += role_loss.item()
        if (step + 1) % 50 == 0:
            last = {name: value / 50 for name, value in sums.items()}
            sums = dict.fromkeys(sums, 0.0)
            log({"step": step + 1, **last, "seconds": time.perf_counter() - start})
    model.train(False)
    model.set_attn_implementation("sdpa")
    return {**last, "minutes": (time.perf_counter() - start) / 60}
