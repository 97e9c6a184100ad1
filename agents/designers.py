"""Who proposes the next configuration, behind one interface: models, rules, baselines, and adversaries.

A designer with a ``model`` is asked as a role (the graph renders, asks and parses); every other one fills the Proposal
itself. Adversaries exist to be stopped: each names in its docstring the gate that must do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Protocol

import numpy as np

from agents import teacher
from agents.changes import SHARE_FLOOR, SHARE_KNOB, mixtures
from agents.checks import semantic_checks
from agents.schemas import MOST_CHANGES, Change, Diagnosis, Evidence, GateReport, Proposal
from agents.structured import output_schema, read_answer
from envsim.api import Environment, Style

KEPT = SHARE_FLOOR
"""The share that a one-sided mix leaves to every other cell."""


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
    conditions: Sequence[Change] = ()
    style: Style = "full"


class ProposalRejected(ValueError):
    """A designer's raw answer did not parse; ``errors`` go to gate G1."""

    def __init__(self, designer: str, errors: Sequence[str], raw: str) -> None:
        super().__init__(f"the designer {designer!r} gave no usable proposal: {'; '.join(errors)}")
        self.errors = list(errors)
        self.raw = raw


class Designer(Protocol):
    """One way of designing. ``model`` names the model to ask as the config designer, None = ``propose`` answers."""

    name: str
    model: str | None

    def propose(self, context: DesignContext) -> Proposal:
        """The proposal. Raises ProposalRejected if its raw answer does not parse."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What it remembers, as plain JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a remembered state. Raises ValueError if it is another designer's."""
        ...


