"""Rows of files as instances: bare layouts that people write, and instances that carry what was proved of them.

Nothing that a row says of itself is believed before it was held against its layout: id, hash and split exactly, and the
certificate as far as that takes no search. Keys that are not known are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from envsim.api import EnvsimError
from envsim.lake import verifier
from envsim.lake.grid import Board, collide
from envsim.lake.instance import Certificate, Labels, LakeInstance, make_instance
from envsim.lake.placement import first_way
from envsim.lake.solver import MOVES, path_of
from envsim.lake.verifier import costs, verify

Cell = tuple[StrictInt, StrictInt]
Cells = Annotated[list[Cell], Field(description="A cell [row, column] for each agent")]
Model = TypeVar("Model", bound=BaseModel)


class Layout(BaseModel):
    """A question: a map, and where each agent starts and ends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rows: list[StrictStr] = Field(description="The map: '.' free, '@' hole; all rows of one length")
    starts: Cells
    goals: Cells
    via: Cells | None = Field(None, description="Each agent's first goal, to be visited before its goal")
    name: StrictStr | None = Field(None, description="Repeated in the answer; without it the id, or file and line")
    id: StrictStr | None = None
    variant: Literal["disappear_at_goal"] | None = Field(
        None, description="Agents leave the map at their goals instead of staying there; solve only"
    )


