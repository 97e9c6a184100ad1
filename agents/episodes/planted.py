"""Evidence of planted weaknesses, and proposals on it that are known to be good or bad.

The rollouts are real answers to real tasks, the evidence is built as a run builds it, gates measure what a proposal
really gives. Who answers is known, so that what a role ought to say is known without asking the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from agents import teacher
from agents.changes import apply_changes
from agents.designers import DesignContext, ProposalRejected, get_designer
from agents.episodes.weaknesses import Answers, WeakPolicy, answers, draw_policy
from agents.evidence.build import assemble
from agents.gates import GateContext, run_gates
from agents.gates.runner import RELATIVE
from agents.schemas import Change, Diagnosis, Evidence, GateReport, Proposal
from envsim.api import Environment, EnvsimError, Measurement, YieldError
from tools.probe_policy import ProbeTask
from trainer.evaluate import Header, summarise
from trainer.spec import EvalReport, GenerationSettings

BAD_KINDS = ("always_easiest", "always_impossible", "oscillate", "single_cell", "against the evidence")
TASKS, SAMPLES = 64, 8
"""Of a probe, as in the seedling's profile."""
DRAW = 2
"""The seed of every probe's tasks: as in a run, the same configuration gets the same probe."""


@dataclass(frozen=True)
class World:
    """The tasks that evidence is measured on, with the answers to each, and what the gates compare with."""

    environment: Environment
    known: Sequence[Answers]
    split: str

    @classmethod
    def of(cls, environment: Environment, *, held_out: bool, a_cell: int = 42, seed: int = 0) -> World:
        """The frozen validation set for the bench; as many training tasks a cell for what a model may learn from."""
        if held_out:
            return cls(
                environment, [answers(environment, one) for one in environment.frozen_set("validation")], "probe"
            )
        n = a_cell * len(environment.cells())
        drawn = environment.generate(environment.default_config(), n, seed, split="training").instances
        return cls(environment, [answers(environment, one) for one in drawn], "training")

    @cached_property
    def config(self) -> Any:
        return self.environment.default_config()

    @cached_property
    def current_tasks(self) -> list[Answers]:
        """A probe of the default configuration."""
        drawn = self.environment.generate(self.config, TASKS, DRAW, split=self.split).instances
        return [answers(self.environment, one) for one in drawn]

    @cached_property
    def initial(self) -> Measurement:
        return self.environment.generate(self.config, 4 * TASKS, 1, split=self.split).measurement


@dataclass(frozen=True)
class Planted:
    """One policy with its evidence. ``mark`` is a cell where it is sometimes right and its weakness rules."""

    policy: WeakPolicy
    evidence: Evidence
    mark: str

    @property
    def wanted(self) -> str:
        """The knob that a designer ought to raise."""
        return f"{self.mark}.{self.policy.weakness.knob or 'data_ratio'}"

    @property
    def diagnosis(self) -> Diagnosis:
        """The truth as an analyst would put it."""
        return teacher.diagnose(self.evidence)


def draw_planted(world: World, rng: np.random.Generator) -> Planted:
    """Policies are drawn until one has a cell to mark: measured success of 20 to 70 %, its weakness ahead of others."""
    while True:
        policy = draw_policy(world.environment, rng)
        evidence = measured(world, policy, rng)
        marks = [
            cell.cell
            for cell in evidence.cells
            if 0.2 <= cell.valid <= 0.7 and cell.top_fault in policy.weakness.outcomes
        ]
        if marks:
            return Planted(policy, evidence, marks[int(rng.integers(len(marks)))])


def measured(world: World, policy: WeakPolicy, rng: np.random.Generator) -> Evidence:
    """What a run would show of the policy at the default configuration."""
    rows = [policy.rollout(world.environment, known, rng) for known in world.known]
    return assemble(
        world.environment,
        stage=1,
        config=world.config,
        report=_report(world.environment, rows),
        rows=rows,
        replays=[],
        previous=None,
        anchor=_report(world.environment, rows),
        history=[],
        zero_variance_share=round(float(rng.random()), 3),
        instances=[known.instance for known in world.known],
        statistics=False,
    )


