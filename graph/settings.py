"""RunSettings: everything that decides what a run does, read from YAML; command-line flags override it.

Unknown keys are refused and the nearest known one is suggested. Two runs with equal settings, equal profile, roles and
starting model compute the same; where the run directory lies is not part of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.evidence import EvidenceSettings
from agents.gates import GateSettings
from agents.rolespec import Approval
from envsim.documents import DocumentError, read_yaml
from graph.tracing import Content
from trainer.spec import RewardWeights, Trackers, absent

MAX_PROBLEMS = 8
"""Problems of one file that are told at once."""


class SettingsError(ValueError):
    """Bad input of a person: one line that says what, its value, what was expected and what to do."""


class Frozen(BaseModel):
    # Strict: without it 'stages: true' would count as 1.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class AcceptanceSettings(Frozen):
    """When a trained stage is kept."""

    standard_errors: float = Field(1.0, ge=0, description="a paired loss of the anchor up to this many SE is kept")
    alpha: float = Field(0.05, gt=0, lt=1, description="level of the falls by cell (McNemar, Holm)")
    resamples: int = Field(2000, ge=100, le=100_000, description="resamples of the paired bootstrap")
    samples: int = Field(
        0,
        ge=0,
        le=9,
        description="answers to each anchor task, drawn at the temperature of training; 0 = one greedy answer",
        exclude_if=lambda samples: samples == 0,
    )


class RunSettings(Frozen):
    """The run's YAML file."""

    schema_version: Literal[1] = 1
    environment: str = Field("lake", description="a name known to envsim.registry")
    profile: str = Field("seedling", description="a shipped profile's name or a YAML file: model, GRPO, sizes, threads")
    designer: str | dict[str, Any] = Field(
        "self", description="who proposes the next configuration: a name, or {name: ..., parameters}; docs/designers.md"
    )
    stages: int = Field(3, ge=0, le=1000, description="designed stages after stage 000")
    seed: int = Field(0, ge=0, lt=2**31, description="of all that is random in the run")
    initial_config: dict[str, Any] | None = Field(None, description="stage 000's configuration; none = the default one")
    editable: list[str] = Field(
        [],
        description="groups of the environment's opt-in knobs that the designer may move, such as topology or shaping",
        exclude_if=lambda groups: not groups,
    )
    max_revisions: int = Field(2, ge=0, le=20, description="revisions of one proposal before the stage falls back")
    approval: Approval = Field(
        "never",
        description="whether a person decides on proposals that passed the gates; on_doubt: where the critic rejects "
        "one, still asks for a revision when none is left, or gave no usable answer",
    )
    budget: Literal["role", "profile"] = Field("role", description="who sets a stage's length; profile pins it")
    token_budget: int | None = Field(
        None,
        gt=0,
        description="generated tokens (training, probes, roles) after which the run ends, before 'stages' if need be; "
        "needs 'budget: profile'",
        exclude_if=absent,
    )
    roles: str | None = Field(None, description="directory of role files; none = the shipped roles")
    gates: GateSettings = GateSettings()
    evidence: EvidenceSettings = Field(
        EvidenceSettings(),
        description="blocks of the evidence that are left out, and the room for it",
        exclude_if=lambda evidence: evidence == EvidenceSettings(),
    )
    reward: RewardWeights | None = Field(None, description="weights of the verifier's verdicts; none = the profile's")
    acceptance: AcceptanceSettings = AcceptanceSettings()
    tracking: Trackers | None = Field(
        None, description="where the curves go: tensorboard, wandb, trackio; none = the profile's", exclude_if=absent
    )
    trace: Content | None = Field(
        None,
        description="trace.jsonl: full, or outline without prompts and answers; says nothing of what is computed",
        exclude=True,
    )
    benchmark: bool = Field(False, description="evaluate the out-of-distribution sets before and after the run")
    checkpoints: str | None = Field(
        None,
        description="URL of a Postgres server for the checkpointer; none = SQLite in the run directory. It decides "
        "nothing of what is computed",
        exclude_if=absent,
    )

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.token_budget is not None and self.budget != "profile":
            raise ValueError(
                f"token_budget is {self.token_budget} and budget is '{self.budget}'; "
                "expected 'budget: profile': what sets the length of a stage must be one thing"
            )
        return self


