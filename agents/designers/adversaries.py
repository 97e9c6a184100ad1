"""Designers that exist to be stopped. Each names the gate that must do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.changes import SHARE_KNOB
from agents.checks import semantic_checks
from agents.designers.base import (
    KEPT,
    DesignContext,
    Designer,
    ProposalRejected,
    ShareDesigner,
    proposal,
    set_knob,
    set_shares,
)
from agents.schemas import MOST_CHANGES, Change, Proposal
from agents.structured import output_schema, read_answer


class AlwaysEasiest(ShareDesigner):
    """Nearly everything on the easiest cell without obstacles. Stopped by G5 (difficulty) or G3 (trivial mass)."""

    name = "always_easiest"

    def propose(self, context: DesignContext) -> Proposal:
        cell = context.environment.cells()[0]
        opened = _set_all(context, [cell], {"hole_ratio": 0.0, "wait_ratio": 0.0})
        return proposal(context, "make it easy", _mass_on(context, cell, KEPT) + opened)


class AlwaysImpossible(ShareDesigner):
    """Nearly everything on the hardest cell with many obstacles. Stopped by G4 (hopeless mass)."""

    name = "always_impossible"

    def propose(self, context: DesignContext) -> Proposal:
        cell = context.environment.cells()[-1]
        return proposal(
            context, "make it hard", _mass_on(context, cell, KEPT) + _set_all(context, [cell], {"hole_ratio": 0.35})
        )


class SingleCell(ShareDesigner):
    """Everything on one cell in the middle, nothing on the others. Stopped by G6 (trust region, 2 % floor)."""

    name = "single_cell"

    def propose(self, context: DesignContext) -> Proposal:
        cells = context.environment.cells()
        cell = cells[len(cells) // 2]
        return proposal(context, f"only {cell}", _mass_on(context, cell, 0.0))


class Oscillate(ShareDesigner):
    """Throws the data from the easiest cell to the hardest and back. Stopped by G6, the trust region."""

    name = "oscillate"

    def __init__(self) -> None:
        self._turn = 0

    def propose(self, context: DesignContext) -> Proposal:
        cell = context.environment.cells()[-1 if self._turn % 2 else 0]
        self._turn += 1
        return proposal(context, f"everything to {cell}", _mass_on(context, cell, KEPT))

    def state_dict(self) -> dict[str, Any]:
        return {"name": self.name, "turn": self._turn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._turn = int(state["turn"])


class FakeWait(Designer):
    """Asks for a wait in every instance of open maps, which hardly ever need one. Stopped by G1 (yield)."""

    name = "fake_wait"

    def propose(self, context: DesignContext) -> Proposal:
        cells = context.environment.cells()
        changes = _set_all(context, cells, {"hole_ratio": 0.0, "wait_ratio": 1.0})
        return proposal(context, "much waiting", changes[:MOST_CHANGES])


class JsonGarbage(Designer):
    """Text that is not a proposal, through the parse path of every role. Stopped by G1 (schema)."""

    name = "json_garbage"

    def propose(self, context: DesignContext) -> Proposal:
        raw = 'Sure! Here is the plan: {"changes": [{"path": "gates.enabled", "op": "set", "value": false}], "stage": '
        config, style = context.config, context.style
        schema = output_schema(Proposal, context.environment, config, style=style)
        parsed, errors = read_answer(raw, schema, Proposal, semantic_checks(context.environment, config, style=style))
        if parsed is None:
            raise ProposalRejected(self.name, errors, raw)
        return parsed


def _mass_on(context: DesignContext, cell: str, rest: float) -> list[Change]:
    cells = context.environment.cells()
    most = 1 - rest * (len(cells) - 1)
    return set_shares(context, {other: most if other == cell else rest for other in cells})


def _set_all(context: DesignContext, cells: Sequence[str], values: Mapping[str, float]) -> list[Change]:
    """Changes for those of the knobs that the environment has."""
    knobs = context.environment.knobs(context.config)
    return [
        set_knob(context, f"{cell}.{name}", value)
        for cell in cells
        for name, value in values.items()
        if f"{cell}.{name}" in knobs and name != SHARE_KNOB
    ]
