"""A curriculum written by hand: a YAML file with the knobs of each stage, followed whatever the evidence says.

Two files are shipped for the lake: from easy to hard, in which easy tasks fade and never vanish (E2H, arXiv
2506.06632), and its reverse, a negative control. With ``repeat_last`` a stage beyond the file's last repeats it. A
stage that is sent back goes half of the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from agents.changes import apply_changes
from agents.designers.base import DesignContext, Designer, part_of_the_way, proposal, set_knob
from agents.schemas import MOST_CHANGES, Change, Frozen, Proposal
from envsim.api import Environment, EnvsimError, Knob
from envsim.documents import DocumentError, read_yaml

SHIPPED = Path(__file__).parent / "schedules"


class Schedule(Frozen):
    """The file. ``stages`` holds a mapping of knob paths to values for every designed stage, the first for stage 1."""

    schema_version: Literal[1] = 1
    environment: str
    stages: list[dict[str, float]] = Field(min_length=1)
    repeat_last: bool = False
    """Whether stages beyond the last one repeat it; otherwise a run may have no more stages than the file."""


class Scheduled(Designer):
    name = "schedule"

    def __init__(self, path: Path, schedule: Schedule) -> None:
        self._path, self._title = path, path.stem
        self._schedule = schedule

    def check(self, environment: Environment, config: Any, stages: int) -> None:
        where, schedule = f"designer schedule: {self._path}", self._schedule
        if environment.name != schedule.environment:
            raise ValueError(
                f"{where} is for the environment {schedule.environment!r}, not for {environment.name!r}; "
                "give one of its own by 'file'"
            )
        if len(schedule.stages) < stages and not schedule.repeat_last:
            raise ValueError(
                f"{where} has entries for {len(schedule.stages)} stages, and the run may have {stages}; "
                "write more, or 'repeat_last: true' beside 'stages'"
            )
        for number, wanted in enumerate(schedule.stages, start=1):
            knobs = environment.knobs(config)
            if faults := [fault for path, value in wanted.items() if (fault := _fault(knobs, path, value))]:
                raise ValueError(f"{where}: stage {number}: {'; '.join(faults)}")
            try:
                changes = [Change(path=path, op="set", value=value) for path, value in wanted.items()]
                config = apply_changes(environment, config, changes)
            except EnvsimError as error:
                raise ValueError(f"{where}: stage {number}: {error}") from error

    def content(self) -> Any:
        return self._schedule.model_dump(mode="json")

    def propose(self, context: DesignContext) -> Proposal:
        number = min(context.stage, len(self._schedule.stages))
        wanted = self._schedule.stages[number - 1]
        changes = [set_knob(context, path, value) for path, value in wanted.items()]
        return proposal(context, f"stage {number} of {self._title}", part_of_the_way(context, changes))


def _fault(knobs: Mapping[str, Knob], path: str, value: float) -> str | None:
    """What is wrong with an entry of a stage."""
    knob = knobs.get(path)
    if knob is None:
        near = get_close_matches(path, knobs, n=1)
        return f"unknown knob {path!r}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(knobs)}")
    return None if knob.low <= value <= knob.high else f"{path} = {value:g}, expected {knob.low:g}..{knob.high:g}"


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
    return Scheduled(path, schedule)
