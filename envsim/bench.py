"""What the lake does in a second, and how many times that is what others do, measured side by side in one run.

Three parts: ``solving``, ours and other people's solvers on the same layouts; ``generating``, on one core and on all of
them; ``checking``, plans verified and steps simulated. Rates are per second of processor time, spreading over
processes is wall time. Figures of other machines or days are nowhere in it.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Any

from envsim.api import EnvsimError
from envsim.contest import Contest, Full, Makespan, Row, SumOfCosts, contest
from envsim.figures import Figure, Machine, Rate, Report, Settings, Solving, Spreading, goals
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.grid import Cell
from envsim.lake.reference import reference_plan
from envsim.lake.simulator import steps_per_second
from envsim.lake.text import parse
from envsim.lake.verifier import Plan, verify
from envsim.oracles import GET, ORACLES, Missing, Solver, installed
from envsim.parallel import workers

ROWS = (
    Row(3, 2, 0.2),
    Row(5, 2, 0.2),
    Row(5, 2, 0.3),
    Row(5, 2, 0.5),
    Row(8, 3, 0.3),
    Row(8, 3, 0.5),
    Row(10, 5, 0.3),
    Row(10, 5, 0.5),
)
Announce = Callable[[str], None]
"""Called with what is about to be measured."""


def bench(settings: Settings, announce: Announce = lambda _: None) -> Report:
    """Measure.

    Raises
    ------
    EnvsimError
        If a setting cannot be, or two solvers contradict each other.
    """
    _refuse(settings)
    machine = Machine(
        python=platform.python_version(), processor=platform.machine(), cores=cores(), load=round(os.getloadavg()[0], 2)
    )
    rivals, oracles = opponents(settings.against, settings.patience)
    solving: list[Solving] = []
    generating: list[Rate] = []
    checking: list[Rate] = []
    spreading = None
    if "solving" in settings.parts:
        for row in ROWS:
            announce(f"solving {row}")
            solvers: list[Solver[Any, Any]] = [Makespan(), SumOfCosts(), Full(), *rivals]
            run = contest(row, solvers, seconds=settings.seconds, layouts=settings.layouts, seed=settings.seed)
            solving.append(_solving(row, run))
    if "generating" in settings.parts:
        announce("generating")
        generating = _generating(settings.seconds)
        announce(f"generating on {machine.cores} cores")
        spreading = _spreading(settings, machine.cores)
    if "checking" in settings.parts:
        announce("checking")
        checking = _checking(settings.seconds)
    return Report(
        machine=machine,
        settings=settings,
        oracles=oracles,
        solving=solving,
        generating=generating,
        spreading=spreading,
        checking=checking,
        goals=goals(solving, generating, spreading, checking),
    )


def _refuse(settings: Settings) -> None:
    if not 0 < settings.seconds < math.inf:
        raise EnvsimError(f"the time for each figure is {settings.seconds} s, expected a positive number")
    for what, value in (("layouts of a row", settings.layouts), ("instances to generate", settings.instances)):
        if value < 1:
            raise EnvsimError(f"the number of {what} is {value}; expected at least 1")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def opponents(packages: Sequence[str], patience: float) -> tuple[list[Solver[Any, Any]], dict[str, str]]:
    """The solvers of some packages; and of each package its version, or that it is missing and how to get it."""
    solvers: list[Solver[Any, Any]] = []
    said: dict[str, str] = {}
    for package in packages:
        name = ORACLES[package][0].package
        try:
            solvers += [kind(patience) for kind in ORACLES[package]]
            said[package] = f"{name} {installed(name)}"
        except Missing:
            said[package] = f"{name} is not installed: {GET}"
    return solvers, said


def _solving(row: Row, run: Contest) -> Solving:
    ours = run.lanes[SumOfCosts.name]
    figures = {
        name: Figure(
            solver=name,
            layouts=len(lane.times),
            per_second=lane.per_second(),
            gave_up=lane.gave_up / len(lane.times),
            ratio=ours.ratio(lane),
        )
        for name, lane in run.lanes.items()
    }
    return Solving(row=str(row), **row._asdict(), compared=run.compared, figures=figures)


def rate(work: Callable[[int], int], seconds: float) -> float:
    """Things a second of processor time; ``work`` takes a round's number and returns how many things it did."""
    work(0)
    began = time.process_time()
    done = rounds = 0
    while (spent := time.process_time() - began) < seconds:
        rounds += 1
        done += work(rounds)
    return done / spent


