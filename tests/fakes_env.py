"""A second, tiny environment: walk along an endless corridor from one number to another, one step at a time.

It exists to show that nothing outside envsim knows the lake. Cells are distances; knobs are each distance's share of
the data and the share of walks that go down. An answer is the numbers passed through, ``5 6 7`` or
``{"path": [5, 6, 7]}``.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from pydantic import Field

from envsim.api import (
    SPLITS,
    EnvsimError,
    Fault,
    Frozen,
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

DISTANCES = {"near": (1, 2), "middle": (3, 4), "far": (5, 6)}
LENGTH = 10_000
SET_SIZES = {"anchor": 24, "validation": 24, "test": 24, "benchmark": 12}


class CellConfig(Frozen):
    data_ratio: float = Field(ge=0, le=1)
    down_ratio: float = Field(ge=0, le=1)


class CorridorConfig(Frozen):
    near: CellConfig = CellConfig(data_ratio=0.4, down_ratio=0.5)
    middle: CellConfig = CellConfig(data_ratio=0.3, down_ratio=0.5)
    far: CellConfig = CellConfig(data_ratio=0.3, down_ratio=0.5)


class Walk(Instance):
    start: int
    goal: int

    def distance(self) -> int:
        return abs(self.goal - self.start)


def make_walk(start: int, goal: int) -> Walk:
    digest = hashlib.sha256(f"{start} {goal}".encode()).hexdigest()
    split = SPLITS[min(int(digest, 16) % 16, 5)]
    return Walk(id=f"walk-{digest[:12]}", hash=digest, split=split, start=start, goal=goal)


class Corridor:
    name = "fakes_env:Corridor"
    config_model = CorridorConfig
    instance_model: type[Instance] = Walk
    outcomes = (
        "parse_error",
        "wrong_start",
        "illegal_move",
        "goal_not_reached",
        "valid_suboptimal",
        "optimal",
    )

    def default_config(self) -> CorridorConfig:
        return CorridorConfig()

    def cells(self) -> list[str]:
        return list(DISTANCES)

    def cell(self, instance: Walk) -> str:
        return next(cell for cell, (low, high) in DISTANCES.items() if low <= instance.distance() <= high)

    def shares(self, config: CorridorConfig) -> dict[str, float]:
        weights = {cell: getattr(config, cell).data_ratio for cell in DISTANCES}
        return {cell: weight / sum(weights.values()) for cell, weight in weights.items()}

    def knobs(self, config: CorridorConfig) -> dict[str, Knob]:
        found = {}
        for cell in DISTANCES:
            for field, value in getattr(config, cell).model_dump().items():
                up, down = min(1.0, value + 0.1), max(0.02, value - 0.1)
                found[f"{cell}.{field}"] = Knob(value=value, low=0.0, high=1.0, up=up, down=down)
        return found

    def with_values(self, config: CorridorConfig, values: Mapping[str, float]) -> CorridorConfig:
        data = config.model_dump()
        knobs = self.knobs(config)
        for path, value in values.items():
            if path not in knobs:
                raise EnvsimError(f"unknown knob {path!r}; known are {', '.join(knobs)}")
            if not 0 <= value <= 1:
                raise EnvsimError(f"{path} = {value} is out of bounds; expected 0 to 1")
            cell, field = path.split(".")
            data[cell][field] = value
        total = sum(data[cell]["data_ratio"] for cell in DISTANCES)
        if total <= 0:
            raise EnvsimError("all data_ratio are 0; expected at least one above 0")
        for cell in DISTANCES:
            data[cell]["data_ratio"] = round(data[cell]["data_ratio"] / total, 6)
        return CorridorConfig.model_validate(data)

    def generate(
        self,
        config: CorridorConfig,
        n: int,
        seed: int,
        *,
        split: str = "training",
        effort: float = 1.0,  # noqa: ARG002  every draw is an instance
        progress: Progress | None = None,
    ) -> Generated:
        rng = random.Random(f"{seed} {split}")
        shares = self.shares(config)
        walks: list[Walk] = []
        draws = dict.fromkeys(DISTANCES, 0)
        while len(walks) < n:
            cell = rng.choices(list(shares), list(shares.values()))[0]
            sign = -1 if rng.random() < getattr(config, cell).down_ratio else 1
            start = rng.randrange(LENGTH)
            walk = make_walk(start, start + sign * rng.randint(*DISTANCES[cell]))
            if walk.split == split:
                draws[cell] += 1
                walks.append(walk)
                if progress is not None:
                    progress(len(walks), n)
        return Generated(instances=walks, measurement=self.measure(walks).model_copy(update={"draws": draws}))

    def measure(self, instances: Sequence[Walk]) -> Measurement:
        groups = {cell: [walk for walk in instances if self.cell(walk) == cell] for cell in DISTANCES}
        groups = {cell: group for cell, group in groups.items() if group}
        return Measurement(
            n=len(instances),
            share={cell: len(group) / len(instances) for cell, group in groups.items()},
            quantities={
                cell: {"down_ratio": sum(walk.goal < walk.start for walk in group) / len(group)}
                for cell, group in groups.items()
            },
            difficulty=sum(map(self.difficulty, instances)) / len(instances),
            coordination=0.0,
            draws={cell: len(group) for cell, group in groups.items()},
            solvable_share=dict.fromkeys(groups, 1.0),
        )

    def split_of(self, instance: Walk) -> str:
        return instance.split

    def difficulty(self, instance: Walk) -> float:
        return instance.distance() / 6

    def frozen_set(self, name: str, *, progress: Progress | None = None) -> list[Any]:
        if name not in SET_SIZES:
            raise EnvsimError(f"unknown set {name!r}; known are {', '.join(SET_SIZES)}")
        return self.generate(CorridorConfig(), SET_SIZES[name], 0, split=name, progress=progress).instances

    def prompt(self, instance: Walk, style: Style) -> list[Message]:
        form = 'JSON {"path": [...]}' if style == "full" else "numbers"
        return [{"role": "user", "content": f"walk from {instance.start} to {instance.goal}\n{form}"}]

    def demonstration(self, instance: Walk, style: Style, seed: int, careless: float = 0.0) -> str:  # noqa: ARG002  one answer is optimal
        return self.reference_answer(instance, style)

    def reference_answer(self, instance: Walk, style: Style) -> str:
        step = 1 if instance.goal > instance.start else -1
        return _render(list(range(instance.start, instance.goal + step, step)), style)

    def null_answers(self, instance: Walk, style: Style, seed: int) -> dict[str, str]:
        rng = random.Random(f"{seed} {instance.id}")
        path = [instance.start]
        for _ in range(6):
            path.append(path[-1] + rng.choice((-1, 1)))
        return {
            "empty": "",
            "all_stay": _render([instance.start], style),
            "random_legal": _render(path, style),
            "each_alone": self.reference_answer(instance, style),
        }

    def score(self, instance: Walk, answer: str) -> Verdict:
        path = _parse(answer)
        if path is None:
            return _failed("parse_error")
        if path[0] != instance.start:
            return _failed("wrong_start", 0, path[0])
        for t in range(1, len(path)):
            if abs(path[t] - path[t - 1]) != 1:
                return _failed("illegal_move", t, path[t])
        if path[-1] != instance.goal:
            return _failed("goal_not_reached", len(path) - 1, path[-1])
        cost, optimum = len(path) - 1, instance.distance()
        return Verdict(
            outcome="optimal" if cost == optimum else "valid_suboptimal",
            valid=True,
            optimal=cost == optimum,
            regret=(cost - optimum) / optimum,
            cost=cost,
        )

    def replay(self, instance: Walk, answer: str) -> Replay:
        verdict = self.score(instance, answer)
        path = _parse(answer) or [instance.start]
        end = len(path) - 1 if verdict.fault is None else verdict.fault.step or 0
        states = path[: end + 1]
        return Replay(
            states=list(states),
            actions=["up" if b > a else "down" for a, b in pairwise(states)],
            rewards=[0.0] * (len(states) - 2) + [float(verdict.valid)] if len(states) > 1 else [],
            verdict=verdict,
        )

    def picture(self, instance: Walk) -> dict[str, Any]:
        low = min(instance.start, instance.goal)
        return {
            "rows": ["." * (instance.distance() + 1)],
            "starts": [[0, instance.start - low]],
            "goals": [[0, instance.goal - low]],
        }


def _render(path: list[int], style: Style) -> str:
    return json.dumps({"path": path}) if style == "full" else " ".join(map(str, path))


def _parse(answer: str) -> list[int] | None:
    try:
        values = json.loads(answer)["path"] if "{" in answer else [int(word) for word in answer.split()]
    except (ValueError, KeyError, TypeError):
        return None
    whole = isinstance(values, list) and values and all(type(value) is int for value in values)
    return values if whole else None


def _failed(outcome: str, step: int | None = None, at: int | None = None) -> Verdict:
    fault = Fault(step=step, agent=0, location=None if at is None else str(at))
    return Verdict(outcome=outcome, valid=False, optimal=False, regret=1.0, fault=fault)
