"""The recipe of the seedling as data: what it is shown, how long, and from which seeds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PlanMix(BaseModel):
    """Solved instances of one kind: ``n`` of them, spread over sizes by weight and over hole ratios evenly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(gt=0)
    agents: dict[int, float]
    sizes: dict[int, float]


class Recipe(BaseModel):
    """Narrow on purpose: mostly two agents on the two smallest maps, because what lies beyond is for the loop to learn."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    merges: int = 320
    tokenizer_texts: int = 3000
    hole_ratios: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    plans: tuple[PlanMix, ...] = (
        PlanMix(n=24000, agents={2: 1.0}, sizes={3: 0.50, 4: 0.42, 5: 0.04, 6: 0.02, 7: 0.01, 8: 0.01}),
        PlanMix(n=1500, agents={3: 0.6, 4: 0.3, 5: 0.1}, sizes={3: 0.4, 4: 0.4, 5: 0.2}),
    )
    steps: int = 1000
    plan_batch: int = 64
    role_batch: int = 32
    plan_until: float = Field(1.0, gt=0, le=1)
    """The share of the steps, counted from the end, in which plans are shown; before it only roles."""
    learning_rate: float = 2e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    threads: int = 2
