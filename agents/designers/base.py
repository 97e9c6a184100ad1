"""What a designer is: it reads a DesignContext and gives a Proposal, and may remember something as plain JSON.

Everybody reads the same evidence. Whoever wants to know more asks the laboratory, which measures and charges for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agents.changes import SHARE_FLOOR, SHARE_KNOB
from agents.rolespec import ExternalModel
from agents.schemas import Change, Diagnosis, Evidence, GateReport, Proposal
from agents.teacher import percent
from envsim.api import Environment, Style
from tools.probe_policy import ProbeTask

ModelName = str | ExternalModel
"""``inherit`` (the current checkpoint), ``base``, ``champion``, or a model behind a URL."""
KEPT = SHARE_FLOOR
"""The share that a one-sided mix leaves to every other cell."""


class Laboratory(Protocol):
    """What a designer may have measured before it proposes. All of it is charged to the proposal, see ``Cost``."""

    def examine(self, changes: Sequence[Change]) -> GateReport:
        """What the gates say of these changes: tasks are drawn and probed by the current policy as for a proposal."""
        ...

    def probe(self, config: Any, *, tasks: int, samples: int, draw: int) -> list[ProbeTask]:
        """The current policy on ``tasks`` tasks of a configuration, ``samples`` answers each; another ``draw`` gives
        others. Raises EnvsimError if they cannot be had."""
        ...

    def ask(self, model: ModelName, *, take: int, temperature: float) -> Proposal:
        """The config designer role answered by a model; another ``take`` is another answer.

        Raises ProposalRejected if no answer was usable, RoleFailure under ``on_failure: stop``.
        """
        ...


@dataclass(frozen=True)
class DesignContext:
    """What a designer may know: the same evidence for all. ``seed`` is that of this one proposal."""

    environment: Environment
    config: Any
    """The last accepted configuration, to which the changes apply."""
    evidence: Evidence
    diagnosis: Diagnosis
    stage: int
    seed: int
    gate_report: GateReport | None = None
    """Of the last proposal of this stage, None before the first."""
    conditions: Sequence[Change] = ()
    style: Style = "full"
    revision: int = 0
    """How often a proposal of this stage was sent back."""
    lab: Laboratory | None = None
    """None where nothing can be measured: outside a run."""


class ProposalRejected(ValueError):
    """A designer's raw answer did not parse; ``errors`` go to gate G1."""

    def __init__(self, designer: str, errors: Sequence[str], raw: str) -> None:
        super().__init__(f"the designer {designer!r} gave no usable proposal: {'; '.join(errors)}")
        self.errors = list(errors)
        self.raw = raw


class Designer(ABC):
    """One way of designing.

    ``model`` names the model to ask as the config designer role; with None ``propose`` answers. A designer without
    memory inherits the rest. The loop makes a new object for each proposal, gives it the state that it returned after
    the last one, and stores the new state with the proposal: what is not in the state is forgotten.
    """

    name: str
    """What files and reports call it; of one's own designers the loader makes it the name of the class."""
    model: ModelName | None = None

    @abstractmethod
    def propose(self, context: DesignContext) -> Proposal:
        """The proposal. Raises ProposalRejected if its raw answer does not parse."""

    def check(self, environment: Environment, config: Any, stages: int) -> None:  # noqa: B027  most have nothing to say
        """Called before a run of so many designed stages begins on ``config``, and before anything is written.

        Raises ValueError in one line for what this designer could not do there.
        """

    def content(self) -> Any:
        """Plain JSON that beside the settings decides what it proposes, such as what a file of its own says.

        It is part of a run's identity: a run is not resumed with another. None if there is nothing.
        """
        return None

    def see(self, evidence: Evidence, seed: int) -> Evidence:  # noqa: ARG002  for controls that look elsewhere
        """The evidence that this designer, and every role of its run, is shown in place of what was measured."""
        return evidence

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as plain JSON."""
        return {"name": self.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a remembered state. Raises ValueError if it is another designer's."""
        own = self.state_dict()
        if state.get("name") != self.name or set(state) != set(own):
            raise ValueError(
                f"the state {dict(state)} is not one of designer {self.name!r}, which has the keys {sorted(own)}"
            )


class ShareDesigner(Designer):
    """One that moves the data between cells, which takes a knob for the share of each."""

    def check(self, environment: Environment, config: Any, stages: int) -> None:  # noqa: ARG002  the interface
        needed = [f"{cell}.{SHARE_KNOB}" for cell in environment.cells()]
        knobs = environment.knobs(config)
        if missing := [path for path in needed if path not in knobs]:
            raise ValueError(
                f"designer {self.name}: the environment {environment.name!r} has no knob {missing[0]!r}, and this "
                f"designer needs one for the share of each cell; known are {', '.join(knobs)}"
            )


def proposal(context: DesignContext, rationale: str, changes: Sequence[Change]) -> Proposal:
    """A proposal that predicts what is measured now."""
    predicted = {cell.cell: percent(cell.valid) for cell in context.evidence.cells}
    return Proposal(rationale=rationale, changes=list(changes), predicted=predicted)


def set_knob(context: DesignContext, path: str, value: float) -> Change:
    """The change that sets a knob, inside its bounds. Raises ValueError for a knob that the environment lacks."""
    knobs = context.environment.knobs(context.config)
    if path not in knobs:
        raise ValueError(f"the environment {context.environment.name!r} has no knob {path!r}; this designer needs it")
    return Change(path=path, op="set", value=min(max(value, knobs[path].low), knobs[path].high))


def set_shares(context: DesignContext, shares: Mapping[str, float]) -> list[Change]:
    """Changes that give every cell its share of the data."""
    return [set_knob(context, f"{cell}.{SHARE_KNOB}", share) for cell, share in shares.items()]


def floored(shares: Mapping[str, float]) -> dict[str, float]:
    """Shares that sum to 1, pressed together so that none is below what every cell keeps."""
    return {cell: KEPT + (1 - KEPT * len(shares)) * share for cell, share in shares.items()}


def part_of_the_way(context: DesignContext, changes: Sequence[Change]) -> list[Change]:
    """The changes by value, halved once a revision: who is sent back takes a smaller step the same way."""
    knobs = context.environment.knobs(context.config)
    part = 0.5**context.revision
    return [
        change
        if change.value is None
        else set_knob(context, change.path, knobs[change.path].value * (1 - part) + change.value * part)
        for change in changes
    ]
