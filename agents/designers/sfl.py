"""Sampling for learnability (SFL; Rutherford et al., "No Regrets", arXiv 2408.15099), as a designer between stages.

SFL rolls the current policy out on random levels, scores each by its learnability p (1 - p), trains on the top ones and
mixes them with random ones. A designer does not choose levels but knobs, so the top levels are turned back into knobs:
a cell's share is its share of the top levels, mixed with a uniform one; its other knobs are the mean of what its top
levels were drawn with. Random levels come from the current configuration with all cells alike and every other knob one
step down, where it is, or one step up. The rollouts are charged; a stage that is sent back goes half of the way without
new ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from agents.changes import SHARE_KNOB
from agents.designers.base import (
    DesignContext,
    Laboratory,
    ShareDesigner,
    floored,
    part_of_the_way,
    proposal,
    set_knob,
    set_shares,
)
from agents.schemas import MOST_CHANGES, Change, Proposal
from envsim.api import EnvsimError


@dataclass(frozen=True)
class Level:
    """A task that was tried: what its cell's knobs were, and how often it was solved."""

    cell: str
    values: Mapping[str, float]
    success: float

    @property
    def learnability(self) -> float:
        return self.success * (1 - self.success)


class SamplingForLearnability(ShareDesigner):
    name = "sfl"

    def __init__(self, *, draws: int, tasks: int, samples: int, keep: float, mix: float) -> None:
        self._draws, self._tasks, self._samples, self._keep, self._mix = draws, tasks, samples, keep, mix
        self._stage = 0
        self._target: dict[str, float] = {}

    def propose(self, context: DesignContext) -> Proposal:
        if context.stage != self._stage:
            if context.lab is None:
                raise ValueError("the designer 'sfl' rolls the policy out, which only a run can do")
            levels = self._levels(context, context.lab)
            self._stage, self._target = context.stage, target(context, levels, self._keep, self._mix)
        changes = [set_knob(context, path, value) for path, value in self._target.items()]
        what = "shares by learnability p(1-p)" if changes else "no task could be had; no change"
        return proposal(context, what, part_of_the_way(context, changes))

    def _levels(self, context: DesignContext, lab: Laboratory) -> list[Level]:
        """Draws that cannot be generated are left out."""
        rng = np.random.default_rng(np.random.SeedSequence([context.seed, context.stage]))
        found = []
        for draw in range(self._draws):
            values = random_knobs(context, rng)
            try:
                config = context.environment.with_values(context.config, values)
                tried = lab.probe(config, tasks=self._tasks, samples=self._samples, draw=draw)
            except EnvsimError:
                continue
            for task in tried:
                own = {path: value for path, value in values.items() if path.rpartition(".")[0] == task.cell}
                own.pop(f"{task.cell}.{SHARE_KNOB}", None)
                found.append(Level(task.cell, own, task.success))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"name": self.name, "stage": self._stage, "target": dict(self._target)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._stage, self._target = int(state["stage"]), dict(state["target"])


def random_knobs(context: DesignContext, rng: np.random.Generator) -> dict[str, float]:
    """All cells alike; every other knob of a cell one step down, as it is, or one step up."""
    cells = context.environment.cells()
    values = {}
    for path, knob in context.environment.knobs(context.config).items():
        cell, _, name = path.rpartition(".")
        if cell in cells:
            steps = (knob.down, knob.value, knob.up)
            values[path] = 1 / len(cells) if name == SHARE_KNOB else steps[int(rng.integers(3))]
    return values


def target(context: DesignContext, levels: Sequence[Level], keep: float, mix: float) -> dict[str, float]:
    """Knob values by path that the top levels stand for; none without levels.

    Where no level has any learnability the data moves to the easiest cell if nothing is solved, else to the hardest.
    """
    if not levels:
        return {}
    cells = context.environment.cells()
    ranked = sorted(levels, key=lambda level: -level.learnability)
    top = [level for level in ranked[: ceil(keep * len(ranked))] if level.learnability > 0]
    if not top:
        edge = cells[0] if all(level.success == 0 for level in levels) else cells[-1]
        top = [Level(edge, {}, 0.5)]
    uniform = 1 / len(cells)
    chosen = {cell: sum(level.cell == cell for level in top) / len(top) for cell in cells}
    shares = floored({cell: (1 - mix) * share + mix * uniform for cell, share in chosen.items()})
    found = {change.path: float(change.value or 0) for change in set_shares(context, shares)}
    return found | {
        change.path: float(change.value or 0) for change in _turned(context, top, MOST_CHANGES - len(found))
    }


def _turned(context: DesignContext, top: Sequence[Level], room: int) -> list[Change]:
    """The other knobs at the mean of the top levels, those that move most."""
    knobs = context.environment.knobs(context.config)
    means = {
        path: float(np.mean([level.values[path] for level in top if path in level.values]))
        for path in knobs
        if any(path in level.values for level in top)
    }
    moved = {path: abs(value - knobs[path].value) for path, value in means.items()}
    order = sorted((path for path in moved if moved[path] > 0), key=lambda path: -moved[path])
    return [set_knob(context, path, means[path]) for path in order[:room]]
