"""Policies with a planted weakness: what they get wrong, and why, is known beforehand.

A weak policy solves a task with a chance of its own for each cell; where it does not, it answers as its weakness has
it, now and then as another one has it. Its answers are real answers to real tasks and are graded by the environment. A
weak answer that happens to be valid, or to fail by something else, is none of the weakness and the task is solved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envsim.api import Environment, Instance, Verdict
from trainer.evaluate import Rollout

CELL = re.compile(r"\([^)]*\)")
"""A cell in a compact answer."""
TRIES = 6
"""Seeds that a demonstrator who overlooks things is tried with."""
NOISE = 0.1
"""Share of the failures that come of another weakness."""


@dataclass(frozen=True)
class Weakness:
    """One way to fail: a name, the outcomes by which it shows, and answers that may show it."""

    name: str
    outcomes: tuple[str, ...]
    answers: Callable[[Environment, Any], Iterable[str]]
    knob: str | None = None
    """The knob of a cell that practises it; None where more data is all that helps."""


def _careless(environment: Environment, instance: Any) -> Iterator[str]:
    for seed in range(TRIES):
        yield environment.demonstration(instance, "compact", seed, careless=1.0)


def _each_alone(environment: Environment, instance: Any) -> Iterator[str]:
    yield environment.null_answers(instance, "compact", 0)["each_alone"]
    yield from _careless(environment, instance)


def _cut_short(environment: Environment, instance: Any) -> list[str]:
    """The first half of a plan's steps."""
    cells = CELL.findall(environment.reference_answer(instance, "compact"))
    agents = max(1, environment.agents(instance))
    steps = len(cells) // agents
    return ["".join(cells[: agents * max(1, steps // 2)])]


def _second_rests(environment: Environment, instance: Any) -> list[str]:
    """The plan of the first agent; all others stay where they start."""
    cells = CELL.findall(environment.reference_answer(instance, "compact"))
    agents = max(1, environment.agents(instance))
    return ["".join(cell if place % agents == 0 else cells[place % agents] for place, cell in enumerate(cells))]


def _says_nothing(environment: Environment, instance: Any) -> list[str]:
    return [environment.null_answers(instance, "compact", 0)["empty"]]


WEAKNESSES = (
    Weakness("never waits", ("vertex_conflict", "edge_conflict"), _each_alone, "wait_ratio"),
    Weakness("walks into holes", ("hole",), _careless, "hole_ratio"),
    Weakness("stops early", ("goal_not_reached",), _cut_short),
    Weakness("ignores the second agent", ("goal_not_reached",), _second_rests),
    Weakness("says nothing", ("parse_error",), _says_nothing),
)


@dataclass(frozen=True)
class Answers:
    """What can be answered to one task: a right answer, and a wrong one for each weakness that it lets show."""

    instance: Any
    right: tuple[str, Verdict]
    wrong: Mapping[str, tuple[str, Verdict]]


def answers(environment: Environment, instance: Instance) -> Answers:
    right = environment.reference_answer(instance, "compact")
    wrong = {}
    for weakness in WEAKNESSES:
        for text in weakness.answers(environment, instance):
            verdict = environment.score(instance, text)
            if verdict.outcome in weakness.outcomes:
                wrong[weakness.name] = (text, verdict)
                break
    return Answers(instance, (right, environment.score(instance, right)), wrong)


@dataclass(frozen=True)
class WeakPolicy:
    """``skill`` is the chance by cell that a task is solved outright."""

    weakness: Weakness
    skill: Mapping[str, float]

    def rollout(self, environment: Environment, known: Answers, rng: np.random.Generator, sample: int = 0) -> Rollout:
        cell = environment.cell(known.instance)
        name = self.weakness.name
        if rng.random() < NOISE:
            name = WEAKNESSES[int(rng.integers(len(WEAKNESSES)))].name
        failed = rng.random() >= self.skill[cell] and name in known.wrong
        text, verdict = known.wrong[name] if failed else known.right
        return Rollout(
            id=known.instance.id,
            cell=cell,
            sample=sample,
            answer=text,
            tokens=len(CELL.findall(text)) + 1,
            **verdict.model_dump(include={"outcome", "valid", "optimal", "regret"}),
            fault=verdict.fault,
        )


def draw_policy(environment: Environment, rng: np.random.Generator) -> WeakPolicy:
    """A weakness, and a skill that falls with difficulty: on every size, or on small ones alone."""
    cells = environment.cells()
    weakness = WEAKNESSES[int(rng.integers(len(WEAKNESSES)))]
    ranks = np.arange(len(cells))
    if rng.random() < 0.5:
        skill = np.where(ranks < rng.integers(1, len(cells)), rng.uniform(0.4, 0.95), 0.0)
    else:
        skill = rng.uniform(0.5, 1.0) / (1 + np.exp(rng.uniform(0.5, 1.5) * (ranks - rng.uniform(0, len(cells)))))
    return WeakPolicy(weakness, dict(zip(cells, map(float, skill), strict=True)))
