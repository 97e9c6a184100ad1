"""What crosses the border of a stage: StageSpec goes in, StageResult comes out, EvalReport says how good it is.

All are frozen, versioned and content-hashed. A stage is identified by the hash of its spec; paths are not part of the
identity, contents are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sized
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

SCHEMA_VERSION: Final = 1
MAX_TOKENS = 131_072
"""More than any model answers; a limit beyond it is a slip of the pen."""
MAX_THREADS = 1024
COMPLETIONS_MIB = 64.0
"""Of a stage."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def absent(value: object) -> bool:
    """What is left out of a file, so that one without it reads as it always did."""
    return value is None


def empty(value: Sized) -> bool:
    """Left out of a file likewise."""
    return not value


def canonical_hash(value: Any) -> str:
    """sha256 of the sorted, compact JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def explain(error: ValidationError) -> str:
    """All problems of a validation error in one line: where, the value, what was expected."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'it'} = {short(item['input'])}: "
        f"{' '.join(item['msg'].split())}"
        for item in error.errors()
    )


def short(value: Any) -> str:
    """A value as Python writes it, cut to what an error line can hold."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


TrackerName = Literal["tensorboard", "wandb", "trackio"]


def _each_once(names: list[TrackerName]) -> list[TrackerName]:
    if len(set(names)) < len(names):
        raise ValueError(f"{names} names a tracker twice, expected each once")
    return names


Trackers = Annotated[list[TrackerName], AfterValidator(_each_once)]
"""Where the curves of a run go; none keeps them in the metrics' JSONL alone."""


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

    @model_validator(mode="after")
    def _rewards_something(self) -> Self:
        if self.valid + self.optimal == 0:
            raise ValueError("valid and optimal are both 0, so every answer earns the same; expected one above 0")
        return self


class GenerationSettings(Frozen):
    """How a policy answers a task prompt."""

    max_new_tokens: int = Field(128, gt=0, le=MAX_TOKENS)
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
    loss_type: Literal["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo"] = "dapo"
    """TRL's losses that weigh tokens one by one."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    beta: float = Field(0.0, ge=0)
    epsilon_high: float | None = Field(None, gt=0)
    max_grad_norm: float = Field(1.0, ge=0)
    save_every: int = Field(10, gt=0)
    bf16: bool = False
    gradient_checkpointing: bool = False


class VllmColocate(Frozen):
    kind: Literal["vllm_colocate"] = "vllm_colocate"
    gpu_memory_utilization: float = Field(0.35, gt=0, le=1)
    max_model_length: int = Field(10240, gt=0)
    sleep: bool = True


class VllmServer(Frozen):
    """A vLLM server on GPUs of its own, started for each attempt beside the trainer."""

    kind: Literal["vllm_server"] = "vllm_server"
    gpus: int = Field(1, gt=0, le=8)
    """GPUs that the server spreads the model over; the last ones of the machine."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    max_model_length: int = Field(10240, gt=0)


class TransformersRollouts(Frozen):
    kind: Literal["transformers"] = "transformers"


RolloutSettings = TransformersRollouts | VllmColocate | VllmServer


class Ranks(Frozen):
    """The processes of a stage, by the preset that says how they share its work. Sums are taken in their order, so they
    are part of what a stage computes."""

    preset: str
    processes: int = Field(gt=0)


class LoraSettings(Frozen):
    rank: int = Field(32, gt=0)
    alpha: int = Field(64, gt=0)


def contradiction(
    grpo: GrpoSettings, generation: GenerationSettings, rollouts: RolloutSettings, device: str
) -> str | None:
    """Why numbers that are each in range cannot be trained with together, in one line; None if they can."""
    micro = grpo.micro_batch or grpo.batch
    if grpo.batch % grpo.group:
        return f"grpo.batch {grpo.batch} is no multiple of grpo.group {grpo.group}; groups must be whole"
    if grpo.batch % micro:
        return f"grpo.batch {grpo.batch} is no multiple of grpo.micro_batch {micro}"
    if generation.temperature == 0:
        return "generation.temperature is 0: greedy answers of a group are all alike; expected > 0"
    if rollouts.kind != "transformers" and device != "cuda":
        return f"rollouts {rollouts.kind} need device cuda, got {device}; use rollouts transformers"
    return None


