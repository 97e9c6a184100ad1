"""What a stage begins with, by where it lies and what it holds."""

from __future__ import annotations

from pydantic import Field

from trainer.frozen import Frozen


class ModelRef(Frozen):
    """A checkpoint directory (or hub id) and the sha256 over its weight and tokenizer files."""

    path: str
    sha256: str


class DataRef(Frozen):
    path: str
    sha256: str
    n: int = Field(gt=0)
