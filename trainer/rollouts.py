"""GRPO's rollouts on `trainer.decoding`, and where a stage's seconds went."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from envsim.api import Message
from trainer.checkpoint import stop_tokens
from trainer.decoding import decode, encode, uniforms
from trainer.spec import StageSpec, canonical_hash


def sampling_seed(spec: StageSpec, step: int) -> int:
    """What the answers of a step are drawn with: another for each step and each seed, the same in every attempt.

    A run gives each of its stages a seed of its own.
    """
    return int(canonical_hash([spec.seed, step])[:15], 16)


@dataclass
class Clock:
    """Seconds by purpose."""

    start_up: float = 0.0
    generation: float = 0.0
    saving: float = 0.0
    last_generation: float = 0.0
    saving_since: float = 0.0


class Rollouts:
    """TRL's rollout function over `trainer.decoding`: a group shares its prompt's prefill.

    Randomness comes from the spec's seed and the step, so a resumed stage samples as an uninterrupted one.
    """

    def __init__(
        self, spec: StageSpec, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, clock: Clock
    ) -> None:
        self._spec = spec
        self._tokenizer = tokenizer
        self._stops = stop_tokens(model, tokenizer)
        self._clock = clock

    def __call__(self, prompts: list[list[Message]], trainer: Any) -> dict[str, Any]:
        """Prompt and completion ids of each of the prompts, which come already repeated, group by group."""
        started = time.monotonic()
        groups = [(prompt, len(list(same))) for prompt, same in groupby(prompts)]
        encoded = encode(self._tokenizer, [prompt for prompt, _ in groups], self._spec.generation.chat_template_kwargs)
        prompt_of_row = [index for index, (_, size) in enumerate(groups) for _ in range(size)]
        length = self._spec.generation.max_new_tokens
        seed = sampling_seed(self._spec, trainer.state.global_step)
        # A process has the rows that follow those of the one before it, so the draws are those of a single process.
        rank, ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.eval()
        completions = decode(
            model,
            encoded,
            prompt_of_row,
            max_new_tokens=length,
            temperature=self._spec.generation.temperature,
            stop_tokens=self._stops,
            pad_token=self._tokenizer.pad_token_id,
            draws=uniforms(ranks * len(prompts), length, seed)[rank * len(prompts) :][: len(prompts)],
        )
        model.train()
        self._clock.last_generation = time.monotonic() - started
        self._clock.generation += self._clock.last_generation
        return {
            "prompt_ids": [encoded[index] for index in prompt_of_row],
            "completion_ids": completions,
            # The trainer's own log-probabilities are those of the sampling distribution.
            "logprobs": None,
        }
