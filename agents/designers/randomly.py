"""Domain randomisation: shares from a flat Dirichlet distribution, drawn again until the gates admit them.

This is rejection sampling from what the gates admit, cut off after a number of draws; every draw that was tried is
charged. In a run with ``gates: off`` the first draw is taken, whatever it is.
"""

from __future__ import annotations

import numpy as np

from agents.changes import mixtures
from agents.designers.base import DesignContext, ShareDesigner, floored, proposal, set_knob, set_shares
from agents.schemas import MOST_CHANGES, Change, Proposal


class Random(ShareDesigner):
    """No share below 2 %. Of the knobs that a run opens beside those of the cells, as many groups as a proposal has
    room for are drawn too."""

    name = "random"

    def __init__(self, draws: int) -> None:
        self._draws = draws

    def propose(self, context: DesignContext) -> Proposal:
        rng = np.random.default_rng(np.random.SeedSequence([context.seed, context.stage]))
        first, what = draw(context, rng)
        if context.lab is None:
            return proposal(context, what, first)
        changes = first
        for number in range(1, self._draws + 1):
            report = context.lab.examine(changes)
            if report.passed:
                how = f"draw {number}, admitted by the gates" if report.enforced else "not gated"
                return proposal(context, f"{what}: {how}", changes)
            if number < self._draws:
                changes, _ = draw(context, rng)
        return proposal(context, f"{what}: none of {self._draws} draws was admitted by the gates", changes)


def draw(context: DesignContext, rng: np.random.Generator) -> tuple[list[Change], str]:
    """Changes drawn at random, and what they are of."""
    cells = context.environment.cells()
    drawn = rng.dirichlet(np.ones(len(cells)))
    changes = set_shares(context, floored(dict(zip(cells, map(float, drawn), strict=True))))
    opened = _groups(context, rng, MOST_CHANGES - len(changes))
    return changes + opened, "random shares and kinds" if opened else "random shares"


def _groups(context: DesignContext, rng: np.random.Generator, room: int) -> list[Change]:
    """Open groups in random order while there is room: a mixture goes half of the way to a drawn one, which never
    leaves the trust region of G6; a number is drawn between its bounds."""
    knobs = context.environment.knobs(context.config)
    cells = context.environment.cells()
    mixed = mixtures(knobs, cells)
    single = {path: [path] for path in knobs if "." not in path}
    groups = [*mixed.items(), *single.items()]
    changes: list[Change] = []
    for index in rng.permutation(len(groups)) if groups else ():
        group, paths = groups[index]
        if len(changes) + len(paths) > room:
            continue
        if group in mixed:
            goal = rng.dirichlet(np.ones(len(paths)))
            values = [(knobs[path].value + float(drawn)) / 2 for path, drawn in zip(paths, goal, strict=True)]
        else:
            values = [float(rng.uniform(knobs[path].low, knobs[path].high)) for path in paths]
        changes += [set_knob(context, path, value) for path, value in zip(paths, values, strict=True)]
    return changes
