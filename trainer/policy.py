"""A policy answers prompts: in this process with transformers, or behind a server (`trainer.serving`).

Both give ``samples`` completions a prompt, in the order of the prompts, and both can be held to a JSON Schema. A call
depends on its arguments alone: not on the global random state, and not on how prompts are batched.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from pydantic import Field
from transformers import PreTrainedModel

from envsim.api import Message
from trainer.checkpoint import load, stop_tokens
from trainer.decoding import decode, encode, uniforms
from trainer.grammar import GrammarRows, Grammars
from trainer.spec import Frozen, ModelRef

FinishReason = Literal["stop", "length"]


class Completion(Frozen):
    """``tokens`` counts what was generated, the stop token included; ``prompt_tokens`` the prompt as rendered."""

    text: str
    prompt_tokens: int = Field(ge=0)
    tokens: int = Field(ge=0)
    finish_reason: FinishReason


class PolicyError(RuntimeError):
    """A policy cannot answer: the request is impossible or the server failed."""


class Policy(Protocol):
    """Anything that answers prompts."""

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """``samples`` completions of each prompt, in the order of the prompts; temperature 0 is greedy."""
        ...


@runtime_checkable
class StreamingPolicy(Policy, Protocol):
    """One that gives each answer as soon as it has it."""

    def stream(
        self,
        prompts: Sequence[list[Message]],
        seeds: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        schema: dict[str, Any] | None = None,
    ) -> Generator[tuple[int, list[Completion]], None, None]:
        """The index of each prompt and its completions, in the order in which prompts are done.

        They are those of `generate` with seed s where the seeds, one a prompt, are s, s + 1, s + 2...
        """
        ...


class OwnedPolicy(Policy, Protocol):
    """One that holds what others may need: memory, a process, connections."""

    def close(self) -> None:
        """Give it back; a closed policy answers no more, and closing twice does nothing."""
        ...


class TransformersPolicy:
    """A checkpoint in this process, in float32, on one device."""

    def __init__(
        self,
        ref: ModelRef,
        *,
        device: str = "cpu",
        threads: int | None = None,
        batch_size: int = 128,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Load the checkpoint.

        ``threads`` sets torch's intra-op threads for the whole process; None leaves them. ``batch_size`` counts rows
        decoded together.

        Raises:
            CheckpointError: the checkpoint cannot be loaded.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        self.ref = ref
        self.batch_size = batch_size
        model, self._tokenizer = load(ref, device=device)
        self._stops = stop_tokens(model, self._tokenizer)
        self._loaded: PreTrainedModel | None = model
        self._template = dict(chat_template_kwargs or {})
        self._grammars: Grammars | None = None

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Rows are sorted by prompt length, so a batch carries little padding."""
        if not prompts:
            return []
        encoded = encode(self._tokenizer, prompts, self._template)
        rows = [(index, sample) for index in range(len(prompts)) for sample in range(samples)]
        draws = uniforms(len(rows), max_new_tokens, seed) if temperature > 0 else None
        order = sorted(range(len(rows)), key=lambda row: len(encoded[rows[row][0]]))
        tokens: list[list[int]] = [[] for _ in rows]
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            distinct = list(dict.fromkeys(rows[row][0] for row in batch))
            place = {index: position for position, index in enumerate(distinct)}
            decoded = decode(
                self._model,
                [encoded[index] for index in distinct],
                [place[rows[row][0]] for row in batch],
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                stop_tokens=self._stops,
                pad_token=self._tokenizer.pad_token_id,
                draws=None if draws is None else draws[batch],
                constraint=None if schema is None else self._constraint(schema, len(batch)),
            )
            for row, ids in zip(batch, decoded, strict=True):
                tokens[row] = ids
        completions = self._completions(tokens, [len(encoded[index]) for index, _ in rows])
        return [completions[start : start + samples] for start in range(0, len(rows), samples)]

    def close(self) -> None:
        """Let go of the model, and of the memory that torch keeps on a GPU, so that a training process finds it free.

        A closed policy answers no more; closing twice does nothing.
        """
        if self._loaded is None:
            return
        device = self._loaded.device
        self._loaded = self._grammars = None
        # Modules and their hooks refer to each other in circles.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def _model(self) -> PreTrainedModel:
        if self._loaded is None:
            raise PolicyError(f"the policy of {self.ref.path} is closed; load it again")
        return self._loaded

    def _constraint(self, schema: dict[str, Any], rows: int) -> GrammarRows:
        if self._grammars is None:
            self._grammars = Grammars(self._tokenizer, self._model.config.vocab_size, self._stops)
        return self._grammars.rows(schema, rows)

    def _completions(self, tokens: Sequence[list[int]], prompt_tokens: Sequence[int]) -> list[Completion]:
        texts = self._tokenizer.batch_decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return [
            Completion(
                text=text,
                prompt_tokens=length,
                tokens=len(ids),
                finish_reason="stop" if ids and ids[-1] in self._stops else "length",
            )
            for text, ids, length in zip(texts, tokens, prompt_tokens, strict=True)
        ]
