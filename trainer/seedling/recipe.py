"""The recipe of the seedling as data: what it is shown, how long, and from which seeds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PlanMix(BaseModel):
    """Solved instances of one kind: about ``n`` of them, over sizes by weight and over hole ratios evenly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(gt=0)
    agents: dict[int, float]
    sizes: dict[int, float]
    hole_ratios: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class Recipe(BaseModel):
    """Narrow on purpose: mostly two agents on the two smallest maps; what lies beyond is for the loop to learn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    merges: int = 800
    tokenizer_texts: int = 3000
    plans: tuple[PlanMix, ...] = (
        PlanMix(n=24000, agents={2: 1.0}, sizes={3: 0.50, 4: 0.42, 5: 0.04, 6: 0.02, 7: 0.01, 8: 0.01}),
        PlanMix(n=1440, agents={3: 0.7, 4: 0.3}, sizes={3: 0.5, 4: 0.5}, hole_ratios=(0.0, 0.1, 0.2)),
        PlanMix(n=720, agents={5: 1.0}, sizes={4: 0.5, 5: 0.5}, hole_ratios=(0.0, 0.1, 0.2)),
    )
    steps: int = 2800
    unsettled_steps: int = 200
    """Steps at the full rate after the rate has decayed to 0. They leave noise in the weights that costs plans: the
    headroom that reinforcement learning at a low rate wins back first."""
    plan_batch: int = 40
    role_batch: int = 40
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    threads: int = 1
    bf16: bool = True
    """Matrix products in bfloat16 over float32 weights: several times faster on CPUs that have the instructions."""
