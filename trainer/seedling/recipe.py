"""The recipes of the seedling and of its role adapter as data: what is shown, how long, and from which seeds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class PlanMix(BaseModel):
    """Solved instances of one kind: about ``n`` of them, over sizes by weight and over hole ratios evenly."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(gt=0)
    agents: dict[int, float]
    sizes: dict[int, float]
    hole_ratios: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class Teaching(BaseModel):
    """What any supervised training on plans and role episodes side by side is told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    plans: tuple[PlanMix, ...]
    wait_ratio: float = 0.2
    careless: float = 0.4
    """How often a demonstrator overlooks the holes, and how often the other agents. A pretrained model has read good
    and bad solutions alike; what reinforcement learning does first is to tell them apart, and a model that has only
    ever seen good ones leaves it nothing to choose between."""
    steps: int
    plan_batch: int
    role_batch: int = 32
    learning_rate: float
    """Of AdamW."""
    matrix_learning_rate: float | None = None
    """Of Muon, which moves every matrix but the embedding; None = AdamW moves these too."""
    warmup_steps: int
    weight_decay: float = 0.01
    threads: int = 1
    bf16: bool = True
    """Matrix products in bfloat16 over float32 weights: several times faster on CPUs that have the instructions."""


class Recipe(Teaching):
    """Mostly two agents on the two smallest maps, from demonstrators that are often careless."""

    merges: int = 800
    tokenizer_texts: int = 3000
    plans: tuple[PlanMix, ...] = (
        PlanMix(
            n=57600, agents={2: 1.0}, sizes={3: 0.48, 4: 0.36, 5: 0.08, 6: 0.04, 7: 0.01, 8: 0.01, 9: 0.01, 10: 0.01}
        ),
        PlanMix(n=2880, agents={3: 0.7, 4: 0.3}, sizes={3: 0.5, 4: 0.5}, hole_ratios=(0.0, 0.1, 0.2)),
        PlanMix(n=720, agents={5: 1.0}, sizes={4: 0.5, 5: 0.5}, hole_ratios=(0.0, 0.1, 0.2)),
    )
    steps: int = 2400
    plan_batch: int = 48
    learning_rate: float = 2e-3
    matrix_learning_rate: float | None = 0.02
    warmup_steps: int = 50


class AdapterRecipe(Teaching):
    """A low-rank adapter that teaches the roles another rule; plans of all sizes go with it, lest they be unlearnt."""

    seed: int = 11
    plans: tuple[PlanMix, ...] = (PlanMix(n=6000, agents={2: 1.0}, sizes=dict.fromkeys(range(3, 11), 0.125)),)
    steps: int = 700
    plan_batch: int = 16
    learning_rate: float = 3e-3
    warmup_steps: int = 20
    rank: int = Field(4, gt=0)
    alpha: int = Field(8, gt=0)
