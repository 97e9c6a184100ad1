"""Roles on planted episodes: whether they say what is true, not what the teacher would say.

Evidence is of weak policies on the frozen validation set, which no episode of a warm start has shown. Roles are asked
as the loop asks them: rendered, constrained, parsed, repaired, and the rule in their place when nothing helps. What the
rule had to answer counts as wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel
from rich.console import Console
from rich.progress import track

from agents import teacher
from agents.checks import semantic_checks
from agents.episodes.planted import Judgement, Planted, World, draw_judgement, draw_planted, judged
from agents.episodes.weaknesses import WEAKNESSES
from agents.render import render_messages
from agents.roles import load_roles
from agents.rolespec import RoleSpec
from agents.schemas import Critique, Diagnosis, Evidence, Proposal
from agents.structured import RoleAnswer, ask, output_schema
from envsim.api import Environment, Style

Item = TypeVar("Item")
UNSEEN = 0xB0A7
"""Marks the bench's random stream."""


@dataclass
class Tally:
    """What asking one role came to."""

    n: int = 0
    repaired: int = 0
    fallback: int = 0
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    right: dict[str, list[bool]] = field(default_factory=dict)

    def note(self, name: str, right: bool) -> None:
        self.right.setdefault(name, []).append(right)

    def summary(self) -> dict[str, Any]:
        each = max(1, self.n)
        return {
            "n": self.n,
            "repaired": self.repaired / each,
            "fallback": self.fallback / each,
            "seconds": self.seconds / each,
            "input_tokens": self.input_tokens / each,
            "output_tokens": self.output_tokens / each,
            **{name: sum(values) / len(values) for name, values in self.right.items()},
        }


class Player:
    """A model in the roles, asked as in the loop."""

    def __init__(self, model: BaseChatModel, environment: Environment, style: Style, most_tokens: int) -> None:
        self._model, self._environment, self._style = model, environment, style
        self._roles = {name: _capped(role, most_tokens) for name, role in load_roles().items()}

    def ask(
        self, tally: Tally, name: str, inputs: dict[str, Any], rule: Callable[[], BaseModel]
    ) -> RoleAnswer[BaseModel]:
        role, style, environment = self._roles[name], self._style, self._environment
        evidence: Evidence = inputs["evidence"]
        config = environment.default_config()
        ids = [failure.id for failure in evidence.failures]
        schema = output_schema(role.output_type, environment, config, style=style, evidence_ids=ids)
        checks = semantic_checks(environment, config, style=style, evidence=evidence)
        messages = render_messages(role, style, {key: inputs[key] for key in role.inputs})
        started = time.monotonic()
        answer = ask(self._model, role, messages, schema, role.output_type, checks, style=style, rule=rule)
        tally.seconds += time.monotonic() - started
        tally.n += 1
        tally.fallback += answer.fallback
        tally.repaired += not answer.fallback and len(answer.attempts) > 1
        tally.input_tokens += sum(attempt.input_tokens for attempt in answer.attempts)
        tally.output_tokens += sum(attempt.output_tokens for attempt in answer.attempts)
        return answer


def _capped(role: RoleSpec, most: int) -> RoleSpec:
    limit = role.limits.max_new_tokens
    shorter = limit.model_copy(update={"compact": min(limit.compact, most), "full": min(limit.full, most)})
    return role.model_copy(update={"limits": role.limits.model_copy(update={"max_new_tokens": shorter})})


@dataclass(frozen=True)
class Cases:
    """Drawn once, put to every model."""

    world: World
    planted: Sequence[Planted]
    judgements: Sequence[Judgement]


def draw_cases(environment: Environment, n: int, seed: int) -> Cases:
    """n policies for analyst and designer, and n proposals for the critic, good and bad in turn."""
    world = World.of(environment, held_out=True)
    rng = np.random.default_rng(np.random.SeedSequence([seed, UNSEEN]))
    planted = [balanced(world, rng, number) for number in _told(range(n), "weak policies")]
    proposals = _told(range(n), "proposals, good and bad")
    return Cases(world, planted, [draw_judgement(world, rng, good=number % 2 == 0) for number in proposals])


