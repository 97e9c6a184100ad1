"""A lean decode loop: each distinct prompt is prefilled once, finished rows leave the batch, and a sampled token is a
pure function of its row's uniform numbers.

Greedy tokens equal those of ``model.generate``; sampling is exact inverse-CDF sampling at the given temperature with no
truncation of the distribution, so it is on-policy for GRPO. It works on any decoder with a `DynamicCache`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from envsim.api import Message

# Re-packing the cache copies it whole, so rows leave in groups of at least this share of the batch.
_REPACK_SHARE = 8


class Constraint(Protocol):
    """What a grammar does to a batch whose rows are named by their index in the whole request."""

    def mask(self, logits: torch.Tensor, rows: Sequence[int]) -> None:
        """Set the logits (rows, vocabulary) of forbidden tokens to minus infinity, in place."""

    def accept(self, row: int, token: int) -> bool:
        """Advance one row by one token; True if nothing may follow."""


def encode(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[list[Message]], template_arguments: Mapping[str, Any]
) -> list[list[int]]:
    """Token ids of conversations as the chat template renders them, ready for the answer."""
    rendered: Any = tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True, **template_arguments
    )
    return [list(ids) for ids in rendered["input_ids"]]


def uniforms(rows: int, length: int, seed: int) -> torch.Tensor:
    """(rows, length) float64 numbers in [0, 1) from their own generator; the global state is not touched."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, length, generator=generator, dtype=torch.float64)


@torch.inference_mode()
def decode(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    prompt_of_row: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float,
    stop_tokens: Collection[int],
    pad_token: int,
    draws: torch.Tensor | None = None,
    constraint: Constraint | None = None,
) -> list[list[int]]:
    """New tokens of each row, the stop token included where one was produced.

    Args:
        model: a decoder in eval mode.
        prompts: token ids of the distinct prompts, none empty.
        prompt_of_row: for each row the index of its prompt.
        max_new_tokens: rows end here at the latest.
        temperature: 0 = greedy.
        stop_tokens: any of these ends a row.
        pad_token: filler on the left; masked.
        draws: (rows, max_new_tokens) uniforms, needed if temperature > 0.
        constraint: masks logits before each choice.

    Raises:
        ValueError: temperature > 0 without draws of the right shape.
    """
    if temperature > 0 and (draws is None or draws.shape != (len(prompt_of_row), max_new_tokens)):
        shape = None if draws is None else tuple(draws.shape)
        raise ValueError(f"sampling needs draws of shape {(len(prompt_of_row), max_new_tokens)}, got {shape}")
    device = model.device
    width = max(len(prompt) for prompt in prompts)
    padded = [[pad_token] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    real = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    attention = torch.tensor(real, device=device)
    positions = (attention.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    output = model(
        input_ids=torch.tensor(padded, device=device),
        attention_mask=attention,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    source = torch.tensor(list(prompt_of_row), device=device)
    if list(prompt_of_row) != list(range(len(prompts))):
        cache.batch_select_indices(source)
    logits, position = output.logits[source, -1], positions[source, -1:]
    attention = torch.cat([attention[source], attention.new_ones(len(source), max_new_tokens)], dim=1)
    stops = torch.tensor(sorted(stop_tokens), device=device)
    draws = None if draws is None else draws.to(device)
    active = torch.arange(len(source), device=device)
    ended = torch.zeros(len(source), dtype=torch.bool, device=device)
    produced: list[list[int]] = [[] for _ in prompt_of_row]

    for step in range(max_new_tokens):
        rows = active.tolist()
        logits = logits.float()
        if constraint is not None:
            constraint.mask(logits, rows)
        chosen = _choose(logits, temperature, None if draws is None else draws[active, step])
        was_ended = ended
        ended = was_ended | torch.isin(chosen, stops)
        for index, (row, token, skip) in enumerate(zip(rows, chosen.tolist(), was_ended.tolist(), strict=True)):
            if skip:
                continue
            produced[row].append(token)
            if constraint is not None and constraint.accept(row, token):
                ended[index] = True
        finished = int(ended.sum())
        if finished == len(rows) or step == max_new_tokens - 1:
            break
        position = position + 1
        if finished * _REPACK_SHARE >= len(rows):
            keep = (~ended).nonzero()[:, 0]
            cache.batch_select_indices(keep)
            active, chosen, position, attention, ended = (
                tensor[keep] for tensor in (active, chosen, position, attention, ended)
            )
        logits = model(
            input_ids=chosen[:, None],
            attention_mask=attention[:, : width + step + 1],
            position_ids=position,
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
    return produced


def _choose(logits: torch.Tensor, temperature: float, draw: torch.Tensor | None) -> torch.Tensor:
    if temperature == 0 or draw is None:
        return logits.argmax(dim=-1)
    cumulative = torch.softmax(logits / temperature, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    # right=True skips tokens of probability zero: their step of the staircase has no width.
    target = draw[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