def _report(environment: Environment, rows: Sequence[Any]) -> EvalReport:
    header = Header(
        set="validation",
        instances="0" * 64,
        model_sha256="0" * 64,
        style="compact",
        generation=GenerationSettings(temperature=0.0),
        samples=1,
        seed=0,
    )
    return summarise(header, environment.cells(), rows, file_name="planted.jsonl", seconds=0.0)


def judged(world: World, policy: WeakPolicy, changes: Sequence[Change], seed: int) -> GateReport:
    """The gates on changes to the default configuration, with the weak policy in the probe, as a run's own."""
    return run_gates(facts(world, policy, changes, seed))


def facts(
    world: World, policy: WeakPolicy, changes: Sequence[Change], seed: int, *, beside_current: bool = False
) -> GateContext:
    """What the gates look at; the current configuration's own probe where it can matter, or always if asked."""
    environment = world.environment
    common: dict[str, Any] = {
        "environment": environment,
        "current": world.config,
        "current_difficulty": world.initial.difficulty,
        "initial": world.initial,
    }
    try:
        proposed = apply_changes(environment, world.config, changes)
        drawn = environment.generate(proposed, TASKS, DRAW, split=world.split)
    except YieldError as error:
        return GateContext(errors=[str(error)], error_cells=[error.cell], **common)
    except EnvsimError as error:
        return GateContext(errors=[str(error)], **common)
    tried = probe(environment, policy, [answers(environment, one) for one in drawn.instances], seed)
    context = GateContext(proposed=proposed, measured=drawn.measurement, probe=tried, **common)
    failed = {one.gate for one in run_gates(context).findings if not one.passed}
    if not (beside_current or RELATIVE & failed):
        return context
    return replace(context, current_probe=probe(environment, policy, world.current_tasks, seed))


def probe(environment: Environment, policy: WeakPolicy, tasks: Sequence[Answers], seed: int) -> list[ProbeTask]:
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x9B0B]))
    found = []
    for known in tasks:
        valid = sum(policy.rollout(environment, known, rng, sample).valid for sample in range(SAMPLES))
        cell = environment.cell(known.instance)
        found.append(ProbeTask(id=known.instance.id, cell=cell, successes=valid, samples=SAMPLES))
    return found


@dataclass(frozen=True)
class Judgement:
    """A proposal with its gates' report, and whether it is good."""

    planted: Planted
    proposal: Proposal
    report: GateReport
    kind: Literal["good", "bad"]
    name: str
    """``teacher`` if good; else the adversary, or ``against the evidence``."""


def draw_judgement(world: World, rng: np.random.Generator, *, good: bool) -> Judgement:
    """A good proposal follows the evidence and passes the gates; a bad one is an adversary's, or steps against it."""
    while True:
        planted = draw_planted(world, rng)
        seed = int(rng.integers(2**31))
        name = "teacher" if good else BAD_KINDS[int(rng.integers(len(BAD_KINDS)))]
        try:
            proposal = bad_or_good(world, planted, name, rng)
        except ProposalRejected:
            continue
        report = judged(world, planted.policy, proposal.changes, seed)
        if not good or report.passed:
            return Judgement(planted, proposal, report, "good" if good else "bad", name)


def bad_or_good(world: World, planted: Planted, name: str, rng: np.random.Generator) -> Proposal:
    context = DesignContext(world.environment, world.config, planted.evidence, planted.diagnosis, stage=1, seed=0)
    if name != "against the evidence":
        return get_designer(name).propose(context)
    return against(get_designer("teacher").propose(context), planted.diagnosis.cells, rng)


def against(proposal: Proposal, standings: Mapping[str, str], rng: np.random.Generator) -> Proposal:
    """The proposal with two or three data steps turned round: less of what can be learnt, more of what cannot."""
    cells = list(standings)
    turned = {cells[i] for i in rng.permutation(len(cells))[: int(rng.integers(2, 4))]}
    wrong = {f"{cell}.data_ratio": "down" if standings[cell] == "learnable" else "up" for cell in turned}
    kept = [change for change in proposal.changes if change.path not in wrong]
    made = [Change.model_validate({"path": path, "op": op}) for path, op in wrong.items()]
    return proposal.model_copy(update={"changes": [*made, *kept][:16]})
