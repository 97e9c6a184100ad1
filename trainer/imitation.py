"""A prompt and the answer that a model is to give to it: as tokens, as tensors, and what the model makes of it.

The tokens are those that GRPO and evaluation see: the prompt as `trainer.decoding` renders it, then the answer and the
token that ends it. The loss falls on the answer alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from envsim.api import Message
from trainer.checkpoint import stop_tokens
from trainer.decoding import encode

IGNORED = -100
Row = tuple[list[int], list[int]]
"""Tokens of the prompt, and of the answer with its end."""


def answer_end(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends an answer: of those at which decoding stops the one that the chat template closes with.

    The tokenizer's own end of sequence may be another, as it is SmolLM2's that came as GGUF.
    """
    stops = stop_tokens(model, tokenizer)
    said = [{"role": "user", "content": "plan"}, {"role": "assistant", "content": "plan"}]
    rendered: Any = tokenizer.apply_chat_template(said, tokenize=True, return_dict=True)
    closing = [token for token in rendered["input_ids"] if token in stops]
    end: int = closing[-1] if closing else tokenizer.eos_token_id
    return end


def row_of(
    tokenizer: PreTrainedTokenizerBase,
    prompt: list[Message],
    answer: str,
    *,
    end: int,
    template_arguments: Mapping[str, Any],
) -> Row:
    """Tokens of a conversation and of the answer to it, which ``end`` closes."""
    [prompt_ids] = encode(tokenizer, [prompt], template_arguments)
    answer_ids: list[int] = list(tokenizer(answer, add_special_tokens=False)["input_ids"])
    return prompt_ids, [*answer_ids, end]


def collate(rows: Sequence[Row], pad_token: int) -> dict[str, torch.Tensor]:
    """Rows as tensors (rows, tokens), padded on the left so that all answers end together."""
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), width), pad_token)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    labels = torch.full((len(rows), width), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        whole = torch.tensor([*prompt, *answer])
        ids[row, width - len(whole) :] = whole
        mask[row, width - len(whole) :] = 1
        labels[row, width - len(answer) :] = whole[len(prompt) :]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def summed_loss(model: Any, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, int, Any]:
    """Sum of the cross entropy over the answer tokens of collated rows, their number, and the model's outputs.

    Logits are formed only where answers stand.
    """
    mask, labels = inputs["attention_mask"], inputs["labels"]
    kept = int((labels != IGNORED).sum(dim=1).max())
    outputs = model(
        input_ids=inputs["input_ids"],
        attention_mask=mask,
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
        # One more, because the token before an answer foretells its first.
        logits_to_keep=kept + 1,
    )
    targets = labels[:, -kept:].flatten()
    logits = outputs.logits[:, :-1].flatten(end_dim=1).float()
    loss = torch.nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    return loss, int((targets != IGNORED).sum()), outputs
