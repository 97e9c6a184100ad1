"""The protocol of the roles: what they read (Evidence) and what each of them may say.

Versioned, frozen and printed as JSON Schema by ``python -m agents schema``. Field order is the order of generation:
the reasoning comes first. Objects keyed by cell or knob path are closed over a concrete environment by
``agents.structured.output_schema``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

SCHEMA_VERSION = 1
Standing = Literal["mastered", "learnable", "hopeless"]
Op = Literal["set", "up", "down", "keep"]
LEARNING_RATE_SCALES = (0.5, 1.0, 2.0)
MOST_CHANGES = 16


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CellEvidence(Frozen):
    """One cell of the validation set beside what the last stage's configuration gave it. Ratios are in [0, 1]."""

    cell: str
    n: int
    valid: float
    optimal: float
    change: float | None
    """valid now minus valid before the last stage; None on the first."""
    top_fault: str | None
    knobs: dict[str, float]
    """The knobs of this cell by their last path component, e.g. data_ratio."""
    outcomes: dict[str, int]
    mean_first_fault_step: float | None


class FailureExample(Frozen):
    """One validation failure: typical of its cluster or odd."""

    id: str
    instance: str
    cell: str
    outcome: str
    kind: Literal["typical", "odd"]
    where: str
    answer: str


class CellStatistics(Frozen):
    """What the policy does on one cell with one number of agents, and what training gave it there.

    Ratios are in [0, 1], means over all its answers.
    """

    cell: str
    agents: int
    n: int
    valid: float
    optimal: float
    regret: float
    """Mean regret; an answer that is not valid has 1."""
    tokens: float
    """Mean length of an answer."""
    fault_step: dict[str, int]
    """Answers by the place of their first fault: start, early, late, or form for what is no plan."""
    conflicts: float
    """Share of the answers that end in a conflict between agents."""
    actions: dict[str, float]
    """Distribution of the actions up to the first fault; empty where there are none."""
    waits_needed: float | None
    """Share of the tasks that need a wait; None if the environment does not say."""
    waits_used: float | None
    """Share of those in whose answer somebody waits, that is stays and moves on later; None if none needs one."""
    waits_idle: float | None
    """The same share of the tasks that need none."""
    zero_variance: float | None = Field(None, exclude_if=lambda share: share is None)
    """Share of the last stage's groups on such tasks whose answers all earned the same; left out where it trained on
    none, or where its answers are not all kept."""


class FailureCluster(Frozen):
    """Failures alike in outcome and in when they come, largest cluster first."""

    id: str
    outcome: str
    phase: Literal["form", "start", "early", "late"]
    n: int
    share: float
    """Of all failures."""
    cells: dict[str, int]
    typical: FailureExample
    odd: FailureExample | None
    """The member least like the others; None in a cluster of one."""


class HistoryEntry(Frozen):
    stage: int
    designer: str
    changes: list[str]
    accepted: bool
    anchor_before: float
    anchor_after: float
    stopped: str | None = Field(None, exclude_if=lambda stopped: stopped is None)
    """The tripwire that ended the stage before its last step, with figure, threshold and step."""
    predicted: dict[str, int] = Field({}, exclude_if=lambda predicted: not predicted)
    """What the stage's proposal predicted by cell, in percent; left out where it had none of its own."""
    measured: dict[str, float] = Field({}, exclude_if=lambda measured: not measured)
    """The valid rate by cell that was measured after it, beside ``predicted``."""


class TrainingEvidence(Frozen):
    """What a stage really trained on, and what its answers were worth."""

    stage: int
    n: int
    knobs: dict[str, float]
    """What was generated, by path of the knobs that are no cell's: the share of each choice, the mean of any other."""
    success: float | None
    """Mean probability that a valid answer to a noisy task succeeds; None where actions were certain."""
    progress: float | None
    """Mean progress to the first fault; None where the reward was sparse."""


