"""``LakeInstance`` and its certificate; the canonical hash over symmetries and agent order; the split.

Two instances that differ by a rotation, a reflection or the numbering of their agents have the same hash, so they are
in the same split, and splits never share an instance up to symmetry. Via cells are part of the task and of the hash;
what a map was drawn as, and how its answers are paid, are not. A field at its default is left out of the JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from envsim.api import EnvsimError, Frozen, Instance
from envsim.lake.grid import FREE, HOLE, Cell

SPLIT_MODULUS = 16
MAX_SHOWN = 60
"""Longest value that an error repeats."""
_RESERVED = ("anchor", "test", "validation", "probe", "benchmark")


def split_of_hash(digest: str) -> str:
    """anchor, test, validation, probe, benchmark for 0 to 4 of the hash modulo 16; training for the rest."""
    index = int(digest, 16) % SPLIT_MODULUS
    return _RESERVED[index] if index < len(_RESERVED) else "training"


class Certificate(Frozen):
    """What the exact solver proved of an instance. ``None`` = not affordable at the solver's limit.

    ``needs_wait_*``: every plan that is optimal for that objective contains a wait. ``reference_has_wait`` is a
    property of the one plan stored here, by its moves (``L D R U``, ``S`` = stay), which is makespan-optimal and, if
    ``sum_of_costs_at_makespan`` is known, the cheapest of those. ``coordination_cost`` = optimal sum of costs minus
    the sum of the agents' own distances.
    """

    solvable: bool
    distances: list[int] = Field(description="Each agent's own shortest distance")
    makespan: int | None = None
    sum_of_costs: int | None = None
    sum_of_costs_at_makespan: int | None = None
    needs_wait_soc: bool | None = None
    needs_wait_makespan: bool | None = None
    reference_has_wait: bool | None = None
    paths_collide: bool = Field(description="Whether the lexicographically first shortest paths collide")
    coordination_cost: int | None = None
    plan: list[str] | None = None


def _absent(value: object) -> bool:
    return value is None


class LakeInstance(Instance):
    """One task of multi-agent path finding. Cells are (row, column); rows hold ``.`` free and ``@`` hole.

    ``size`` is the longer side: generated lakes are square, any rectangle loads. ``via``, if any, has one cell for each
    agent, to be visited before its goal.
    """

    size: int
    agents: int
    name: str | None = Field(None, description="What its author calls it, if anything", exclude_if=_absent)
    rows: list[str]
    starts: list[Cell]
    goals: list[Cell]
    via: list[Cell] | None = Field(
        None, description="Each agent's first goal, to be visited before its last", exclude_if=_absent
    )
    topology: str = Field("random", description="How the holes were drawn", exclude_if=lambda name: name == "random")
    placement: str = Field(
        "uniform", description="How starts and goals were drawn", exclude_if=lambda name: name == "uniform"
    )
    success_rate: float = Field(
        1.0, ge=0, le=1, description="Chance that a move goes where it was meant to", exclude_if=lambda q: q == 1
    )
    shaping: float = Field(
        0.0, ge=0, le=0.3, description="Weight of progress in the reward", exclude_if=lambda w: w == 0
    )
    certificate: Certificate | None = None

    def label(self) -> str:
        """What people and answers call it: its own name, else its id."""
        return self.name or self.id

    @model_validator(mode="after")
    def _sound(self) -> LakeInstance:
        check_layout(self.rows, self.starts, self.goals, self.via)
        if self.agents != len(self.starts):
            raise ValueError(f"agents is {self.agents} but there are {len(self.starts)} starts")
        if self.size != max(len(self.rows), len(self.rows[0])):
            raise ValueError(f"size is {self.size} but the longer side is {max(len(self.rows), len(self.rows[0]))}")
        return self


def check_layout(
    rows: Sequence[str], starts: Sequence[Cell], goals: Sequence[Cell], via: Sequence[Cell] | None = None
) -> None:
    """Raise EnvsimError unless the map is a rectangle, all cells are free ones of it, and starts and goals distinct."""
    if not rows or not rows[0]:
        raise EnvsimError("the map is empty; expected at least one row of '.' and '@'")
    width = len(rows[0])
    for r, row in enumerate(rows):
        if len(row) != width:
            raise EnvsimError(f"row {r} has {len(row)} cells, expected {width}: the map must be a rectangle")
        if row.strip(FREE + HOLE):
            raise EnvsimError(f"row {r} is {row!r}; expected only '.' (free) and '@' (hole)")
    if not starts or len(starts) != len(goals):
        raise EnvsimError(f"{len(starts)} starts and {len(goals)} goals; expected one of each for every agent")
    if via is not None and len(via) != len(starts):
        raise EnvsimError(
            f"{len(via)} via cells for {len(starts)} agents; expected one for every agent, or none at all"
        )
    for what, cells in (("start", starts), ("goal", goals), ("via cell", via or ())):
        for agent, (r, c) in enumerate(cells):
            if not (0 <= r < len(rows) and 0 <= c < width):
                raise EnvsimError(f"{what} of agent {agent} is ({r},{c}), outside the {len(rows)}x{width} map")
            if rows[r][c] == HOLE:
                raise EnvsimError(f"{what} of agent {agent} is ({r},{c}), a hole; expected a free cell")
        if what != "via cell" and len(set(cells)) < len(cells):
            raise EnvsimError(f"two agents share a {what}: {list(cells)}; expected distinct cells")


def _images(rows: int, columns: int, marks: str) -> list[tuple[str, str]]:
    """The shape and the marks of the 8 images of a map: 4 of the map, then 4 of its transpose; of each it alone, with
    its rows in reverse, with its columns in reverse, and with both."""
    found = []
    turned = "".join([marks[c::columns] for c in range(columns)])
    for high, wide, text in ((rows, columns, marks), (columns, rows, turned)):
        upside_down = "".join([text[v : v + wide] for v in range((high - 1) * wide, -1, -wide)])
        shape = f"{high}x{wide}"
        found += [(shape, text), (shape, upside_down), (shape, upside_down[::-1]), (shape, text[::-1])]
    return found


def _moved(image: int, rows: int, columns: int, ends: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Where cells of a map are in one of its images, counted as in ``_images``, in order."""
    down, along = (1, rows) if image > 3 else (columns, 1)
    first = 0
    # Rows in reverse are columns in reverse of the transpose.
    if image in (1, 3, 6, 7):
        first, down = first + (rows - 1) * down, -down
    if image in (2, 3, 5, 7):
        first, along = first + (columns - 1) * along, -along
    return sorted([tuple([first + v // columns * down + v % columns * along for v in cells]) for cells in ends])


def canonical_hash(rows: int, columns: int, marks: str, ends: Sequence[tuple[int, ...]]) -> str:
    """sha256 of the smallest of the 8 images of a lake with its agents sorted.

    ``marks`` are all rows joined; ``ends`` are (start, goal) or (start, goal, via) of each agent as cell numbers.
    """
    images = _images(rows, columns, marks)
    best = min(images)
    agents = min([_moved(k, rows, columns, ends) for k, image in enumerate(images) if image == best])
    return hashlib.sha256(f"{best[0]} {best[1]} {agents}".encode()).hexdigest()


class Labels(TypedDict, total=False):
    """What an instance says beside its layout."""

    name: str | None
    topology: str
    placement: str
    success_rate: float
    shaping: float


def make_instance(
    rows: Sequence[str],
    starts: Sequence[Cell],
    goals: Sequence[Cell],
    certificate: Certificate | None = None,
    digest: str | None = None,
    *,
    via: Sequence[Cell] | None = None,
    **labels: Unpack[Labels],
) -> LakeInstance:
    """An instance with its hash, split and id. The id depends on the exact layout, the hash only up to symmetry."""
    check_layout(rows, starts, goals, via)
    marks = "".join(rows)
    columns = len(rows[0])
    ends = (starts, goals) if via is None else (starts, goals, via)
    if digest is None:
        numbers = [tuple(r * columns + c for r, c in cells) for cells in zip(*ends, strict=True)]
        digest = canonical_hash(len(rows), columns, marks, numbers)
    exact = hashlib.sha256(f"{columns} {marks} {[tuple(c) for cells in ends for c in cells]}".encode()).hexdigest()
    return LakeInstance(
        id=f"{len(rows)}x{columns}-{len(starts)}-{digest[:10]}-{exact[:6]}",
        hash=digest,
        split=split_of_hash(digest),
        size=max(len(rows), columns),
        agents=len(starts),
        rows=list(rows),
        starts=list(starts),
        goals=list(goals),
        via=None if via is None else list(via),
        **labels,
        certificate=certificate,
    )


def dump_instances(instances: Iterable[LakeInstance]) -> bytes:
    """JSONL: one instance a line, fields in their order."""
    return b"".join(instance.model_dump_json().encode() + b"\n" for instance in instances)


def write_instances(path: Path, instances: Iterable[LakeInstance]) -> None:
    """Instances as JSONL."""
    path.write_bytes(dump_instances(instances))


def read_instances(path: Path) -> Iterator[LakeInstance]:
    """Instances of a JSONL file. Raises EnvsimError naming file and line, also if a hash does not fit its layout."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                instance = LakeInstance.model_validate_json(line)
            except ValidationError as error:
                raise EnvsimError(f"{path}:{number}: not an instance: {_first(error)}") from error
            expected = make_instance(instance.rows, instance.starts, instance.goals, via=instance.via)
            if (instance.hash, instance.split) != (expected.hash, expected.split):
                raise EnvsimError(
                    f"{path}:{number}: instance {instance.id} has hash {instance.hash[:12]} ({instance.split}), its "
                    f"layout has {expected.hash[:12]} ({expected.split}); write the file again from its source"
                )
            yield instance


class _Layout(BaseModel):
    """The keys of a layout that people write, each of its exact type; other keys are for others."""

    model_config = ConfigDict(strict=True, extra="ignore")

    rows: list[str]
    starts: list[Cell]
    goals: list[Cell]
    via: list[Cell] | None = None
    topology: str = "random"
    placement: str = "uniform"
    success_rate: float = 1.0
    shaping: float = 0.0


def layout_from_json(text: str, where: str) -> LakeInstance:
    """An instance from JSON with at least rows, starts and goals; via cells and labels are read where they are given.

    Raises EnvsimError that begins with ``where``.
    """
    try:
        layout = _Layout.model_validate_json(text)
        return make_instance(**dict(layout))
    except (ValidationError, EnvsimError) as error:
        raise EnvsimError(f"{where}: {_first(error)}") from error


def _first(error: ValidationError | EnvsimError) -> str:
    """The first problem in one line: where, what, and the value if it is short."""
    if isinstance(error, EnvsimError):
        return str(error)
    problem: Any = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    value = repr(problem["input"])
    shown = f" (got {value})" if len(value) <= MAX_SHOWN and problem["type"] != "missing" else ""
    return f"{where}: {str(problem['msg']).removeprefix('Value error, ')}{shown}".removeprefix(": ")