def _generating(seconds: float) -> list[Rate]:
    lake = Lake()
    small = lake.with_values(EnvConfig(), {f"{n}x{n}.data_ratio": 0.0 for n in range(7, 11)})

    def certify(config: EnvConfig) -> Callable[[int], int]:
        return lambda seed: len(lake.generate(config, 400, seed).instances)

    return [
        Rate(what="certified instances, 2 agents, 3x3-6x6", per_second=rate(certify(small), seconds)),
        Rate(what="certified instances, 2 agents, 3x3-10x10", per_second=rate(certify(EnvConfig()), seconds)),
    ]


def _spreading(settings: Settings, processes: int) -> Spreading | None:
    """None on one core, where there is nothing to spread over."""
    if processes == 1:
        return None
    lake, config = Lake(), EnvConfig()
    spent: dict[int, list[float]] = {1: [], processes: []}
    capacity = []
    for seed in range(settings.repeats):
        made = []
        capacity.append(_capacity(processes, settings.seconds / 2))
        for number, seconds in spent.items():
            began = time.perf_counter()
            generated = lake.generate(config, settings.instances, seed, processes=number)
            seconds.append(time.perf_counter() - began)
            made.append([instance.id for instance in generated.instances])
        if made[0] != made[1]:
            raise EnvsimError(f"{processes} processes generate other instances than one; seed {seed}")
    ratio = min(spent[1]) / min(spent[processes])
    return Spreading(
        instances=settings.instances,
        processes=processes,
        seconds_alone=spent[1],
        seconds_together=spent[processes],
        capacity=capacity,
        ratio=ratio,
        efficiency=ratio / processes,
    )


def _capacity(processes: int, seconds: float) -> float:
    """How many times the work of one busy process several get done at the moment: below their number if others run."""
    # One process makes them all, so that what it costs to start them is no part of it.
    with workers(processes) as pool:
        list(pool.map(_count, [0.0] * processes))
        alone = pool.submit(_count, seconds).result()
        together = sum(pool.map(_count, [seconds] * processes))
    return together / alone


def _count(seconds: float) -> int:
    until = time.perf_counter() + seconds
    counted = 1
    while time.perf_counter() < until:
        counted += 1
    return counted


def _checking(seconds: float) -> list[Rate]:
    plans = _plans(Lake())

    def verified(_: int) -> int:
        for case in plans:
            verify(*case)
        return len(plans)

    return [
        Rate(what="verified plans, 5x5, 2 agents, half of them valid", per_second=rate(verified, seconds)),
        Rate(what="environment steps, 5x5, 2 agents", per_second=steps_per_second(seconds)),
    ]


def _plans(lake: Lake) -> list[tuple[list[str], list[Cell], list[Cell], Plan, int]]:
    only = lake.with_values(EnvConfig(), {f"{n}x{n}.data_ratio": 0.0 for n in range(3, 11) if n != 5})
    found: list[tuple[list[str], list[Cell], list[Cell], Plan, int]] = []
    for instance in lake.generate(only, 500, 0).instances:
        walk = parse(lake.null_answers(instance, "compact", 0)["random_legal"], instance.agents)
        for plan in (reference_plan(instance), walk):
            found.append((instance.rows, instance.starts, instance.goals, plan, instance.certificate.makespan))
    return found