def load_settings(path: Path | None, overrides: Mapping[str, Any]) -> RunSettings:
    """Settings from a YAML file (or the defaults) with overrides on top.

    Raises
    ------
    SettingsError
        The file cannot be read, is no YAML mapping, or has an unknown key or a value out of bounds.
    """
    data = {} if path is None else read_settings(path)
    return parse_settings({**data, **overrides}, str(path) if path else "command line")


def is_profile(data: Mapping[str, Any]) -> bool:
    """Whether keys that a run's settings lack are all a profile's: the two kinds of file are taken for each other."""
    if data.keys() <= RunSettings.model_fields.keys():
        return False
    from trainer.profile import Profile  # noqa: PLC0415  only where a file is wrong

    return data.keys() <= Profile.model_fields.keys()


def read_settings(path: Path) -> dict[str, Any]:
    """The mapping of a settings file, not yet checked. Raises SettingsError if it cannot be read or holds none."""
    try:
        data = read_yaml(path)
    except DocumentError as error:
        raise SettingsError(f"the configuration is not usable: {error}") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise SettingsError(f"{path} holds {type(data).__name__}, expected a mapping such as 'stages: 3'")
    if is_profile(data):
        raise SettingsError(
            f"{path} is a profile, not a run's settings (it has {', '.join(sorted(data))}); give it as 'profile', "
            "on the command line --profile"
        )
    return data


def parse_settings(data: Mapping[str, Any], where: str) -> RunSettings:
    """Settings from plain data; ``where`` begins the error line. Raises SettingsError."""
    try:
        return RunSettings.model_validate(data)
    except ValidationError as error:
        raise SettingsError(f"{where}: {explain(error, RunSettings)}") from error


def explain(error: ValidationError, model: type[BaseModel], where: str = "") -> str:
    """The problems of a validation error in one line; ``where`` is what the paths are relative to.

    An unknown key gets the nearest known one; what is known at its place is told once, not with every key.
    """
    faults = error.errors(include_url=False)
    problems = list(dict.fromkeys(_explain_one(dict(fault), model, where) for fault in faults[:MAX_PROBLEMS]))
    problems += _known(faults[:MAX_PROBLEMS], model)
    if len(faults) > MAX_PROBLEMS:
        problems.append(f"and {len(faults) - MAX_PROBLEMS} more")
    return "; ".join(problems)


def _explain_one(fault: Mapping[str, Any], model: type[BaseModel], where: str) -> str:
    path = ".".join(str(part) for part in ((where, *fault["loc"]) if where else fault["loc"]))
    if fault["type"] == "extra_forbidden":
        near = _nearest(fault, model)
        return f"unknown key '{path}'" + (f", did you mean '{near}'?" if near else "")
    message = " ".join(fault["msg"].removeprefix("Value error, ").split())
    message = message[:1].lower() + message[1:]
    # A model's own check speaks of the whole, which it names itself.
    return (
        f"{path}: {message}".removeprefix(": ")
        if fault["type"] == "value_error"
        else f"{path} = {_short(fault['input'], repr)}: {message}"
    )


def _known(faults: Sequence[Any], model: type[BaseModel]) -> Iterator[str]:
    """The known keys at every place with an unknown key that resembles none."""
    places = dict.fromkeys(
        fault["loc"][:-1] for fault in faults if fault["type"] == "extra_forbidden" and _nearest(fault, model) is None
    )
    for place in places:
        inside = f" in '{'.'.join(map(str, place))}'" if place else ""
        if known := _fields_at(model, place):
            yield f"known keys{inside}: {', '.join(sorted(known))}"


def _nearest(fault: Mapping[str, Any], model: type[BaseModel]) -> str | None:
    *place, key = fault["loc"]
    near = difflib.get_close_matches(str(key), _fields_at(model, tuple(place)), n=1)
    return near[0] if near else None


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        arms = () if field is None else (field.annotation, *get_args(field.annotation))
        inner = next((arm for arm in arms if isinstance(arm, type) and issubclass(arm, BaseModel)), None)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Dotted paths at which two plain values differ, each with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{prefix}{key}.")]
    return [] if old == new else [f"{prefix.rstrip('.')} (was {_short(old)}, now {_short(new)})"]


def _short(value: Any, text_of: Callable[[Any], str] = str) -> str:
    text = text_of(value)
    return text if len(text) <= 40 else text[:37] + "..."
