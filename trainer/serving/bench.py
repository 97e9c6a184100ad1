"""How fast each back end answers the same prompts with the same settings, side by side.

``generate`` is what one would write first: `model.generate`, one prompt after the other. ``lean`` is
`trainer.decoding`, many prompts at a time in one process. ``vllm`` is a server, asked by as many requests at a time as
its settings say; what it takes to start is told apart.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from envsim.api import Message
from trainer.checkpoint import load, stop_tokens
from trainer.decoding import encode
from trainer.frozen import Frozen
from trainer.policy import Policy, TransformersPolicy
from trainer.profile import Profile
from trainer.serving.backends import open_policy
from trainer.serving.settings import VllmBackend
from trainer.spec import ModelRef

WARM_UP = 8
"""Prompts that each engine answers before the clock runs."""
NO_CACHE = "--no-enable-prefix-caching"
"""A repeated measurement must not find the prompts of the one before."""


class Speed(Frozen):
    """One engine; medians over the repetitions."""

    engine: str
    rollouts: int
    tokens: int
    """Generated, of one repetition."""
    seconds: float
    spread: float
    """Slowest over fastest repetition."""
    start_up: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def rollouts_per_second(self) -> float:
        return self.rollouts / self.seconds


def measure(
    profile: Profile,
    ref: ModelRef,
    backend: VllmBackend,
    prompts: Sequence[list[Message]],
    *,
    temperature: float,
    repeats: int,
    directory: Path,
) -> list[Speed]:
    """All engines, one after the other: a server that waits takes part of a core.

    Raises:
        CheckpointError: the checkpoint does not load.
        PolicyError: the server does not come up.
    """
    torch.set_num_threads(profile.threads)
    limit = profile.generation.max_new_tokens

    def by_policy(policy: Policy) -> Callable[[Sequence[list[Message]]], int]:
        def run(asked: Sequence[list[Message]]) -> int:
            answers = policy.generate(asked, max_new_tokens=limit, temperature=temperature, seed=1)
            return sum(answer.tokens for group in answers for answer in group)

        return run

    started = time.monotonic()
    one_by_one = _one_by_one(profile, ref, temperature)
    speeds = [_timed("generate", one_by_one, prompts, repeats, time.monotonic() - started)]
    started = time.monotonic()
    lean = TransformersPolicy(
        ref,
        device=profile.device,
        batch_size=profile.evaluation.batch_size,
        chat_template_kwargs=profile.generation.chat_template_kwargs,
    )
    speeds.append(_timed("lean", by_policy(lean), prompts, repeats, time.monotonic() - started))
    lean.close()
    started = time.monotonic()
    served = open_policy(
        backend.model_copy(update={"arguments": (*backend.arguments, NO_CACHE)}),
        ref,
        device=profile.device,
        threads=profile.threads,
        batch_size=profile.evaluation.batch_size,
        chat_template_kwargs=profile.generation.chat_template_kwargs,
        directory=directory,
    )
    try:
        speeds.append(_timed("vllm", by_policy(served), prompts, repeats, time.monotonic() - started))
    finally:
        served.close()
    return speeds


def _timed(
    engine: str,
    run: Callable[[Sequence[list[Message]]], int],
    prompts: Sequence[list[Message]],
    repeats: int,
    start_up: float,
) -> Speed:
    run(prompts[:WARM_UP])
    seconds, tokens = [], 0
    for _ in range(repeats):
        started = time.monotonic()
        tokens = run(prompts)
        seconds.append(time.monotonic() - started)
    return Speed(
        engine=engine,
        rollouts=len(prompts),
        tokens=tokens,
        seconds=statistics.median(seconds),
        spread=max(seconds) / min(seconds),
        start_up=start_up,
    )


def _one_by_one(profile: Profile, ref: ModelRef, temperature: float) -> Callable[[Sequence[list[Message]]], int]:
    loaded, tokenizer = load(ref, device=profile.device)
    model: Any = loaded
    sampling = {"temperature": temperature, "top_p": 1.0, "top_k": 0} if temperature > 0 else {}
    settings: Any = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=profile.generation.max_new_tokens,
        do_sample=temperature > 0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=sorted(stop_tokens(loaded, tokenizer)),
        **sampling,
    )

    def run(asked: Sequence[list[Message]]) -> int:
        tokens = 0
        for prompt in asked:
            [ids] = encode(tokenizer, [prompt], profile.generation.chat_template_kwargs)
            given = torch.tensor([ids], device=model.device)
            answer = model.generate(given, attention_mask=torch.ones_like(given), generation_config=settings)
            tokens += int(answer.shape[1]) - len(ids)
        return tokens

    return run
