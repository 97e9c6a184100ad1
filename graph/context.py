"""RunContext: what LangGraph Studio's form may say of a run; every field left empty is the run's own.

The fields are those of ``RunSettings`` with their descriptions and bounds. A context is not kept in checkpoints: what a
run was begun with stands in its ``run.yaml``, and a context that says otherwise is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from agents.rolespec import Approval
from graph.settings import Frozen, RunSettings

_FIELDS = RunSettings.model_fields
PATHS = "a path is relative to the directory in which the server was started"


def _described(name: str) -> str:
    return f"{_FIELDS[name].description}; empty = the run's own, in a new run {_FIELDS[name].default!r}"


class RunInput(TypedDict):
    """Nothing: a run takes all that it needs from its context and its files."""


class RunContext(Frozen):
    """Settings of a new run. On a run that was begun before, leave them empty or give the same."""

    config: str | None = Field(
        None, description=f"a settings file in YAML, as of python -m graph.run --config; {PATHS}"
    )
    profile: str | None = Field(None, description=f"{_described('profile')}; {PATHS}")
    environment: str | None = Field(None, description=_described("environment"))
    designer: str | None = Field(
        None,
        description=f"{_described('designer')}; this field takes a name, a file for 'config' the mapping as well",
    )
    stages: Annotated[int, Field(ge=0, le=1000)] | None = Field(None, description=_described("stages"))
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(None, description=_described("seed"))
    max_revisions: Annotated[int, Field(ge=0, le=20)] | None = Field(None, description=_described("max_revisions"))
    approval: Approval | None = Field(None, description=_described("approval"))
    budget: Literal["role", "profile"] | None = Field(None, description=_described("budget"))
    benchmark: bool | None = Field(None, description=_described("benchmark"))

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, data: Any) -> Any:
        """A form may send what was left empty."""
        return {key: value for key, value in data.items() if value != ""} if isinstance(data, dict) else data

    def overrides(self) -> dict[str, Any]:
        """What was filled in, without the settings file."""
        return self.model_dump(exclude_none=True, exclude={"config"})

    def file(self) -> Path | None:
        return None if self.config is None else Path(self.config)
