"""Agreement with the teacher's rule on invented evidence, in the compact style, with and without a constraint.

For each role the share of valid answers and their agreement; and *direction*: how often a proposal moves the right way
when one cell's evidence turns from hopeless to learnable.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from agents import teacher
from agents.checks import semantic_checks
from agents.episodes import draw_config, draw_episode, draw_evidence
from agents.render import render_messages
from agents.roles import load_roles
from agents.rolespec import RoleSpec
from agents.schemas import Budget, Critique, Diagnosis, Evidence, Proposal
from agents.structured import output_schema, read_answer
from envsim.api import Environment, Message
from trainer.policy import Policy

SIGN = {"up": 1, "keep": 0, "down": -1}
UNSEEN = 0xBE9C
"""Marks the bench's random stream, so that no episode of a warm start is in it."""


def role_scores(policy: Policy, environment: Environment, n: int, seed: int, *, constrained: bool) -> dict[str, Any]:
    """By role: ``n`` answers, the share that is valid, and the mean agreement with the teacher (invalid counts 0)."""
    roles = load_roles()
    rng = np.random.default_rng(np.random.SeedSequence([seed, UNSEEN]))
    drawn = defaultdict(list)
    for _ in range(n):
        role, inputs, answer = draw_episode(environment, rng)
        drawn[role].append((inputs, answer))
    return {
        role: _scored(policy, environment, roles[role], cases, constrained=constrained)
        for role, cases in sorted(drawn.items())
    }


def _scored(
    policy: Policy,
    environment: Environment,
    role: RoleSpec,
    cases: list[tuple[dict[str, Any], BaseModel]],
    *,
    constrained: bool,
) -> dict[str, float]:
    config = environment.default_config()
    schemas = [
        output_schema(
            role.output_type,
            environment,
            config,
            style="compact",
            evidence_ids=[failure.id for failure in inputs["evidence"].failures],
        )
        for inputs, _ in cases
    ]
    prompts = [render_messages(role, "compact", inputs) for inputs, _ in cases]
    texts = _answers(policy, role, prompts, schemas if constrained else [None] * len(cases))
    valid, agreed = [], []
    for (inputs, wanted), schema, text in zip(cases, schemas, texts, strict=True):
        validate = semantic_checks(
            environment, config, style="compact", evidence=inputs["evidence"], bounds=inputs.get("bounds")
        )
        found, errors = read_answer(text, schema, role.output_type, validate)
        valid.append(not errors)
        agreed.append(agreement(found, wanted) if found is not None and not errors else 0.0)
    return {"n": len(cases), "valid": float(np.mean(valid)), "agreement": float(np.mean(agreed))}


def _answers(
    policy: Policy, role: RoleSpec, prompts: Sequence[list[Message]], schemas: Sequence[dict[str, Any] | None]
) -> list[str]:
    """Greedy answers in the order of the prompts; those under equal schemas are decoded together."""
    groups = defaultdict(list)
    for index, schema in enumerate(schemas):
        groups[json.dumps(schema)].append(index)
    texts = [""] * len(prompts)
    for indices in groups.values():
        completions = policy.generate(
            [prompts[index] for index in indices],
            max_new_tokens=role.limits.max_new_tokens.compact,
            temperature=0.0,
            schema=schemas[indices[0]],
        )
        for index, [completion] in zip(indices, completions, strict=True):
            texts[index] = completion.text
    return texts


def agreement(answer: BaseModel, wanted: BaseModel) -> float:
    """Share of an answer's decisions that are the teacher's: standings, steps of each knob, verdict, budget."""
    match answer, wanted:
        case Diagnosis(), Diagnosis():
            return float(np.mean([answer.cells.get(cell) == kind for cell, kind in wanted.cells.items()]))
        case Proposal(), Proposal():
            said, right = _steps(answer), _steps(wanted)
            return float(np.mean([said.get(path, 0) == right.get(path, 0) for path in said.keys() | right.keys()]))
        case Critique(), Critique():
            return float(answer.verdict == wanted.verdict)
        case Budget(), Budget():
            return float(answer.model_dump(exclude={"reason"}) == wanted.model_dump(exclude={"reason"}))
        case _:
            msg = f"cannot compare {type(answer).__name__} with {type(wanted).__name__}"
            raise TypeError(msg)


def _steps(proposal: Proposal) -> dict[str, int]:
    return {change.path: SIGN.get(change.op, 0) for change in proposal.changes}


def direction(policy: Policy, environment: Environment, n: int, seed: int) -> dict[str, float]:
    """Pairs of evidence that differ in one cell, hopeless in the one and learnable in the other, all else equal.

    Returns the share of pairs whose proposed step on that cell's data ratio is higher for the learnable one (right),
    lower (wrong), or the same; invalid answers count as no step.
    """
    role = load_roles()["config_designer"]
    rng = np.random.default_rng(np.random.SeedSequence([seed, UNSEEN, 1]))
    prompts, chosen = [], []
    for _ in range(n):
        config = draw_config(environment, rng)
        evidence = draw_evidence(environment, config, rng)
        cell = str(rng.choice(environment.cells()))
        chosen.append(f"{cell}.data_ratio")
        for success in (0.0, float(rng.uniform(0.15, 0.7))):
            prompts.append(render_messages(role, "compact", _designer_inputs(with_success(evidence, cell, success))))
    schema = output_schema(Proposal, environment, environment.default_config(), style="compact")
    steps = []
    for text, path in zip(_answers(policy, role, prompts, [schema] * len(prompts)), np.repeat(chosen, 2), strict=True):
        found, errors = read_answer(text, schema, Proposal, lambda _: [])
        steps.append(_steps(found).get(str(path), 0) if found is not None and not errors else 0)
    moved = np.sign(np.array(steps[1::2]) - np.array(steps[::2]))
    return {name: float(np.mean(moved == sign)) for name, sign in (("right", 1), ("same", 0), ("wrong", -1))}


def with_success(evidence: Evidence, cell: str, success: float) -> Evidence:
    """The evidence with one cell's success replaced and its share set to 12 %, where every step is open."""
    cells = [
        c.model_copy(update={"valid": success, "knobs": {**c.knobs, "data_ratio": 0.12}}) if c.cell == cell else c
        for c in evidence.cells
    ]
    return evidence.model_copy(update={"cells": cells})


def _designer_inputs(evidence: Evidence) -> dict[str, Any]:
    return {
        "evidence": evidence,
        "diagnosis": teacher.diagnose(evidence),
        "gate_report": None,
        "conditions": [],
    }
