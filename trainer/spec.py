"""What crosses the border of a stage: StageSpec goes in, StageResult comes out, EvalReport says how good it is.

All are frozen, versioned and content-hashed. A stage is identified by the hash of its spec; paths are not part of the
identity, contents are.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def canonical_hash(value: Any) -> str:
    """sha256 of the sorted, compact JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class ModelRef(Frozen):
    """A checkpoint directory (or hub id) and the sha256 over its weight and tokenizer files."""

    path: str
    sha256: str


class DataRef(Frozen):
    path: str
    sha256: str
    n: int = Field(gt=0)


class RewardWeights(Frozen):
    """Weights of the verifier's two verdicts. Never editable by a designer."""

    valid: float = Field(1.0, ge=0)
    optimal: float = Field(0.5, ge=0)


class GenerationSettings(Frozen):
    """How a policy answers a task prompt."""

    max_new_tokens: int = Field(128, gt=0)
    temperature: float = Field(1.0, ge=0)
    chat_template_kwargs: dict[str, Any] = {}


class GrpoSettings(Frozen):
    """The numbers of one GRPO stage. ``batch`` counts completions a step, ``group`` completions a prompt."""

    steps: int = Field(gt=0)
    batch: int = Field(128, gt=0)
    group: int = Field(16, ge=2)
    learning_rate: float = Field(5e-5, gt=0)
    warmup_steps: int = Field(0, ge=0)
    schedule: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    """What the learning rate does within a stage after its warm-up; every stage begins anew."""
    micro_batch: int | None = Field(None, gt=0)
    """Completions in one forward and backward pass; None = the whole batch."""
    loss_type: str = "dapo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    beta: float = Field(0.0, ge=0)
    epsilon_high: float | None = None
    max_grad_norm: float = 1.0
    save_every: int = Field(10, gt=0)
    bf16: bool = False
    gradient_checkpointing: bool = False


class VllmColocate(Frozen):
    kind: Literal["vllm_colocate"] = "vllm_colocate"
    gpu_memory_utilization: float = 0.35
    max_model_length: int = 10240
    sleep: bool = True


class TransformersRollouts(Frozen):
    kind: Literal["transformers"] = "transformers"


class LoraSettings(Frozen):
    rank: int = Field(32, gt=0)
    alpha: int = Field(64, gt=0)


class StageSpec(Frozen):
    """Everything that decides what a stage computes."""

    schema_version: int = SCHEMA_VERSION
    environment: str
    style: Literal["compact", "full"]
    stage: int
    seed: int
    init_model: ModelRef
    dataset: DataRef
    reward: RewardWeights
    generation: GenerationSettings
    grpo: GrpoSettings
    rollouts: TransformersRollouts | VllmColocate = Field(TransformersRollouts(), discriminator="kind")
    lora: LoraSettings | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(2, gt=0)

    def identity(self) -> str:
        """Hash of the spec with contents in place of paths."""
        data = self.model_dump(mode="json")
        del data["init_model"]["path"], data["dataset"]["path"]
        return canonical_hash(data)


class StageResult(Frozen):
    """Written last and atomically; a stage is done exactly if this file parses and says it did all its steps."""

    schema_version: int = SCHEMA_VERSION
    spec_hash: str
    stage: int
    steps: int
    model: ModelRef
    weight_change: float
    """L2 norm of the difference between the weights before and after."""
    generated_tokens: int
    reward_first: float
    reward_last: float
    zero_variance_share: float
    seconds: dict[str, float]
    """start_up, generation, training, saving, total."""
    attempt: int
    resumed_from_step: int | None = None


class CellStats(Frozen):
    n: int
    valid: float
    optimal: float
    outcomes: dict[str, int]
    mean_tokens: float


class EvalReport(Frozen):
    """A checkpoint on a frozen set. ``macro_*`` is the mean over cells. Rollouts lie in a JSONL beside it."""

    schema_version: int = SCHEMA_VERSION
    set: str
    model_sha256: str
    temperature: float
    samples: int
    seed: int
    n: int
    macro_valid: float
    macro_optimal: float
    cells: dict[str, CellStats]
    outcomes: dict[str, int]
    generated_tokens: int
    seconds: float
    rollouts: str
    """File name of the rollouts: one row {id, cell, sample, answer, tokens, outcome, valid, optimal, regret, fault}."""