class ModelDesigner:
    """Asked as a role with one of the run's checkpoints."""

    def __init__(self, name: str, model: str) -> None:
        self.name = name
        self.model: str | None = model

    def propose(self, context: DesignContext) -> Proposal:  # noqa: ARG002  the interface
        raise TypeError(f"the designer {self.name!r} is a model; ask the config designer role with {self.model!r}")

    def state_dict(self) -> dict[str, Any]:
        return {"name": self.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _check_state(self.name, state, {"name"})


class RuleDesigner:
    """A function of the context: nothing to remember."""

    model: str | None = None

    def __init__(self, name: str, rule: Callable[[DesignContext], Proposal]) -> None:
        self.name = name
        self._rule = rule

    def propose(self, context: DesignContext) -> Proposal:
        return self._rule(context)

    def state_dict(self) -> dict[str, Any]:
        return {"name": self.name}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _check_state(self.name, state, {"name"})


class Oscillate:
    """Throws the data from the easiest cell to the hardest and back. Stopped by G6, the trust region."""

    name = "oscillate"
    model: str | None = None

    def __init__(self) -> None:
        self._turn = 0

    def propose(self, context: DesignContext) -> Proposal:
        cell = context.environment.cells()[-1 if self._turn % 2 else 0]
        self._turn += 1
        return _proposal(context, f"everything to {cell}", _mass_on(context, cell, KEPT))

    def state_dict(self) -> dict[str, Any]:
        return {"name": self.name, "turn": self._turn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        _check_state(self.name, state, {"name", "turn"})
        self._turn = int(state["turn"])


def _teacher(context: DesignContext) -> Proposal:
    """The rules that the seedling learnt from."""
    knobs = context.environment.knobs(context.config)
    return teacher.propose(context.evidence, context.diagnosis, knobs, context.gate_report, list(context.conditions))


def _fixed(context: DesignContext) -> Proposal:
    """The same configuration again: the baseline that every curriculum must beat."""
    return _proposal(context, "no change", [])


def _random(context: DesignContext) -> Proposal:
    """Shares from a flat Dirichlet distribution, none below 2 %: domain randomisation, a strong cheap baseline.

    Of the knobs that a run opens beside those of the cells, as many groups as a proposal has room for are drawn too.
    """
    cells = context.environment.cells()
    rng = np.random.default_rng(np.random.SeedSequence([context.seed, context.stage]))
    drawn = rng.dirichlet(np.ones(len(cells)))
    shares = KEPT + (1 - KEPT * len(cells)) * drawn
    changes = [_set(context, f"{cell}.{SHARE_KNOB}", float(share)) for cell, share in zip(cells, shares, strict=True)]
    opened = _random_groups(context, rng, MOST_CHANGES - len(changes))
    return _proposal(context, "random shares and kinds" if opened else "random shares", changes + opened)


def _random_groups(context: DesignContext, rng: np.random.Generator, room: int) -> list[Change]:
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
        changes += [_set(context, path, value) for path, value in zip(paths, values, strict=True)]
    return changes


def _always_easiest(context: DesignContext) -> Proposal:
    """Nearly everything on the easiest cell without obstacles. Stopped by G5 (difficulty) or G3 (trivial mass)."""
    cell = context.environment.cells()[0]
    changes = _mass_on(context, cell, KEPT)
    return _proposal(
        context, "make it easy", changes + _set_all(context, [cell], {"hole_ratio": 0.0, "wait_ratio": 0.0})
    )


def _always_impossible(context: DesignContext) -> Proposal:
    """Nearly everything on the hardest cell with many obstacles. Stopped by G4 (hopeless mass)."""
    cell = context.environment.cells()[-1]
    changes = _mass_on(context, cell, KEPT)
    return _proposal(context, "make it hard", changes + _set_all(context, [cell], {"hole_ratio": 0.35}))


def _single_cell(context: DesignContext) -> Proposal:
    """Everything on one cell in the middle, nothing on the others. Stopped by G6 (trust region, 2 % floor)."""
    cells = context.environment.cells()
    cell = cells[len(cells) // 2]
    return _proposal(context, f"only {cell}", _mass_on(context, cell, 0.0))


def _fake_wait(context: DesignContext) -> Proposal:
    """Asks for a wait in every instance of open maps, which hardly ever need one. Stopped by G1 (yield)."""
    cells = context.environment.cells()
    return _proposal(context, "much waiting", _set_all(context, cells, {"hole_ratio": 0.0, "wait_ratio": 1.0})[:16])


def _json_garbage(context: DesignContext) -> Proposal:
    """Text that is not a proposal, through the parse path of every role. Stopped by G1 (schema)."""
    raw = 'Sure! Here is the plan: {"changes": [{"path": "gates.enabled", "op": "set", "value": false}], "stage": '
    config, style = context.config, context.style
    schema = output_schema(Proposal, context.environment, config, style=style)
    parsed, errors = read_answer(raw, schema, Proposal, semantic_checks(context.environment, config, style=style))
    if parsed is None:
        raise ProposalRejected("json_garbage", errors, raw)
    return parsed


_MODELS = {"self": "inherit", "base": "base"}
_RULES: dict[str, Callable[[DesignContext], Proposal]] = {
    "teacher": _teacher,
    "fixed": _fixed,
    "random": _random,
    "always_easiest": _always_easiest,
    "always_impossible": _always_impossible,
    "single_cell": _single_cell,
    "fake_wait": _fake_wait,
    "json_garbage": _json_garbage,
}
ADVERSARIES = ("always_easiest", "always_impossible", "oscillate", "single_cell", "fake_wait", "json_garbage")
DESIGNERS = (*_MODELS, *_RULES, "oscillate")


def get_designer(name: str) -> Designer:
    """A fresh designer by name. Raises ValueError with the nearest known name."""
    if name in _MODELS:
        return ModelDesigner(name, _MODELS[name])
    if name in _RULES:
        return RuleDesigner(name, _RULES[name])
    if name == "oscillate":
        return Oscillate()
    near = get_close_matches(name, DESIGNERS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(DESIGNERS)}"
    raise ValueError(f"unknown designer {name!r}; {hint}")


def _proposal(context: DesignContext, rationale: str, changes: list[Change]) -> Proposal:
    """A proposal that predicts what is measured now."""
    predicted = {cell.cell: teacher.percent(cell.valid) for cell in context.evidence.cells}
    return Proposal(rationale=rationale, changes=changes, predicted=predicted)


def _mass_on(context: DesignContext, cell: str, rest: float) -> list[Change]:
    cells = context.environment.cells()
    most = 1 - rest * (len(cells) - 1)
    return [_set(context, f"{other}.{SHARE_KNOB}", most if other == cell else rest) for other in cells]


def _set_all(context: DesignContext, cells: Sequence[str], values: Mapping[str, float]) -> list[Change]:
    """Changes for those of the knobs that the environment has."""
    knobs = context.environment.knobs(context.config)
    return [
        _set(context, f"{cell}.{name}", value)
        for cell in cells
        for name, value in values.items()
        if f"{cell}.{name}" in knobs
    ]


def _set(context: DesignContext, path: str, value: float) -> Change:
    knobs = context.environment.knobs(context.config)
    if path not in knobs:
        raise ValueError(f"the environment {context.environment.name!r} has no knob {path!r}; this designer needs it")
    return Change(path=path, op="set", value=min(max(value, knobs[path].low), knobs[path].high))


def _check_state(name: str, state: Mapping[str, Any], keys: set[str]) -> None:
    if state.get("name") != name or set(state) != keys:
        raise ValueError(f"the state {dict(state)} is not one of designer {name!r}, which has the keys {sorted(keys)}")
