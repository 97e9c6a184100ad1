"""What crosses the border of a stage: StageSpec goes in, StageResult comes out, EvalReport says how good it is.

All are frozen, versioned and content-hashed. A stage is identified by the hash of its spec; paths are not part of the
identity, contents are.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from trainer.frozen import Frozen, absent, canonical_hash, empty, explain, short
from trainer.training_settings import GrpoSettings, OverlongPenalty, SftSettings, Tripwires

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
    "contradiction",
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


def contradiction(
    grpo: GrpoSettings,
    generation: GenerationSettings,
    rollouts: RolloutSettings,
    device: str,
    reward: RewardWeights,
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
    return None if grpo.overlong is None else _overlong_contradiction(grpo.overlong, generation, reward)


def _overlong_contradiction(
    overlong: OverlongPenalty, generation: GenerationSettings, reward: RewardWeights
) -> str | None:
    if overlong.cache >= generation.max_new_tokens:
        return (
            f"grpo.overlong.cache {overlong.cache} leaves no answer unpunished; expected less than "
            f"generation.max_new_tokens {generation.max_new_tokens}"
        )
    if overlong.weight >= reward.valid:
        return (
            f"grpo.overlong.weight {overlong.weight:g} makes a short wrong answer worth as much as a long valid one; "
            f"expected less than reward.valid {reward.valid:g}"
        )
    return None


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


class Trip(Frozen):
    """Why a stage was stopped before its last step."""

    wire: str
    """The setting of `Tripwires` that it crossed."""
    step: int = Field(gt=0)
    figure: float | None
    """What was measured; None where it was no finite number."""
    threshold: float

    def __str__(self) -> str:
        found = "no finite number" if self.figure is None else f"{self.figure:.4g}"
        return f"{self.wire} {self.threshold:g} was crossed at step {self.step}: {found}"


class JobResult(Frozen):
    """Written last and atomically; a stage is done exactly if this file parses and says that it did all its steps, or
    which tripwire stopped it."""

    schema_version: Literal[1] = SCHEMA_VERSION
    spec_hash: str
    stage: int
    steps: int
    model: ModelRef
    weight_change: float
    """L2 norm of the difference between the weights before and after."""
    seconds: dict[str, float]
    """start_up, generation, training, saving, total."""
    attempt: int
    resumed_from_step: int | None = None
    tripped: Trip | None = Field(None, exclude_if=absent)
    warnings: tuple[str, ...] = Field((), exclude_if=empty)
    """What an engineer should know of the stage's numbers, one line each."""
    exact: bool = Field(True, exclude_if=bool)
    """Whether the weights are those of an undisturbed stage; not after other library versions or smaller passes."""
    micro_batch: int | None = Field(None, exclude_if=absent)
    """Rows in one pass, where memory ran out at the spec's number."""
    earlier: tuple[EarlierAttempt, ...] = Field((), exclude_if=empty)
    passed_over: tuple[PassedOver, ...] = Field((), exclude_if=empty)

    def finished(self, steps: int) -> bool:
        """Whether nothing is left to do of a stage of so many steps."""
        return self.tripped is not None or self.steps == steps


class StageResult(JobResult):
    """What a stage of GRPO came to."""

    generated_tokens: int
    reward_first: float
    reward_last: float
    zero_variance_share: float
    success: float | None = Field(None, exclude_if=absent)
    """Mean over the steps that had noisy tasks solved: probability of success of their valid answers."""
    progress: float | None = Field(None, exclude_if=absent)
    """Mean over the steps that had shaped tasks: progress of their answers to the first fault."""


class SftResult(JobResult):
    """What a supervised stage came to. Losses are nats a token of the demonstrations, means over a fifth of the
    steps."""

    kind: Literal["sft"] = "sft"
    loss_first: float
    loss_last: float
    answer_tokens: int
    """Of all demonstrations together: what the loss was taken over."""


AnyResult = StageResult | SftResult


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
