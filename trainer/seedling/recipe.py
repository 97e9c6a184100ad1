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
    """Mostly two agents on the two smallest maps, from demonstrators that are often careless."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    merges: int = 800
    tokenizer_texts: int = 3000
    plans: tuple[PlanMix, ...] = (
        PlanMix(
            n=57600, agents={2: 1.0}, sizes={3: 0.48, 4: 0.36, 5: 0.08, 6: 0.04, 7: 0.01, 8: 0.01, 9: 0.01, 10: 0.01}
        ),
        PlanMix(n=2880, agents={3: 0.7, 4: 0.3}, sizes={3: 0.5, 4: 0.5}, hole_ratios=(0.0, 0.1, 0.2)),
        PlanMix(n=720, agents={5: 1.0}, sizes={4: 0.5, 5: 0.5}, hole_ratios=(0.0, 0.1, 0.2)),
    )
    wait_ratio: float = 0.2
    careless: float = 0.4
    """How often a demonstrator overlooks the holes, and how often the other agents. A pretrained model has read good
    and bad solutions alike; what reinforcement learning does first is to tell them apart, and a model that has only
    ever seen good ones leaves it nothing to choose between."""
    steps: int = 2400
    plan_batch: int = 48
    role_batch: int = 32
    learning_rate: float = 2e-3
    """Of AdamW: embeddings and norms."""
    matrix_learning_rate: float = 0.02
    """Of Muon: every other matrix."""
    warmup_steps: int = 50
    weight_decay: float = 0.01
    threads: int = 1
    bf16: bool = True
    """Matrix products in bfloat16 over float32 weights: several times faster on CPUs that have the instructions."""
