"""Greedy answers to a frozen set by our policy beside a loop of ``model.generate`` over the prompts, and padding."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rich.table import Table

from envsim.api import Message
from envsim.registry import get
from trainer.bench.task import ENVIRONMENT, PROFILE
from trainer.checkpoint import load, resolve
from trainer.decoding import encode
from trainer.policy import Completion, TransformersPolicy
from trainer.profile import load_profile
from trainer.spec import ModelRef

SET = "anchor"


def measure(tasks: int) -> Table:
    """Both over the same tasks, evenly spread over the set; the answers must be the same."""
    profile, environment = load_profile(PROFILE), get(ENVIRONMENT)
    ref = resolve(profile.model)
    whole = environment.frozen_set(SET)
    chosen = [whole[index * len(whole) // tasks] for index in range(min(tasks, len(whole)))]
    prompts = [environment.prompt(instance, profile.style) for instance in chosen]
    limit = profile.generation.max_new_tokens
    policy = TransformersPolicy(ref, threads=profile.threads, batch_size=profile.evaluation.batch_size)
    began = time.monotonic()
    answers = [one for [one] in policy.generate(prompts, max_new_tokens=limit, temperature=0.0)]
    ours = time.monotonic() - began
    began = time.monotonic()
    plain = one_by_one(ref, prompts, limit)
    theirs = time.monotonic() - began
    same = sum(a.text == b for a, b in zip(answers, plain, strict=True))
    counted = Passes()
    with counted.counting():
        policy.generate(prompts, max_new_tokens=limit, temperature=0.0)
    policy.close()
    table = Table("", "seconds", "tasks a second", title=f"{len(chosen)} tasks of the set {SET}, greedy")
    table.add_row("model.generate, prompt by prompt", f"{theirs:.1f}", f"{len(chosen) / theirs:.1f}")
    table.add_row("our policy", f"{ours:.1f}", f"{len(chosen) / ours:.1f}")
    table.caption = (
        f"{theirs / ours:.1f} times as fast; {same} of {len(chosen)} answers are the same; "
        f"padding: {counted.prompt_waste(answers):.1%} of the prompt tokens computed, "
        f"{counted.answer_waste(answers):.1%} of the answer tokens"
    )
    return table


def one_by_one(ref: ModelRef, prompts: Sequence[list[Message]], limit: int) -> list[str]:
    """What transformers gives for each prompt by itself."""
    model, tokenizer = load(ref)
    texts = []
    for ids in encode(tokenizer, prompts, {}):
        asked: Any = torch.tensor([ids])
        found: Any = model.generate(  # type: ignore[operator]
            input_ids=asked,
            attention_mask=torch.ones_like(asked),
            max_new_tokens=limit,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id,
        )
        texts += tokenizer.batch_decode(found[:, len(ids) :], skip_special_tokens=True)
    return texts


class Passes:
    """Counts the tokens that go through a model's embedding: those of prompts, and those of single decoding steps."""

    def __init__(self) -> None:
        self.prompt = self.answer = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        hook = torch.nn.modules.module.register_module_forward_pre_hook(self._count)
        try:
            yield
        finally:
            hook.remove()

    def _count(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Embedding):
            ids: torch.Tensor = arguments[0]
            if ids.shape[1] > 1:
                self.prompt += ids.numel()
            else:
                self.answer += ids.numel()

    def prompt_waste(self, answers: Sequence[Completion]) -> float:
        """Share of the prompt tokens computed that were padding."""
        return 1 - sum(answer.prompt_tokens for answer in answers) / self.prompt

    def answer_waste(self, answers: Sequence[Completion]) -> float:
        """Share of the tokens fed to decoding steps of rows that had ended. An answer's last token is never fed."""
        return 1 - sum(answer.tokens - 1 for answer in answers) / self.answer
