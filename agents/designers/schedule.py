"""A curriculum written by hand: a YAML file with the knobs of each stage, followed whatever the evidence says.

Two files are shipped for the lake: from easy to hard, in which easy tasks fade and never vanish (E2H, arXiv
2506.06632), and its reverse, a negative control. A stage beyond the file's last repeats it. A stage that is sent back
goes half of the way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from agents.designers.base import DesignContext, Designer, part_of_the_way, proposal, set_knob
from agents.schemas import MOST_CHANGES, Frozen, Proposal
from envsim.documents import DocumentError, read_yaml

SHIPPED = Path(__file__).parent / "schedules"


class Schedule(Frozen):
    """The file. ``stages`` holds a mapping of knob paths to values for every designed stage, the first for stage 1."""

    schema_version: Literal[1] = 1
    environment: str
    stages: list[dict[str, float]] = Field(min_length=1)


class Scheduled(Designer):
    name = "schedule"

    def __init__(self, title: str, schedule: Schedule) -> None:
        self._title = title
        self._schedule = schedule

    def propose(self, context: DesignContext) -> Proposal:
        if context.environment.name != self._schedule.environment:
            raise ValueError(
                f"the schedule {self._title!r} is for the environment {self._schedule.environment!r}, "
                f"not for {context.environment.name!r}; give one of its own by 'file'"
            )
        number = min(context.stage, len(self._schedule.stages))
        wanted = self._schedule.stages[number - 1]
        changes = [set_knob(context, path, value) for path, value in wanted.items()]
        return proposal(context, f"stage {number} of {self._title}", part_of_the_way(context, changes))


def shipped() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def read_schedule(name: str) -> Scheduled:
    """A shipped schedule by name, or a file. Raises ValueError in one line."""
    path = SHIPPED / f"{name}.yaml" if name in shipped() else Path(name)
    try:
        data = read_yaml(path)
        schedule = Schedule.model_validate(data)
    except DocumentError as error:
        raise ValueError(f"designer schedule: {error}; shipped are {', '.join(shipped())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"designer schedule: {path}: {where}: {first['msg']}, got {first['input']!r}") from error
    for number, stage in enumerate(schedule.stages, start=1):
        if len(stage) > MOST_CHANGES:
            raise ValueError(
                f"designer schedule: {path}: stage {number} sets {len(stage)} knobs, a proposal holds {MOST_CHANGES}"
            )
    return Scheduled(path.stem, schedule)
