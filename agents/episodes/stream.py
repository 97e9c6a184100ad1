"""The episodes that a model may learn the roles from: rows of a role, its messages and the right answer.

Half of them, unless told otherwise, rest on rollouts of policies with planted weaknesses; the other half on evidence
that was invented. Either way the answer is the teacher's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import BaseModel

from agents import teacher
from agents.episodes.drawn import draw_episode
from agents.episodes.planted import World, draw_judgement, draw_planted
from agents.render import render_messages
from agents.roles import load_roles
from envsim.api import Environment

PLANTED = 0.5
ROLES = ("failure_analyst", "config_designer", "safety_critic")
JUDGED = 64
"""Proposals whose gates were measured, from which critics' episodes are drawn: measuring takes a second each."""


def answer_text(answer: BaseModel) -> str:
    """The answer as the compact output schema has it: no version, changes by steps only."""
    data = answer.model_dump(mode="json", exclude={"schema_version"})
    for key in ("changes", "conditions"):
        if key in data:
            data[key] = [{"path": c["path"], "op": c["op"]} for c in data[key]]
    return json.dumps(data)


def episodes(environment: Environment, n: int, seed: int, planted: float = PLANTED) -> Iterator[dict[str, Any]]:
    """n episodes as JSON rows; a share ``planted`` of them, evenly spread, rests on planted weaknesses."""
    roles = load_roles()
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0xE915]))
    real = planted_episodes(environment, seed)
    for number in range(n):
        if int((number + 1) * planted) > int(number * planted):
            role, inputs, answer = next(real)
        else:
            role, inputs, answer = draw_episode(environment, rng)
        messages = render_messages(roles[role], "compact", inputs)
        yield {"role": role, "messages": messages, "answer": answer_text(answer)}


def planted_episodes(environment: Environment, seed: int) -> Iterator[tuple[str, dict[str, Any], BaseModel]]:
    """Without end: analyst, designer and critic in turn, on training tasks."""
    world = World.of(environment, held_out=False, seed=seed)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x91A7]))
    knobs = environment.knobs(world.config)
    judged: list[Any] = []
    while True:
        for role in ROLES:
            if role == "safety_critic":
                good = bool(rng.random() < 0.5)
                if len(judged) < JUDGED:
                    judged.append(draw_judgement(world, rng, good=good))
                case = judged[int(rng.integers(len(judged)))]
                evidence, proposal, report = case.planted.evidence, case.proposal, case.report
                inputs = {"evidence": evidence, "proposal": proposal, "gate_report": report}
                yield role, inputs, teacher.critique(evidence, proposal, report)
                continue
            planted = draw_planted(world, rng)
            diagnosis = planted.diagnosis
            if role == "failure_analyst":
                yield role, {"evidence": planted.evidence}, diagnosis
            else:
                inputs = {"evidence": planted.evidence, "diagnosis": diagnosis, "gate_report": None, "conditions": []}
                yield role, inputs, teacher.propose(planted.evidence, diagnosis, knobs, None, [])
