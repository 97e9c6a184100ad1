"""A second environment, tiny and complete: an answer is valid if it is non-empty and of even length.

It shares no cell and no quantity with the lake: what runs on it knows nothing of the lake. Even an untrained model is
right about half the time, so that GRPO has a signal from the first step. It keeps all that tests/envsim asks of any
environment. Tests and worker processes import it as ``parity:Parity``.
"""
# ruff: noqa: ARG002  the protocol's arguments

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pydantic import BaseModel, Field

from envsim.api import (
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
    YieldError,
)

CELLS = ("short", "long")
FILMED = 40
SIZES = {"anchor": 24, "validation": 24, "test": 24, "benchmark": 12}


class Cell(Frozen):
    data_ratio: float = Field(0.5, ge=0, le=1)
    noise_ratio: float = Field(0.2, ge=0, le=1)


class ParityConfig(Frozen):
    short: Cell = Cell()
    long: Cell = Cell()


class Task(Instance):
    number: int
    where: str


class Parity:
    name = "parity"
    config_model: type[BaseModel] = ParityConfig
    instance_model: type[Instance] = Task
    outcomes = ("empty", "odd", "valid_suboptimal", "optimal")
    knob_groups: tuple[str, ...] = ()

    def default_config(self) -> ParityConfig:
        return ParityConfig()

    def cells(self) -> list[str]:
        return list(CELLS)

    def cell(self, instance: Task) -> str:
        return instance.where

    def shares(self, config: ParityConfig) -> dict[str, float]:
        weights = {cell: getattr(config, cell).data_ratio for cell in CELLS}
        return {cell: weight / sum(weights.values()) for cell, weight in weights.items()}

    def editing(self, groups: Sequence[str]) -> Parity:
        if groups:
            raise EnvsimError(f"unknown group {groups[0]!r}; the environment 'parity' has no groups of knobs")
        return self

    def knobs(self, config: ParityConfig) -> dict[str, Knob]:
        knobs = {}
        for cell in CELLS:
            for name in ("data_ratio", "noise_ratio"):
                value = getattr(getattr(config, cell), name)
                up, down = min(1.0, value + 0.1), max(0.02, value - 0.1)
                knobs[f"{cell}.{name}"] = Knob(value=value, low=0.0, high=1.0, up=up, down=down)
        return knobs

    def with_values(self, config: ParityConfig, values: Mapping[str, float]) -> ParityConfig:
        data, knobs = config.model_dump(), self.knobs(config)
        for path, value in values.items():
            if path not in knobs:
                raise EnvsimError(f"unknown knob {path!r}; known are {', '.join(knobs)}")
            knob = knobs[path]
            if not knob.low <= value <= knob.high:
                raise EnvsimError(f"{path} = {value}, expected {knob.low}..{knob.high}")
            cell, _, name = path.partition(".")
            data[cell][name] = value
        return ParityConfig.model_validate(data)

    def generate(
        self,
        config: ParityConfig,
        n: int,
        seed: int,
        *,
        split: str = "training",
        effort: float = 1.0,
        progress: Progress | None = None,
    ) -> Generated:
        for cell in CELLS:
            if getattr(config, cell).noise_ratio > 0.9:
                raise YieldError(f"{cell}: 0 % of the draws are that noisy", cell=cell, rate=0.0)
        rng = random.Random(f"{config.model_dump_json()}{seed}{split}")
        weights = list(self.shares(config).values())
        tasks = [self.task(rng.randrange(10**6), rng.choices(CELLS, weights)[0], split) for _ in range(n)]
        if progress is not None:
            progress(n, n)
        return Generated(instances=tasks, measurement=self.measure(tasks))

    def task(self, number: int, where: str, split: str) -> Task:
        digest = hashlib.sha256(f"{number}{where}{split}".encode()).hexdigest()
        return Task(id=f"{split}-{where}-{number}", hash=digest, split=split, number=number, where=where)

    def measure(self, instances: Sequence[Task]) -> Measurement:
        n = len(instances)
        share = {cell: sum(task.where == cell for task in instances) / n for cell in CELLS}
        return Measurement(
            n=n,
            share=share,
            quantities={cell: {"noise_ratio": 0.5} for cell in CELLS},
            difficulty=0.2 + 0.2 * share["long"],
            coordination=0.5,
            draws=dict.fromkeys(CELLS, n),
            solvable_share=dict.fromkeys(CELLS, 1.0),
        )

    def split_of(self, instance: Task) -> str:
        return instance.split

    def difficulty(self, instance: Task) -> float:
        return 0.4 if instance.where == "long" else 0.2

    def frozen_set(self, name: str, *, progress: Progress | None = None) -> list[Any]:
        return [self.task(number, CELLS[number % 2], name) for number in range(SIZES[name])]

    def prompt(self, instance: Task, style: Style) -> list[Message]:
        return [{"role": "user", "content": f"say {instance.where} {instance.number} {style}"}]

    def demonstration(self, instance: Task, style: Style, seed: int, careless: float = 0.0) -> str:
        return self.reference_answer(instance, style)

    def reference_answer(self, instance: Task, style: Style) -> str:
        return "ok"

    def null_answers(self, instance: Task, style: Style, seed: int) -> dict[str, str]:
        drawn = "a" * random.Random(f"{seed}{instance.id}").randint(1, 8)
        return {
            "empty": "",
            "all_stay": "a",
            "random_legal": drawn,
            "each_alone": self.reference_answer(instance, style),
        }

    def score(self, instance: Task, answer: str) -> Verdict:
        if not answer:
            return Verdict(outcome="empty", valid=False, optimal=False, regret=1.0, fault=Fault(step=0))
        if len(answer) % 2:
            return Verdict(outcome="odd", valid=False, optimal=False, regret=1.0, fault=Fault(step=len(answer)))
        best = len(answer) == 2
        return Verdict(
            outcome="optimal" if best else "valid_suboptimal", valid=True, optimal=best, regret=float(not best)
        )

    def replay(self, instance: Task, answer: str) -> Replay:
        verdict = self.score(instance, answer)
        rewards = [0.0] * (len(answer) - 1) + [float(verdict.valid)] if answer else []
        return Replay(states=["", *answer], actions=list(answer), rewards=rewards, verdict=verdict)

    def agents(self, instance: Task) -> int:
        return 0

    def film(self, instance: Task, answer: str) -> str:
        """The answer's first letters, each with its place, one pair a row: an odd one stands alone in red."""
        shown = answer[:FILMED]
        marks = []
        for place, letter in enumerate(shown):
            x, y = 20 + 40 * (place % 2), 20 + 24 * (place // 2)
            alone = place == len(answer) - 1 and place % 2 == 0
            colour = "#c4001a" if alone else "#00704f"
            seen = f'<set attributeName="opacity" to="1" begin="{place * 0.3:.1f}s"/>'
            text = escape(letter if letter.isprintable() else "?")
            marks.append(f'<text x="{x}" y="{y}" fill="{colour}" opacity=".2">{text}{seen}</text>')
        size = f'width="80" height="{12 + 24 * max(1, (len(shown) + 1) // 2)}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(marks)}</svg>'
