"""Speed of the lake on one core: certified instances and verified plans a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from envsim.api import EnvsimError
from envsim.lake.chance import stream
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.generate import fill
from envsim.lake.reference import reference_plan
from envsim.lake.text import parse
from envsim.lake.verifier import Plan, verify


@dataclass(frozen=True)
class Rate:
    what: str
    per_second: float
    goal: float | None = None


def rate(work: Callable[[int], int], seconds: float) -> float:
    """Things a second of processor time; ``work`` takes a round's number and returns how many things it did."""
    work(0)
    began = time.process_time()
    done = rounds = 0
    while (spent := time.process_time() - began) < seconds:
        rounds += 1
        done += work(rounds)
    return done / spent


def bench(seconds: float = 2.0) -> list[Rate]:
    """The rates that the project promises, and those of more agents for orientation.

    Raises:
        EnvsimError: ``seconds`` is no positive number.
    """
    if not 0 < seconds < math.inf:
        raise EnvsimError(f"the time for each figure is {seconds} s, expected a positive number")
    lake = Lake()
    small = lake.with_values(EnvConfig(), {f"{n}x{n}.data_ratio": 0.0 for n in range(7, 11)})

    def certify(config: EnvConfig, n: int) -> Callable[[int], int]:
        return lambda seed: len(lake.generate(config, n, seed).instances)

    rates = [Rate("certified instances, 2 agents, 3x3-6x6", rate(certify(small, 400), seconds), 1_500)]
    rates.append(Rate("certified instances, 2 agents, 3x3-10x10", rate(certify(EnvConfig(), 400), seconds)))
    for agents, size in ((3, 6), (4, 8), (5, 10)):
        holes = [round(0.2 * size * size)]

        def work(seed: int, agents: int = agents, size: int = size, holes: list[int] = holes) -> int:
            found, _ = fill(stream(seed), size, agents, holes=holes, quotas={("training", None): 10})
            return len(found["training", None])

        rates.append(Rate(f"certified instances, {agents} agents, {size}x{size}, as drawn", rate(work, seconds)))
    plans = _plans(lake)

    def verified(_: int) -> int:
        for rows, starts, goals, plan, optimum in plans:
            verify(rows, starts, goals, plan, optimum)
        return len(plans)

    rates.append(Rate("verified plans, 5x5, 2 agents, half of them valid", rate(verified, seconds), 50_000))
    return rates


def _plans(lake: Lake) -> list[tuple[list[str], list[tuple[int, int]], list[tuple[int, int]], Plan, int]]:
    only = lake.with_values(EnvConfig(), {f"{n}x{n}.data_ratio": 0.0 for n in range(3, 11) if n != 5})
    found: list[tuple[list[str], list[tuple[int, int]], list[tuple[int, int]], Plan, int]] = []
    for instance in lake.generate(only, 500, 0).instances:
        walk = parse(lake.null_answers(instance, "compact", 0)["random_legal"], instance.agents)
        for plan in (reference_plan(instance), walk):
            found.append((instance.rows, instance.starts, instance.goals, plan, instance.certificate.makespan))
    return found
