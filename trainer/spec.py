"""What crosses the border of a stage: StageSpec goes in, StageResult comes out, EvalReport says how good it is.

The specs are made here, what comes out in `trainer.results` and `trainer.reports`. All are frozen, versioned and
content-hashed. A stage is identified by the hash of its spec; paths are not part of the identity, contents are.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from trainer.frozen import Frozen, absent, canonical_hash, empty, explain, short
from trainer.references import DataRef, ModelRef
from trainer.reports import CellStats, EvalReport
from trainer.results import (
    AnyResult,
    EarlierAttempt,
    Fault,
    JobResult,
    PassedOver,
    SftResult,
    StageResult,
    Trip,
)
from trainer.training_settings import GrpoSettings, OverlongPenalty, Rehearsal, SftSettings, Tripwires

__all__ = [
    "COMPLETIONS_MIB",
    "MAX_THREADS",
    "MAX_TOKENS",
    "AnyResult",
    "AnySpec",
    "CellStats",
    "DataRef",
    "EarlierAttempt",
    "EvalReport",
    "Fault",
    "Frozen",
    "GenerationSettings",
    "GrpoSettings",
    "JobResult",
    "JobSpec",
    "LoraSettings",
    "ModelRef",
    "OverlongPenalty",
    "PassedOver",
    "Ranks",
    "RewardWeights",
    "RoleRehearsal",
    "RolloutSettings",
    "SftResult",
    "SftSettings",
    "SftSpec",
    "StageResult",
    "StageSpec",
    "TrackerName",
    "Trackers",
    "TransformersRollouts",
    "Trip",
    "Tripwires",
    "VllmColocate",
    "VllmServer",
    "absent",
    "canonical_hash",
    "empty",
    "explain",
    "read_spec",
    "short",
]
SCHEMA_VERSION: Final = 1
MAX_TOKENS = 131_072
"""More than any model answers; a limit beyond it is a slip of the pen."""
MAX_THREADS = 1024
COMPLETIONS_MIB = 64.0
"""Of a stage."""


TrackerName = Literal["tensorboard", "wandb", "trackio"]


def _each_once(names: list[TrackerName]) -> list[TrackerName]:
    if len(set(names)) < len(names):
        raise ValueError(f"{names} names a tracker twice, expected each once")
    return names


Trackers = Annotated[list[TrackerName], AfterValidator(_each_once)]
"""Where the curves of a run go; none keeps them in the metrics' JSONL alone."""


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
    chat_template_kwargs: dict[str, Any] = Field({})


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


class RoleRehearsal(Rehearsal):
    """Role episodes that a stage rehearses from, see `trainer.role_rehearsal`."""

    data: DataRef
    """JSON lines, one episode each."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.batch > self.data.n:
            raise ValueError(f"batch {self.batch} exceeds the {self.data.n} episodes of data; a batch shows none twice")
        return self


class JobSpec(Frozen):
    """What the specs of all kinds of stages have."""

    schema_version: Literal[1] = SCHEMA_VERSION
    environment: str
    style: Literal["compact", "full"]
    stage: int = Field(ge=0)
    seed: int = Field(ge=0, lt=2**32)
    init_model: ModelRef
    dataset: DataRef
    generation: GenerationSettings
    lora: LoraSettings | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(2, gt=0, le=MAX_THREADS)
    """Of each process."""

    def identity(self) -> str:
        """Hash of the spec with contents in place of paths."""
        data = self.model_dump(mode="json")
        del data["init_model"]["path"], data["dataset"]["path"]
        data.pop("completions_mib", None)
        if "role_rehearsal" in data:
            del data["role_rehearsal"]["data"]["path"]
        return canonical_hash(data)


class StageSpec(JobSpec):
    """Everything that decides what a stage of GRPO computes."""

    kind: Literal["grpo"] = Field("grpo", exclude_if=lambda kind: kind == "grpo")
    reward: RewardWeights
    grpo: GrpoSettings
    rollouts: RolloutSettings = Field(TransformersRollouts(), discriminator="kind")
    completions_mib: float = Field(COMPLETIONS_MIB, ge=0, exclude_if=lambda mib: mib == COMPLETIONS_MIB)
    """How much of what the policy answers is kept beside the stage, in MiB; it decides nothing of what is computed."""
    ranks: Ranks | None = Field(None, exclude_if=absent)
    """None = one plain process."""
    role_rehearsal: RoleRehearsal | None = Field(None, exclude_if=absent)
    """None = the stage learns from its tasks alone."""

    @property
    def steps(self) -> int:
        return self.grpo.steps

    @property
    def batch(self) -> int:
        return self.grpo.batch

    @property
    def processes(self) -> int:
        return 1 if self.ranks is None else self.ranks.processes

    @property
    def micro_batch(self) -> int:
        """Completions in one forward and backward pass of one process."""
        return self.grpo.micro_batch or self.grpo.batch // self.processes

    def with_micro_batch(self, rows: int) -> Self:
        """The same with so many completions in one pass."""
        return self.model_copy(update={"grpo": self.grpo.model_copy(update={"micro_batch": rows})})


class SftSpec(JobSpec):
    """Everything that decides what a supervised stage computes: the environment's demonstrations of its tasks."""

    kind: Literal["sft"] = "sft"
    sft: SftSettings

    @property
    def steps(self) -> int:
        return self.sft.steps

    @property
    def batch(self) -> int:
        return self.sft.batch

    @property
    def processes(self) -> int:
        return 1

    @property
    def micro_batch(self) -> int:
        """Demonstrations in one forward and backward pass."""
        return self.sft.micro_batch or self.sft.batch

    def with_micro_batch(self, rows: int) -> Self:
        """The same with so many demonstrations in one pass."""
        return self.model_copy(update={"sft": self.sft.model_copy(update={"micro_batch": rows})})


AnySpec = StageSpec | SftSpec


def _kind(data: Any) -> str:
    return str(data.get("kind", "grpo")) if isinstance(data, dict) else "grpo"


_SPEC: TypeAdapter[AnySpec] = TypeAdapter(
    Annotated[Annotated[StageSpec, Tag("grpo")] | Annotated[SftSpec, Tag("sft")], Discriminator(_kind)]
)


def read_spec(text: str | bytes) -> AnySpec:
    """A spec of the kind that it names; one that names none is of GRPO. Raises ValidationError."""
    return _SPEC.validate_json(text)
