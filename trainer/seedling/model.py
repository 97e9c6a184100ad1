"""The seedling's architecture: a Qwen3 of about a million parameters, heads of 32, tied embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTEXT = 1024


@dataclass(frozen=True)
class Shape:
    """What may grow without another architecture."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    head: int = 32


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int, shape: Shape = Shape()) -> Qwen3ForCausalLM:
    """A randomly initialised model in float32; the same seed gives the same weights."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(  # type: ignore[no-untyped-call]
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=shape.hidden,
            intermediate_size=4 * shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            head_dim=shape.head,
            max_position_embeddings=CONTEXT,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
