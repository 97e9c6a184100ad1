"""The ``launch:`` section of a profile: with how many processes a stage runs, and where."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from trainer.launch.presets import presets, unknown
from trainer.processes import GRACE_SECONDS
from trainer.spec import Frozen, Ranks

LAUNCHERS = ("local", "ray")
LONGEST_GRACE = 86_400
"""Seconds."""


class RaySettings(Frozen):
    """A Ray cluster and what a task asks of a node."""

    address: str = "auto"
    """Of the cluster's head: host:port, or auto for the one that this machine belongs to."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Resources of the cluster's own naming that every task asks for beside CPUs and GPUs, such as ``{h100: 1}``."""
    retries: int = Field(2, ge=0, le=100)
    """How often a task whose node was lost starts again elsewhere."""


class LaunchSettings(Frozen):
    """Where and with how many processes."""

    preset: str | None = None
    """None = one process of plain Python."""
    processes: int | None = Field(None, gt=0)
    """None = as many as is usual for the preset."""
    grace_seconds: float = Field(GRACE_SECONDS, gt=0, le=LONGEST_GRACE)
    """From SIGTERM to SIGKILL: a worker ends its step, saves a checkpoint and leaves."""
    where: str = "local"
    shards: int = Field(1, gt=0, le=256)
    """Tasks that an evaluation is split into; more than one pays where there is more than one place."""
    ray: RaySettings | None = None

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str | None) -> str | None:
        return value if value is None else _known("preset", value, tuple(presets()))

    @field_validator("where")
    @classmethod
    def _known_place(cls, value: str) -> str:
        return _known("launcher", value, LAUNCHERS)

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.ray is not None and self.where != "ray":
            raise ValueError(f"there is a ray section but where is {self.where!r}; expected where: ray, or no section")
        if self.processes is not None and self.preset is None:
            raise ValueError(f"processes is {self.processes} but there is no preset; expected one of {list(presets())}")
        return self

    def ranks(self) -> Ranks | None:
        """What of it decides what a stage computes; None for one plain process."""
        if self.preset is None:
            return None
        return Ranks(preset=self.preset, processes=self.processes or presets()[self.preset].processes.usual)


def _known(what: str, value: str, names: tuple[str, ...]) -> str:
    if value not in names:
        raise ValueError(unknown(what, value, names))
    return value
