"""Whether a server gives a checkpoint's answers as transformers gives them, token by token.

Both answer greedily. Up to the first token in which two answers differ both engines made each choice after the same
tokens; behind it they no longer did, and nothing is compared. The measure is the share of the compared choices that are
the same. Where they differ the model must have been all but undecided, because two engines add in another order: the
gap says by how much each preferred its own token.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from openai import OpenAI, OpenAIError
from pydantic import BaseModel, Field

from envsim.api import Message
from trainer.checkpoint import load, stop_tokens
from trainer.decoding import decode, encode
from trainer.frozen import Frozen
from trainer.policy import PolicyError
from trainer.spec import ModelRef

_TOP = 5
_ROWS = 64
_CONCURRENCY = 32


class Divergence(Frozen):
    """The first place where two answers differ."""

    prompt: int
    position: int
    """Tokens of the answer before it, which are the same."""
    local: int
    """The token that transformers chose."""
    served: int
    local_gap: float
    """Log-probability of ``local`` less that of ``served``, in nats, by transformers; 0 = undecided."""
    served_gap: float | None
    """The same the other way round, by the server; None if ``local`` was not among its five likeliest."""


class Agreement(Frozen):
    """Greedy answers of both engines to the same prompts."""

    prompts: int
    same_prompts: int
    """Prompts that the server rendered to the same tokens."""
    compared: int
    """Choices made after the same tokens."""
    divergences: tuple[Divergence, ...]

    @property
    def share(self) -> float:
        """Of the compared choices, those that are the same."""
        return 1 - len(self.divergences) / self.compared

    @property
    def largest_gap(self) -> float:
        """In nats, by transformers; 0 without a divergence."""
        return max((divergence.local_gap for divergence in self.divergences), default=0.0)


class _TopLogprob(BaseModel):
    token: str
    logprob: float


class _Position(_TopLogprob):
    top_logprobs: list[_TopLogprob]


class _Logprobs(BaseModel):
    content: list[_Position]


class _Choice(BaseModel):
    token_ids: list[int]
    logprobs: _Logprobs


class _Served(BaseModel):
    """The parts of vLLM's answer that other servers do not give."""

    prompt_token_ids: list[int]
    choices: list[_Choice] = Field(min_length=1)


def agreement(
    ref: ModelRef,
    base_url: str,
    model: str,
    prompts: Sequence[list[Message]],
    *,
    max_new_tokens: int,
    chat_template_kwargs: dict[str, Any] | None = None,
    device: str = "cpu",
) -> Agreement:
    """Compare a vLLM server with the checkpoint that it should serve, loaded here in float32.

    Raises:
        CheckpointError: the checkpoint does not load.
        PolicyError: the server fails, or is not vLLM and gives no tokens.
    """
    template = dict(chat_template_kwargs or {})
    loaded, tokenizer = load(ref, device=device)
    encoded = encode(tokenizer, prompts, template)
    stops = stop_tokens(loaded, tokenizer)
    local: list[list[int]] = []
    for start in range(0, len(encoded), _ROWS):
        rows = encoded[start : start + _ROWS]
        local += decode(
            loaded,
            rows,
            range(len(rows)),
            max_new_tokens=max_new_tokens,
            temperature=0.0,
            stop_tokens=stops,
            pad_token=tokenizer.pad_token_id,
        )
    with OpenAI(base_url=base_url, api_key="none", max_retries=0) as client, ThreadPoolExecutor(_CONCURRENCY) as pool:
        served = list(pool.map(lambda prompt: _ask(client, model, prompt, max_new_tokens, template), prompts))
    compared, divergences = 0, []
    for index, (mine, answer) in enumerate(zip(local, served, strict=True)):
        theirs = answer.choices[0].token_ids
        same = _common(mine, theirs)
        ended = same == len(mine) == len(theirs)
        compared += same if ended else same + 1
        if not ended:
            divergences.append(_divergence(loaded, index, encoded[index], mine, answer.choices[0], same))
    return Agreement(
        prompts=len(prompts),
        same_prompts=sum(ids == answer.prompt_token_ids for ids, answer in zip(encoded, served, strict=True)),
        compared=compared,
        divergences=tuple(divergences),
    )


def _ask(client: OpenAI, model: str, prompt: list[Message], max_new_tokens: int, template: dict[str, Any]) -> _Served:
    request: dict[str, Any] = {
        "model": model,
        "messages": prompt,
        "max_tokens": max_new_tokens,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": _TOP,
    }
    extra = {"return_token_ids": True, "return_tokens_as_token_ids": True, "chat_template_kwargs": template}
    try:
        raw = client.chat.completions.with_raw_response.create(**request, extra_body=extra)
        return _Served.model_validate_json(raw.content)
    except (OpenAIError, ValueError) as error:
        text = " ".join(str(error).split())
        raise PolicyError(f"no tokens of {model!r} from {client.base_url}: {text[:400]}") from error


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _divergence(  # noqa: PLR0917
    model: Any, index: int, prompt: Sequence[int], mine: Sequence[int], answer: _Choice, same: int
) -> Divergence:
    theirs = answer.token_ids
    if same in (len(mine), len(theirs)):
        raise PolicyError(
            f"answer {index} of one engine ends inside the other's after {same} tokens; expected both to end at a stop "
            "token or at the limit: they stop at other tokens"
        )
    with torch.inference_mode():
        context = torch.tensor([[*prompt, *mine[:same]]], device=model.device)
        here = torch.log_softmax(model(input_ids=context).logits[0, -1].float(), dim=-1)
    there = {top.token.rpartition(":")[2]: top.logprob for top in answer.logprobs.content[same].top_logprobs}
    own = there.get(str(mine[same]))
    return Divergence(
        prompt=index,
        position=same,
        local=mine[same],
        served=theirs[same],
        local_gap=float(here[mine[same]] - here[theirs[same]]),
        served_gap=None if own is None else there[str(theirs[same])] - own,
    )
