"""What the gates look at: facts that code measured before any gate runs. Gates compute, they do not measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, sqrt
from statistics import stdev
from typing import Any

from envsim.api import Environment, Measurement
from tools.probe_policy import ProbeTask

MORE_DECIMALS = 6
"""The most by which a figure is told more exactly than usual."""


@dataclass(frozen=True)
class Prediction:
    """What a designer predicted by cell (percent) and the valid rate that was measured after that stage."""

    predicted: Mapping[str, int]
    measured: Mapping[str, float]


@dataclass(frozen=True)
class GateContext:
    """One proposal under examination.

    ``proposed``, ``measured`` and ``probe`` are None, None and empty if ``errors`` says why there is nothing to
    measure: the answer did not parse, a change was out of bounds, or the environment refused to generate.
    """

    environment: Environment
    current: Any
    """The last accepted configuration."""
    current_difficulty: float
    initial: Measurement
    """What the initial configuration really gave."""
    proposed: Any | None = None
    measured: Measurement | None = None
    probe: Sequence[ProbeTask] = ()
    """The current policy on tasks drawn from the proposal."""
    probe_tokens: int = 0
    errors: Sequence[str] = ()
    error_cells: Sequence[str] = ()
    anchor_dropped: bool = False
    """The last stage was rolled back, so easing is remediation."""
    current_probe: Sequence[ProbeTask] = ()
    """The current policy on the current configuration; empty if it was not needed. Where the current configuration
    itself breaks a bound, a proposal that is no worse may pass, and easing is remediation."""
    predictions: Sequence[Prediction] = ()
    """Finished stages in order."""

    def by_cell(self) -> dict[str, list[ProbeTask]]:
        """The probe's tasks by cell, easiest cell first; only cells that have tasks."""
        groups = {cell: [task for task in self.probe if task.cell == cell] for cell in self.environment.cells()}
        return {cell: tasks for cell, tasks in groups.items() if tasks}


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the mean of at least two values; 0 of fewer."""
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def percents(figure: float, *, least: float = -inf, most: float = inf) -> Callable[[float], str]:
    """How a figure and its bounds are told in percent: in whole ones, unless these would hide that it misses one."""
    return _telling(figure, least, most, "%", 0)


def numbers(figure: float, *, least: float = -inf, most: float = inf) -> Callable[[float], str]:
    """As `percents`, with three decimals or as many as show a miss."""
    return _telling(figure, least, most, "f", 3)


def _telling(figure: float, least: float, most: float, kind: str, fewest: int) -> Callable[[float], str]:
    def told(value: float, decimals: int) -> str:
        return f"{value:.{decimals}{kind}}"

    def missed(decimals: int) -> bool:
        low, seen, high = (float(told(one, decimals).rstrip("%")) for one in (least, figure, most))
        return not low <= seen <= high

    shows = (n for n in range(fewest, fewest + MORE_DECIMALS) if least <= figure <= most or missed(n))
    return partial(told, decimals=next(shows, fewest + MORE_DECIMALS))
