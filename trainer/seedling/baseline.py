"""The same architecture and tokenizer at random weights: what a schema gives to a model that knows nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from trainer.checkpoint import load_tokenizer, reference
from trainer.spec import ModelRef


def randomised(ref: ModelRef, directory: Path, seed: int) -> ModelRef:
    """Write a checkpoint like ``ref`` whose weights are a seeded random initialisation."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(ref.path))  # type: ignore[no-untyped-call]
    model.float().save_pretrained(directory)
    load_tokenizer(ref).save_pretrained(directory)
    return reference(directory)
