"""RunSettings: everything that decides what a run does, read from YAML; command-line flags override it.

Unknown keys are refused and the nearest known one is suggested. Two runs with equal settings, equal profile, roles and
starting model compute the same; where the run directory lies is not part of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.gates import GateSettings
from trainer.spec import RewardWeights


class SettingsError(ValueError):
    """Bad input of a person: one line that says what, its value, what was expected and what to do."""


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AcceptanceSettings(Frozen):
    """When a trained stage is kept."""

    standard_errors: float = Field(1.0, ge=0, description="a paired loss of the anchor up to this many SE is kept")
    alpha: float = Field(0.05, gt=0, lt=1, description="level of the falls by cell (McNemar, Holm)")
    resamples: int = Field(2000, ge=100, le=100_000, description="resamples of the paired bootstrap")


class RunSettings(Frozen):
    """The run's YAML file."""

    schema_version: Literal[1] = 1
    environment: str = Field("lake", description="a name known to envsim.registry")
    profile: str = Field("seedling", description="a shipped profile's name or a YAML file: model, GRPO, sizes, threads")
    designer: str = Field("self", description="who proposes the next configuration")
    stages: int = Field(3, ge=0, le=1000, description="designed stages after stage 000")
    seed: int = Field(0, ge=0, lt=2**31)
    initial_config: dict[str, Any] | None = Field(None, description="stage 000's configuration; none = the default one")
    max_revisions: int = Field(2, ge=0, le=20, description="revisions of one proposal before the stage falls back")
    approval: Literal["never", "always"] = Field("never", description="whether a person approves each proposal")
    budget: Literal["role", "profile"] = Field("role", description="who sets a stage's length; profile pins it")
    roles: str | None = Field(None, description="directory of role files; none = the shipped roles")
    gates: GateSettings = GateSettings()
    reward: RewardWeights | None = Field(None, description="weights of the verifier's verdicts; none = the profile's")
    acceptance: AcceptanceSettings = AcceptanceSettings()
    benchmark: bool = Field(False, description="evaluate the out-of-distribution sets before and after the run")


def load_settings(path: Path | None, overrides: Mapping[str, Any]) -> RunSettings:
    """Settings from a YAML file (or the defaults) with overrides on top.

    Raises
    ------
    SettingsError
        The file is missing, is no YAML mapping, or has an unknown key or a value out of bounds.
    """
    data: Any = {}
    if path is not None:
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingsError(f"cannot read the configuration {path}: {error.strerror}") from error
        except yaml.YAMLError as error:
            line = " ".join(str(error).split())
            raise SettingsError(f"{path} is no valid YAML: {line}") from error
        data = {} if data is None else data
    if not isinstance(data, dict):
        raise SettingsError(f"{path} holds {type(data).__name__}, expected a mapping such as 'stages: 3'")
    return parse_settings({**data, **overrides}, str(path) if path else "command line")


def parse_settings(data: Mapping[str, Any], where: str) -> RunSettings:
    """Settings from plain data; ``where`` begins the error line. Raises SettingsError."""
    try:
        return RunSettings.model_validate(data)
    except ValidationError as error:
        raise SettingsError(f"{where}: {explain(error, RunSettings)}") from error


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """All problems of a validation error in one line, unknown keys with the nearest known one."""
    return "; ".join(_explain_one(dict(item), model) for item in error.errors())


def _explain_one(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] != "extra_forbidden":
        return f"{path} = {item['input']!r}: {item['msg'].lower()}"
    known = list(_fields_at(model, item["loc"][:-1]))
    near = difflib.get_close_matches(str(item["loc"][-1]), known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known keys: {', '.join(sorted(known))}"
    return f"unknown key '{path}'; {hint}"


def _fields_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return []
        model = field.annotation
    return list(model.model_fields)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Dotted paths at which two plain values differ, each with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted(old.keys() | new.keys())
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{prefix}{key}.")]
    return [] if old == new else [f"{prefix.rstrip('.')} (was {_short(old)}, now {_short(new)})"]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