def balanced(world: World, rng: np.random.Generator, number: int) -> Planted:
    """Every weakness comes equally often."""
    while True:
        planted = draw_planted(world, rng)
        name = planted.policy.weakness.name
        if name == ORDER[number % len(ORDER)]:
            return planted


ORDER = tuple(weakness.name for weakness in WEAKNESSES)


def bench_planted(player: Player, cases: Cases) -> dict[str, Any]:
    """Scores by role."""
    return {
        "failure_analyst": analyst(player, cases),
        "config_designer": designer(player, cases),
        "safety_critic": critic(player, cases),
    }


def analyst(player: Player, cases: Cases) -> dict[str, Any]:
    """``cause``: the planted cause is named; ``standings``: every cell's standing is right."""
    tally = Tally()
    for one in _told(cases.planted, "analyst"):
        answer = player.ask(tally, "failure_analyst", {"evidence": one.evidence}, partial(getattr, one, "diagnosis"))
        own = answer.parsed if isinstance(answer.parsed, Diagnosis) and not answer.fallback else None
        tally.note("cause", own is not None and own.dominant_fault in one.policy.weakness.outcomes)
        tally.note("standings", own is not None and own.cells == one.diagnosis.cells)
    return tally.summary()


def designer(player: Player, cases: Cases) -> dict[str, Any]:
    """``direction``: the planted knob is raised; ``gates``: the first proposal passes all of them.

    ``gates (rule)`` is what the teacher's proposals on the same evidence come to: some policies leave little to pass.
    """
    tally, world = Tally(), cases.world
    knobs = world.environment.knobs(world.config)
    for number, one in enumerate(_told(cases.planted, "designer")):
        inputs: dict[str, Any] = {
            "evidence": one.evidence,
            "diagnosis": one.diagnosis,
            "gate_report": None,
            "conditions": [],
        }

        def rule(one: Planted = one) -> Proposal:
            return teacher.propose(one.evidence, one.diagnosis, knobs, None, [])

        answer = player.ask(tally, "config_designer", inputs, rule)
        own = answer.parsed if isinstance(answer.parsed, Proposal) and not answer.fallback else None
        tally.note("direction", own is not None and raises(own, one.wanted, knobs))
        passes = judged(world, one.policy, rule().changes, number).passed
        tally.note("gates (rule)", passes)
        if own is not None and own.changes != rule().changes:
            passes = judged(world, one.policy, own.changes, number).passed
        tally.note("gates", own is not None and passes)
    return tally.summary()


def _told(items: Sequence[Item], what: str) -> Iterable[Item]:
    """The items, with a bar of how far they are beside what the command prints."""
    return track(items, what, console=Console(stderr=True))


def raises(proposal: Proposal, path: str, knobs: Any) -> bool:
    """Whether the proposal raises a knob."""
    for change in proposal.changes:
        if change.path == path:
            return change.op == "up" or (change.value is not None and change.value > knobs[path].value)
    return False


def critic(player: Player, cases: Cases) -> dict[str, Any]:
    """``precision`` and ``recall`` on bad proposals by the verdict alone, and ``stopped``: the share of bad ones that
    gates or verdict stop, as the loop does; ``recall: NAME`` by kind."""
    tally = Tally()
    hits = flagged = bad = 0
    for one in _told(cases.judgements, "critic"):
        evidence = one.planted.evidence
        inputs = {"evidence": evidence, "proposal": one.proposal, "gate_report": one.report}

        def rule(one: Judgement = one) -> Critique:
            return teacher.critique(one.planted.evidence, one.proposal, one.report)

        answer = player.ask(tally, "safety_critic", inputs, rule)
        found = answer.parsed
        doubt = isinstance(found, Critique) and not answer.fallback and found.verdict != "approve"
        flagged += doubt
        if one.kind == "bad":
            bad += 1
            hits += doubt
            tally.note(f"recall: {one.name}", doubt)
            tally.note("stopped", doubt or not one.report.passed)
    scores = {"precision": hits / flagged if flagged else 0.0, "recall": hits / bad if bad else 0.0}
    return {**tally.summary(), **scores}
