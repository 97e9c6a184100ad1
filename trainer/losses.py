"""Loss presets: what a name from the literature means in TRL's words.

A preset fills in the settings that are left out; those that are given win, except for the two that make the loss what
it is. A stage makes one optimizer step a batch, so that on one engine the importance ratio is 1 and no clipping bound
binds; they count where another engine generates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Preset = Literal["dapo", "dr_grpo", "grpo", "gspo"]
PRESETS: Mapping[Preset, Mapping[str, Any]] = {
    # Every token of the batch weighs the same, and the upper bound is wider (arXiv 2503.14476).
    "dapo": {"loss_type": "dapo", "importance_sampling_level": "token", "scale_rewards": "group", "epsilon_high": 0.28},
    # A constant divides the sum over tokens and no deviation the advantages: no favour to long answers, nor to tasks
    # that are hardly ever or nearly always solved (arXiv 2503.20783).
    "dr_grpo": {"loss_type": "dr_grpo", "importance_sampling_level": "token", "scale_rewards": "none"},
    # Every answer weighs the same, so that a token of a long one weighs less (arXiv 2402.03300).
    "grpo": {"loss_type": "grpo", "importance_sampling_level": "token", "scale_rewards": "group"},
    # One ratio an answer, the geometric mean over its tokens, with bounds to match (arXiv 2507.18071).
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "scale_rewards": "group",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
    },
}
DEFINING = ("loss_type", "importance_sampling_level")
"""What a preset cannot be without."""


def filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of their preset, if they name one.

    Raises:
        ValueError: a setting contradicts the preset; says both.
    """
    preset = next((preset for name, preset in PRESETS.items() if name == settings.get("loss")), {})
    for name in DEFINING:
        if preset and settings.get(name, preset[name]) != preset[name]:
            raise ValueError(
                f"loss {settings['loss']!r} means {name} {preset[name]!r}, got {settings[name]!r}; leave one of the "
                "two out"
            )
    # An epsilon of None is written to no file, so it says no more than one that is left out.
    return {**preset, **{name: value for name, value in settings.items() if (name, value) != ("epsilon", None)}}