class StageSpec(Frozen):
    """Everything that decides what a stage computes."""

    schema_version: Literal[1] = SCHEMA_VERSION
    environment: str
    style: Literal["compact", "full"]
    stage: int = Field(ge=0)
    seed: int = Field(ge=0, lt=2**32)
    init_model: ModelRef
    dataset: DataRef
    reward: RewardWeights
    generation: GenerationSettings
    grpo: GrpoSettings
    rollouts: RolloutSettings = Field(TransformersRollouts(), discriminator="kind")
    lora: LoraSettings | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(2, gt=0, le=MAX_THREADS)
    """Of each process."""
    completions_mib: float = Field(COMPLETIONS_MIB, ge=0, exclude_if=lambda mib: mib == COMPLETIONS_MIB)
    """How much of what the policy answers is kept beside the stage, in MiB; it decides nothing of what is computed."""
    ranks: Ranks | None = Field(None, exclude_if=absent)
    """None = one plain process."""

    @property
    def processes(self) -> int:
        return 1 if self.ranks is None else self.ranks.processes

    @property
    def micro_batch(self) -> int:
        """Completions in one forward and backward pass of one process."""
        return self.grpo.micro_batch or self.grpo.batch // self.processes

    def identity(self) -> str:
        """Hash of the spec with contents in place of paths."""
        data = self.model_dump(mode="json")
        del data["init_model"]["path"], data["dataset"]["path"]
        data.pop("completions_mib", None)
        return canonical_hash(data)


Fault = Literal["torn_checkpoint", "missing_file", "wrong_hash", "wrong_spec", "off_window", "damaged_result"]
"""Why a checkpoint or a result was passed over: it was not wholly written, lacks a file, has one with other bytes, is
another stage's, lies inside a window of the sampler, or does not parse."""


class PassedOver(Frozen):
    """A file or directory of the stage from which an attempt could not go on."""

    path: str
    fault: Fault
    detail: str


class EarlierAttempt(Frozen):
    """An attempt before the one that finished the stage, and how it ended."""

    attempt: int
    outcome: str


class StageResult(Frozen):
    """Written last and atomically; a stage is done exactly if this file parses and says it did all its steps."""

    schema_version: Literal[1] = SCHEMA_VERSION
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
    success: float | None = Field(None, exclude_if=absent)
    """Mean over the steps that had noisy tasks solved: probability of success of their valid answers."""
    progress: float | None = Field(None, exclude_if=absent)
    """Mean over the steps that had shaped tasks: progress of their answers to the first fault."""
    seconds: dict[str, float]
    """start_up, generation, training, saving, total."""
    attempt: int
    resumed_from_step: int | None = None
    exact: bool = Field(True, exclude_if=bool)
    """Whether the weights are those of an undisturbed stage; not after other library versions or smaller passes."""
    micro_batch: int | None = Field(None, exclude_if=absent)
    """Completions in one pass, where memory ran out at the spec's number."""
    earlier: tuple[EarlierAttempt, ...] = Field((), exclude_if=empty)
    passed_over: tuple[PassedOver, ...] = Field((), exclude_if=empty)


class CellStats(Frozen):
    n: int
    valid: float
    optimal: float
    outcomes: dict[str, int]
    mean_tokens: float
    success: float | None = Field(None, exclude_if=absent)
    """Mean probability of success of the valid answers to noisy tasks; None without any."""


class EvalReport(Frozen):
    """A checkpoint on a frozen set. ``macro_*`` is the mean over cells. Rollouts lie in a JSONL beside it."""

    schema_version: Literal[1] = SCHEMA_VERSION
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
    """File name of the rollouts: one row {id, cell, sample, answer, tokens, outcome, valid, optimal, regret, fault},
    with success and success_interval for a valid answer to a noisy task."""