class Evidence(Frozen):
    schema_version: int = SCHEMA_VERSION
    stage: int
    model_sha256: str
    macro_valid: float
    macro_optimal: float
    zero_variance_share: float | None
    """Share of the last stage's groups whose answers all earned the same."""
    no_signal: bool
    """True if failures carry no signal: hardly any cell is ever solved."""
    cells: list[CellEvidence]
    outcomes: dict[str, int]
    failures: list[FailureExample]
    anchor: dict[str, float]
    """Aggregates only: valid rate by cell."""
    history: list[HistoryEntry]
    open_knobs: dict[str, float] = Field({}, exclude_if=lambda knobs: not knobs)
    """Values of the editable knobs that are no cell's, by path; left out where the run opens none."""
    training: TrainingEvidence | None = Field(None, exclude_if=lambda training: training is None)
    """The last stage's training set, where it has such knobs open or away from their defaults."""
    stopped: str | None = Field(None, exclude_if=lambda stopped: stopped is None)
    """The tripwire that ended the last stage, stage 000 included, before its last step."""
    statistics: list[CellStatistics] = Field([], exclude_if=lambda statistics: not statistics)
    clusters: list[FailureCluster] = Field([], exclude_if=lambda clusters: not clusters)
    omitted: list[str] = Field([], exclude_if=lambda omitted: not omitted)
    """Blocks that the run's settings leave out."""


class Change(Frozen):
    """``set`` needs a value; ``up``, ``down`` and ``keep`` take none."""

    path: str
    op: Op
    value: float | None = None


class Diagnosis(Frozen):
    """What the failure analyst writes."""

    schema_version: int = SCHEMA_VERSION
    cells: dict[str, Standing]
    summary: str = Field(max_length=240)
    dominant_fault: str
    evidence_ids: list[str] = Field(max_length=4)


class Proposal(Frozen):
    """What a designer writes. ``predicted`` is the success it expects by cell after the stage, in percent."""

    schema_version: int = SCHEMA_VERSION
    rationale: str = Field(max_length=240)
    changes: list[Change] = Field(max_length=MOST_CHANGES)
    predicted: dict[str, int]


class Critique(Frozen):
    """What the safety critic writes. Conditions are checked by code on the revision, relative to the criticised one."""

    schema_version: int = SCHEMA_VERSION
    reason: str = Field(max_length=240)
    verdict: Literal["approve", "revise", "reject"]
    conditions: list[Change] = Field(max_length=4)


class Budget(Frozen):
    """What the trainer role writes: the stage's length and a scale on the profile's learning rate."""

    schema_version: int = SCHEMA_VERSION
    reason: str = Field(max_length=240)
    steps: int = Field(gt=0)
    learning_rate_scale: float = Field(json_schema_extra={"enum": list(LEARNING_RATE_SCALES)})

    @field_validator("learning_rate_scale")
    @classmethod
    def _known_scale(cls, value: float) -> float:
        if value not in LEARNING_RATE_SCALES:
            raise ValueError(f"{value:g} is not a known scale; expected one of {LEARNING_RATE_SCALES}")
        return value


class Written(Frozen):
    """What a role beside the four writes. It has no schema version: its form stands in its role's file."""


class Note(Written):
    """The shipped form of a note: one text."""

    text: str = Field(max_length=600)


class GateFinding(Frozen):
    """One gate's word on one proposal: its figure, its threshold and why."""

    gate: str
    passed: bool
    figure: float | None
    threshold: float | None
    reason: str
    cells: list[str] = []
    """The cells at fault."""


class GateReport(Frozen):
    schema_version: int = SCHEMA_VERSION
    passed: bool
    findings: list[GateFinding]
    probe: dict[str, float]
    """Mean success by cell of the current policy on the probe."""
    probe_tokens: int
    enforced: bool = Field(True, exclude_if=lambda enforced: enforced)
    """False in a run with ``gates: off``: findings are told, and only what cannot be generated is refused."""


class Cost(Frozen):
    """What one answer or proposal cost: tokens of the models that were asked, and what was rolled out to find it."""

    input_tokens: int = Field(0, ge=0)
    output_tokens: int = Field(0, ge=0)
    probe_rollouts: int = Field(0, ge=0)
    probe_tokens: int = Field(0, ge=0)
    """Generated tokens of those rollouts."""

    def __add__(self, other: Cost) -> Cost:
        mine, theirs = self.model_dump(), other.model_dump()
        return Cost(**{name: value + theirs[name] for name, value in mine.items()})
