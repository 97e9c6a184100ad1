"""``Lake``: multi-agent path finding on a frozen lake behind the Environment protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from envsim.lake import knobs, measure, sets, text
from envsim.lake.chance import stream
from envsim.lake.config import SIZES, EnvConfig, cell_name
from envsim.lake.film import film
from envsim.lake.generate import generate
from envsim.lake.grid import Board, Cell
from envsim.lake.instance import LakeInstance, split_of_hash
from envsim.lake.measure import certificate_of, mean
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
        processes: int = 1,
    ) -> Generated:
        if split not in SPLITS:
            raise EnvsimError(f"unknown split {split!r}; {configuration.nearest(split, list(SPLITS))}")
        instances, tallies = generate(config, n, seed, split, effort=effort, progress=progress, processes=processes)
        measured = self.measure(instances)
        return Generated(
            instances=instances,
            measurement=measured.model_copy(
                update={
                    "draws": {cell: sum(t.draws[split] for t in parts) for cell, parts in tallies.items()},
                    "solvable_share": {
                        cell: mean([tally.solvable_share() for tally in parts]) for cell, parts in tallies.items()
                    },
                }
            ),
        )

    def measure(self, instances: Sequence[LakeInstance]) -> Measurement:
        """What the instances are, by cell; the quantities are those of ``envsim.lake.measure``.

        Without generation, draws are the instances themselves.
        """
        if not instances:
            raise EnvsimError("there is nothing to measure; expected at least one instance")
        by_cell: dict[str, list[LakeInstance]] = {}
        for instance in instances:
            by_cell.setdefault(self.cell(instance), []).append(instance)
        by_cell = dict(sorted(by_cell.items(), key=lambda item: _shape(item[0])))
        return Measurement(
            n=len(instances),
            share={cell: len(group) / len(instances) for cell, group in by_cell.items()},
            quantities=measure.quantities(by_cell),
            difficulty=mean([self.difficulty(instance) for instance in instances]),
            coordination=mean([certificate_of(instance).paths_collide for instance in instances]),
            draws={cell: len(group) for cell, group in by_cell.items()},
            solvable_share={cell: mean([certificate_of(i).solvable for i in group]) for cell, group in by_cell.items()},
        )

    def split_of(self, instance: LakeInstance) -> str:
        return split_of_hash(instance.hash)

    def difficulty(self, instance: LakeInstance) -> float:
        """A solver-side index in [0, 1]; see ``envsim.lake.measure.difficulty``."""
        return measure.difficulty(instance)

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
        """The verdict on an answer. Raises EnvsimError if it is valid and the instance has no certificate to tell
        whether it is optimal."""
        try:
            plan = text.parse(answer, instance.agents)
        except text.ParseError as error:
            return grade(instance, [], failed(error.outcome))
        verdict = self._verify(instance, plan)
        if verdict.valid:
            certificate_of(instance)
        return verdict

    def replay(self, instance: LakeInstance, answer: str) -> Replay:
        """States are the agents' cells, actions one name an agent (``jump`` for what is no move).

        The step of the first fault is included; the last reward is 1 if the plan is valid, all others are 0. A valid
        plan of an instance without a certificate, which anybody may want to see, is ``valid_suboptimal``.
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


def _shape(cell: str) -> tuple[int, ...]:
    return tuple(map(int, cell.split("x")))


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
