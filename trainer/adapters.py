"""A low-rank adapter merged into its checkpoint, with the same bytes on every machine.

peft merges by one matrix product in float32, which another machine may round otherwise, and a checkpoint is known by
its hash. Here the rank-one terms are added one after the other in float64, by sums and products of single numbers
alone, and the result is rounded once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

WEIGHTS = "model.safetensors"
ADAPTER = "adapter_model.safetensors"
_PREFIX = "base_model.model."


def merge(base: Path, adapter: Path, out: Path) -> None:
    """Write to ``out`` the checkpoint ``base``, one ``model.safetensors``, with the LoRA ``adapter`` merged:
    W + alpha / rank * B A (arXiv 2106.09685), in the type that W has. Its other files are copied.

    Raises:
        ValueError: the adapter is damaged, or none of this checkpoint's.
    """
    try:
        config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        low_rank, weights = load_file(adapter / ADAPTER), load_file(base / WEIGHTS)
        scale = config["lora_alpha"] / config["r"]
        for name in sorted(key for key in low_rank if key.endswith(".lora_A.weight")):
            stem = name.removesuffix(".lora_A.weight")
            left, right = low_rank[f"{stem}.lora_B.weight"], low_rank[name]
            target = f"{stem.removeprefix(_PREFIX)}.weight"
            weights[target] = _moved(weights[target], left, right, scale)
    except (OSError, LookupError, TypeError, ValueError, SafetensorError) as error:
        msg = f"adapter {adapter} does not fit {base}: {type(error).__name__}: {error}"
        raise ValueError(msg) from error
    out.mkdir(parents=True)
    for file in sorted(base.iterdir()):
        if file.is_file() and file.name != WEIGHTS:
            shutil.copyfile(file, out / file.name)
    save_file(weights, out / WEIGHTS, metadata={"format": "pt"})


def _moved(weight: np.ndarray, left: np.ndarray, right: np.ndarray, scale: float) -> np.ndarray:
    """``weight`` (rows, columns) + scale * ``left`` (rows, rank) @ ``right`` (rank, columns), in the type of weight."""
    if weight.shape != (left.shape[0], right.shape[1]) or left.shape[1] != right.shape[0]:
        msg = f"weight {weight.shape}, lora_B {left.shape}, lora_A {right.shape}"
        raise ValueError(msg)
    total = weight.astype(np.float64)
    for column, row in zip(left.T.astype(np.float64), right.astype(np.float64), strict=True):
        total += scale * (column[:, None] * row)
    return total.astype(weight.dtype)
