"""``Lake``: multi-agent path finding on a frozen lake behind the Environment protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from envsim.api import (
    SPLITS,
    EnvsimError,
    Fault,
    Generated,
    Instance,
    Knob,
    Measurement,
    Message,
    Progress,
    Replay,
    Style,
    Verdict,
)
from envsim.lake import config as configuration
from envsim.lake import knobs, sets, text
from envsim.lake.config import AGENT_COUNTS, MIXTURES, SIZES, EnvConfig, cell_name
from envsim.lake.film import film
from envsim.lake.generate import generate, stream
from envsim.lake.grid import HOLE, Board, Cell
from envsim.lake.instance import Certificate, LakeInstance, split_of_hash
from envsim.lake.placement import first_way
from envsim.lake.progress import grade
from envsim.lake.reference import demonstrated_plan, reference_plan
from envsim.lake.verifier import OUTCOMES, failed, verify

ACTIONS = {(0, -1): "left", (1, 0): "down", (0, 1): "right", (-1, 0): "up", (0, 0): "stay"}


class Lake:
    """The lake. Every method is a function of its arguments and of the groups of knobs that are open to a designer.

    ``Lake(editing=["topology"])`` lists ``topology.rooms`` and so on as knobs, beside the three of every map size.
    Raises EnvsimError for a group that is not among ``knob_groups``.
    """

    name = "lake"
    knob_groups: tuple[str, ...] = knobs.KNOB_GROUPS
    config_model = EnvConfig
    instance_model: type[Instance] = LakeInstance
    outcomes = OUTCOMES

    def __init__(self, editing: Sequence[str] = ()) -> None:
        self.edited = knobs.check_groups(editing)

    def editing(self, groups: Sequence[str]) -> Lake:
        """The lake whose knobs cover these groups, and no others, beside the three of every map size."""
        return Lake(groups)

    def default_config(self) -> EnvConfig:
        return EnvConfig()

    def cells(self) -> list[str]:
        return [cell_name(size) for size in SIZES]

    def cell(self, instance: LakeInstance) -> str:
        return f"{len(instance.rows)}x{len(instance.rows[0])}"

    def shares(self, config: EnvConfig) -> dict[str, float]:
        return configuration.shares(config)

    def knobs(self, config: EnvConfig) -> dict[str, Knob]:
        return knobs.knobs(config, self.edited)

    def with_values(self, config: EnvConfig, values: Mapping[str, float]) -> EnvConfig:
        return knobs.with_values(config, values, self.edited)

    def generate(
        self,
        config: EnvConfig,
        n: int,
        seed: int,
        *,
        split: str = "training",
        effort: float = 1.0,
        progress: Progress | None = None,
    ) -> Generated:
        if split not in SPLITS:
            raise EnvsimError(f"unknown split {split!r}; {configuration.nearest(split, list(SPLITS))}")
        instances, tallies = generate(config, n, seed, split, effort=effort, progress=progress)
        measured = self.measure(instances)
        return Generated(
            instances=instances,
            measurement=measured.model_copy(
                update={
                    "draws": {cell: sum(t.draws[split] for t in parts) for cell, parts in tallies.items()},
                    "solvable_share": {
                        cell: _mean([tally.solvable_share() for tally in parts]) for cell, parts in tallies.items()
                    },
                }
            ),
        )

    def measure(self, instances: Sequence[LakeInstance]) -> Measurement:
        """What the instances are, by cell. Without generation, draws are the instances themselves.

        Quantities: hole_ratio; wait_ratio (share that needs a wait for the sum of costs); conflict_share (first
        shortest paths collide); coordination_cost and optimal_makespan (means where known); duplicate_share (instances
        that repeat an earlier one up to symmetry).

        Where some instance is other than plain: agents (mean number), agents.3, topology.rooms, placement.far, goals.2
        and so on (share of instances), success_rate and shaping (means), each only if an instance differs in it.
        """
        if not instances:
            raise EnvsimError("there is nothing to measure; expected at least one instance")
        by_cell: dict[str, list[LakeInstance]] = {}
        for instance in instances:
            by_cell.setdefault(self.cell(instance), []).append(instance)
        by_cell = dict(sorted(by_cell.items(), key=lambda item: _shape(item[0])))
        opt_in = _opt_in(instances)
        return Measurement(
            n=len(instances),
            share={cell: len(group) / len(instances) for cell, group in by_cell.items()},
            quantities={
                cell: _quantities(group) | {name: _mean([of(i) for i in group]) for name, of in opt_in.items()}
                for cell, group in by_cell.items()
            },
            difficulty=_mean([self.difficulty(instance) for instance in instances]),
            coordination=_mean([_certificate(instance).paths_collide for instance in instances]),
            draws={cell: len(group) for cell, group in by_cell.items()},
            solvable_share={cell: _mean([_certificate(i).solvable for i in group]) for cell, group in by_cell.items()},
        )

    def split_of(self, instance: LakeInstance) -> str:
        return split_of_hash(instance.hash)

    def difficulty(self, instance: LakeInstance) -> float:
        """0.5 min(1, makespan/24) + 0.2 min(1, holes/50 %) + 0.2 min(1, coordination cost/6) + 0.1 [needs a wait].

        What is unknown for lack of the optimal sum of costs is bounded from below: coordination cost by the makespan's
        excess over the longest distance, the wait by the one for the makespan. An unsolvable instance has 1.
        """
        certificate = _certificate(instance)
        if not certificate.solvable or certificate.makespan is None:
            return 1.0
        excess = certificate.makespan - max(certificate.distances)
        coordination = excess if certificate.coordination_cost is None else certificate.coordination_cost
        waits = certificate.needs_wait_soc
        waits = certificate.needs_wait_makespan if waits is None else waits
        return (
            0.5 * min(1.0, certificate.makespan / 24)
            + 0.2 * min(1.0, _hole_ratio(instance) / 0.5)
            + 0.2 * min(1.0, coordination / 6)
            + 0.1 * bool(waits)
        )

    def frozen_set(self, name: str, *, progress: Progress | None = None) -> list[Any]:
        return sets.frozen_set(name, progress)

    def prompt(self, instance: LakeInstance, style: Style) -> list[Message]:
        return text.prompt(instance, style)

    def reference_answer(self, instance: LakeInstance, style: Style) -> str:
        return text.render(reference_plan(instance), style)

    def demonstration(self, instance: LakeInstance, style: Style, seed: int, careless: float = 0.0) -> str:
        return text.render(demonstrated_plan(instance, seed, careless), style)

    def null_answers(self, instance: LakeInstance, style: Style, seed: int) -> dict[str, str]:
        """``random_legal`` walks 2 (rows + columns) steps at most; no agent looks at another."""
        return {
            "empty": "",
            "all_stay": text.render([[start] for start in instance.starts], style),
            "random_legal": text.render(_random_walks(instance, seed), style),
            "each_alone": text.render(_alone(instance), style),
        }

    def score(self, instance: LakeInstance, answer: str) -> Verdict:
        try:
            plan = text.parse(answer, instance.agents)
        except text.ParseError as error:
            return grade(instance, [], failed(error.outcome))
        return self._verify(instance, plan)

    def replay(self, instance: LakeInstance, answer: str) -> Replay:
        """States are the agents' cells, actions one name an agent (``jump`` for what is no move).

        The step of the first fault is included; the last reward is 1 if the plan is valid, all others are 0.
        """
        try:
            plan = text.parse(answer, instance.agents)
        except text.ParseError as error:
            verdict = grade(instance, [], failed(error.outcome))
            return Replay(states=[_json(instance.starts)], actions=[], rewards=[], verdict=verdict)
        verdict = self._verify(instance, plan)
        steps = list(zip(*text.padded(plan), strict=True))
        last = verdict.cost if verdict.valid else (verdict.fault or Fault()).step
        if verdict.outcome == "wrong_start":
            steps, last = [tuple(instance.starts)], 0
        steps = steps[: (last or 0) + 1]
        actions = [
            [ACTIONS.get((r - p, c - q), "jump") for (p, q), (r, c) in zip(before, after, strict=True)]
            for before, after in pairwise(steps)
        ]
        rewards = [0.0] * len(actions)
        if rewards and verdict.valid:
            rewards[-1] = 1.0
        return Replay(states=[_json(step) for step in steps], actions=actions, rewards=rewards, verdict=verdict)

    def agents(self, instance: LakeInstance) -> int:
        return instance.agents

    def film(self, instance: LakeInstance, answer: str) -> str:
        return film(instance, self.replay(instance, answer))

    def _verify(self, instance: LakeInstance, plan: text.Plan) -> Verdict:
        certificate = instance.certificate
        optimum = None if certificate is None else certificate.makespan
        verdict = verify(instance.rows, instance.starts, instance.goals, plan, optimum, via=instance.via)
        return grade(instance, plan, verdict)


def _json(cells: Sequence[Cell]) -> list[list[int]]:
    return [list(cell) for cell in cells]


def _certificate(instance: LakeInstance) -> Certificate:
    if instance.certificate is None:
        raise EnvsimError(f"instance {instance.id} has no certificate; certify it first (envsim solve --certified)")
    return instance.certificate


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _shape(cell: str) -> tuple[int, ...]:
    return tuple(map(int, cell.split("x")))


def _hole_ratio(instance: LakeInstance) -> float:
    return sum(row.count(HOLE) for row in instance.rows) / (len(instance.rows) * len(instance.rows[0]))


def _quantities(group: Sequence[LakeInstance]) -> dict[str, float]:
    certificates = [_certificate(instance) for instance in group]
    return {
        "hole_ratio": _mean([_hole_ratio(instance) for instance in group]),
        "wait_ratio": _mean([bool(c.needs_wait_soc) for c in certificates if c.needs_wait_soc is not None]),
        "conflict_share": _mean([c.paths_collide for c in certificates]),
        "coordination_cost": _mean([c.coordination_cost for c in certificates if c.coordination_cost is not None]),
        "optimal_makespan": _mean([c.makespan for c in certificates if c.makespan is not None]),
        "duplicate_share": 1 - len({instance.hash for instance in group}) / len(group),
    }


Quantity = Callable[[LakeInstance], float]


def _opt_in(instances: Sequence[LakeInstance]) -> dict[str, Quantity]:
    """What to measure beyond a plain lake: only what some instance has."""
    found: dict[str, Quantity] = {}
    if any(i.agents != AGENT_COUNTS[0] for i in instances):
        found["agents"] = lambda i: i.agents
    for name, values in MIXTURES.items():
        present = {_part(i, name) for i in instances}
        found |= {f"{name}.{value}": _is_part(name, value) for value in values[1:] if value in present}
    if any(i.success_rate != 1 for i in instances):
        found["success_rate"] = lambda i: i.success_rate
    if any(i.shaping for i in instances):
        found["shaping"] = lambda i: i.shaping
    return found


def _part(instance: LakeInstance, mixture: str) -> int | str:
    """Which part of a mixture an instance belongs to."""
    if mixture == "goals":
        return 1 if instance.via is None else 2
    part: int | str = getattr(instance, mixture)
    return part


def _is_part(mixture: str, value: int | str) -> Quantity:
    return lambda instance: _part(instance, mixture) == value


def _alone(instance: LakeInstance) -> list[list[Cell]]:
    board = Board.of(instance.rows)
    columns = board.columns
    plan = []
    for agent, start in enumerate(instance.starts):
        stops = [start, *([] if instance.via is None else [instance.via[agent]]), instance.goals[agent]]
        way = first_way(board, *(r * columns + c for r, c in stops))
        plan.append([start] if way is None else [divmod(v, columns) for v in way])
    return plan


def _random_walks(instance: LakeInstance, seed: int) -> list[list[Cell]]:
    board = Board.of(instance.rows)
    columns = board.columns
    rng = stream(seed, "random_legal", instance.id)
    cells = [r * columns + c for r, c in instance.starts]
    goals = [r * columns + c for r, c in instance.goals]
    steps = [list(cells)]
    while cells != goals and len(steps) <= 2 * (len(instance.rows) + columns):
        cells = [(*board.neighbours[v], v)[int(rng.random() * (len(board.neighbours[v]) + 1))] for v in cells]
        steps.append(cells)
    return [[divmod(v, columns) for v in path] for path in zip(*steps, strict=True)]