def validated(model: type[Model], data: Mapping[str, Any], where: str) -> Model:
    """The row as data. Raises EnvsimError: where, which field, what was expected, what it is."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise EnvsimError(_problem(error, where)) from error


def is_certified(data: Mapping[str, Any]) -> bool:
    """Whether a row makes claims of its own, and is no bare layout."""
    return "hash" in data or data.get("certificate") is not None


def instance_of(data: Mapping[str, Any], where: str) -> LakeInstance:
    """The instance of a row. A row without ``hash`` is a layout that somebody wrote: its ``id`` is a name.

    Raises EnvsimError that begins with ``where`` if the row is no instance, or if its id, hash, split or certificate
    does not fit its layout.
    """
    instance = _whole(data, where) if "hash" in data else _bare(data, where)
    try:
        instance.model_dump_json()
    except ValueError as error:
        raise EnvsimError(f"{where}: a string holds half a character: {error}") from error
    if instance.certificate is not None:
        check_certificate(instance, instance.certificate, where)
    return instance


def _whole(data: Mapping[str, Any], where: str) -> LakeInstance:
    instance = validated(LakeInstance, {key: data[key] for key in LakeInstance.model_fields if key in data}, where)
    expected = make_instance(instance.rows, instance.starts, instance.goals, via=instance.via)
    for field in ("id", "hash", "split"):
        mine, right = getattr(instance, field), getattr(expected, field)
        if mine != right:
            raise EnvsimError(f"{where}: {field} is {shown(mine)}, but that of its layout is {right!r}")
    return instance


def _bare(data: Mapping[str, Any], where: str) -> LakeInstance:
    layout = validated(Layout, data, where)
    if layout.variant is not None:
        raise EnvsimError(f"{where}: variant is {layout.variant!r}; only 'solve' knows it, without --certified")
    labels: Any = {key: data[key] for key in Labels.__annotations__ if key in data}
    labels["name"] = layout.name or layout.id
    claimed = data.get("certificate")
    try:
        certificate = None if claimed is None else Certificate.model_validate(claimed)
    except ValidationError as error:
        raise EnvsimError(_problem(error, f"{where}: certificate")) from error
    try:
        instance = make_instance(layout.rows, layout.starts, layout.goals, certificate, via=layout.via, **labels)
        return instance.model_copy(update={"name": None}) if instance.name == instance.id else instance
    except ValidationError as error:
        raise EnvsimError(_problem(error, where)) from error
    except EnvsimError as error:
        raise EnvsimError(f"{where}: {error}") from error


def check_certificate(instance: LakeInstance, certificate: Certificate, where: str) -> None:
    """Raise EnvsimError unless all that is claimed fits the layout, as far as that can be seen without a search.

    The distances must be right, the plan valid and of the certified costs, and no optimum below what the distances
    allow or above what the plan takes.
    """
    found = len(certificate.distances)
    if found != instance.agents:
        raise EnvsimError(f"{where}: the certificate has {found} distances for {instance.agents} agents")
    plan = _plan(instance, certificate, where)
    plan_costs = costs(instance.goals, plan) if plan else []
    has_wait = bool(plan) and verifier.has_wait(instance.goals, plan)
    distances, collides = _alone(instance)
    own, most = (-1, -1) if -1 in distances else (sum(distances), max(distances))
    soc, makespan = certificate.sum_of_costs, certificate.makespan
    spent = sum(plan_costs)
    both = certificate.sum_of_costs_at_makespan
    claims = (
        (certificate.solvable is bool(plan_costs), f"solvable is {certificate.solvable}", "solvable iff with a plan"),
        (bool(plan_costs) or makespan is None, f"makespan is {makespan}", "none without a plan"),
        *_waits(certificate, has_wait=has_wait),
        (certificate.distances == distances, f"distances are {certificate.distances}", f"{distances}"),
        (certificate.paths_collide is collides, f"paths_collide is {certificate.paths_collide}", f"{collides}"),
        (not plan_costs or _between(most, makespan, makespan), f"makespan is {makespan}", f"at least {most}"),
        (not plan_costs or collides or makespan == most, f"makespan is {makespan}", f"{most}: no paths collide"),
        (_between(own, soc, spent), f"sum_of_costs is {soc}", f"from {own} to {spent}"),
        (soc is None or collides or soc == own, f"sum_of_costs is {soc}", f"{own}: no paths collide"),
        (both in (None, spent), f"sum_of_costs_at_makespan is {both}", f"{spent}, that of the plan"),
        (
            certificate.coordination_cost == (None if soc is None else soc - own),
            f"coordination_cost is {certificate.coordination_cost}",
            "sum_of_costs less the distances",
        ),
    )
    for holds, said, expected in claims:
        if not holds:
            raise EnvsimError(f"{where}: the certificate's {said}; expected {expected}")


def _between(low: int, value: int | None, high: int | None) -> bool:
    return value is None or high is None or low <= value <= high


Claim = tuple[bool, str, str]
"""Whether it holds, what it says, and what it should."""


def _waits(certificate: Certificate, *, has_wait: bool) -> Iterator[Claim]:
    """What the one plan says of waits: where every optimal plan has one, so has an optimal plan."""
    optimal = {"makespan": certificate.plan is not None}
    soc = certificate.sum_of_costs
    optimal["soc"] = soc is not None and soc == certificate.sum_of_costs_at_makespan
    waits = certificate.reference_has_wait
    yield waits in (None, has_wait), f"reference_has_wait is {waits}", f"{has_wait}, as in the plan"
    for objective, needs in (("makespan", certificate.needs_wait_makespan), ("soc", certificate.needs_wait_soc)):
        said = f"needs_wait_{objective} is {needs}"
        yield needs is None or certificate.solvable, said, "none without a plan"
        yield not (needs and optimal[objective]) or has_wait, said, "False: the optimal plan that it has does not wait"


def _plan(instance: LakeInstance, certificate: Certificate, where: str) -> list[list[tuple[int, int]]]:
    """The certificate's plan, which is valid; empty where there is none."""
    if certificate.plan is None:
        return []
    if len(certificate.plan) != instance.agents or set("".join(certificate.plan)) - set(MOVES.values()):
        raise EnvsimError(f"{where}: the certificate's plan is no string of L, D, R, U, S for each agent")
    plan = [path_of(start, moves) for start, moves in zip(instance.starts, certificate.plan, strict=True)]
    verdict = verify(instance.rows, instance.starts, instance.goals, plan, via=instance.via)
    if not verdict.valid or verdict.cost != certificate.makespan:
        said = f"makespan {verdict.cost}" if verdict.valid else verdict.outcome
        raise EnvsimError(f"{where}: the certificate's plan is {said}, not of makespan {certificate.makespan}")
    return plan


def _alone(instance: LakeInstance) -> tuple[list[int], bool]:
    """Each agent's own distance, -1 where there is no way, and whether their first shortest ways collide."""
    board = Board.of(instance.rows)
    distances, ways = [], []
    for agent, (start, goal) in enumerate(zip(instance.starts, instance.goals, strict=True)):
        stops = [start, *([] if instance.via is None else [instance.via[agent]]), goal]
        way = first_way(board, *(r * board.columns + c for r, c in stops))
        distances.append(-1 if way is None else len(way) - 1)
        ways.append(way or [])
    return distances, -1 not in distances and collide(ways)


def _problem(error: ValidationError, where: str) -> str:
    """The first thing that is wrong with a row, in one line."""
    problem = error.errors()[0]
    field = "".join(f"{part}: " for part in [".".join(map(str, problem["loc"]))] if part)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] in ("tuple_type", "too_long") or (problem["type"] == "missing" and field[-3:-2].isdigit()):
        message = "expected a cell [row, column]"
    given = problem["input"]
    told = "" if problem["type"] == "missing" or isinstance(given, dict) else f" (got {shown(given)})"
    return f"{where}: {field}{message}{told}"


def shown(value: Any) -> str:
    """A value as an error repeats it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
