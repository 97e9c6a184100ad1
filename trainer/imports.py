"""What a worker imports, and what it must not: TRL reads the environment and takes along whatever is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib.util import find_spec

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
}
_SLOW = ("vllm", "peft", "wandb", "trackio")
"""TRL imports them whenever they are there, which costs seconds; vLLM touches the random state as well. Curves
are drawn by the process that supervises this one."""


def prepare(wanted: Collection[str] = ()) -> None:
    """What must be set before TRL is imported; packages that it would import for nothing are hidden."""
    os.environ.update(_ENVIRONMENT)
    for package in _SLOW:
        if package not in wanted and find_spec(package) is not None:
            sys.modules[package] = None  # type: ignore[assignment]
