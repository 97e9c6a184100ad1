"""Role episodes: every answer is one that a role may give, and follows from what its prompt shows."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest

from agents import teacher
from agents.bench import agreement, with_success
from agents.changes import apply_changes
from agents.checks import semantic_checks
from agents.episodes import answer_text, draw_config, draw_episode, draw_evidence, episodes
from agents.render import render_messages
from agents.roles import load_roles
from agents.structured import output_schema, read_answer
from envsim import registry

LAKE = registry.get("lake")
ROLES = load_roles()


def drawn(n: int, seed: int = 7) -> list[tuple[str, dict[str, object], object]]:
    rng = np.random.default_rng(seed)
    return [draw_episode(LAKE, rng) for _ in range(n)]


def test_the_same_seed_gives_the_same_episodes() -> None:
    assert list(episodes(LAKE, 20, 3)) == list(episodes(LAKE, 20, 3))
    assert list(episodes(LAKE, 20, 3)) != list(episodes(LAKE, 20, 4))


def test_every_answer_passes_the_parse_path_of_the_roles() -> None:
    config = LAKE.default_config()
    for name, inputs, answer in drawn(400):
        role = ROLES[name]
        schema = output_schema(role.output_type, LAKE, config, style="compact")
        validate = semantic_checks(
            LAKE, config, style="compact", evidence=inputs["evidence"], bounds=inputs.get("bounds")
        )
        found, errors = read_answer(answer_text(answer), schema, role.output_type, validate)
        assert errors == []
        assert found is not None
        assert agreement(found, answer) == 1.0


def test_equal_prompts_have_equal_answers() -> None:
    """What the prompt does not show must not decide: otherwise nobody could learn the rule from it."""
    answers: dict[str, set[str]] = defaultdict(set)
    rng = np.random.default_rng(0)
    for name, inputs, answer in drawn(300):
        evidence = inputs["evidence"]
        jitter = {
            c.cell: min(1.0, max(0.0, round(c.valid * 20) / 20 + rng.uniform(-0.02, 0.02))) for c in evidence.cells
        }
        for c in evidence.cells:
            evidence = evidence.model_copy(
                update={
                    "cells": [
                        x.model_copy(update={"valid": jitter[c.cell]}) if x.cell == c.cell else x
                        for x in evidence.cells
                    ]
                }
            )
        if name == "failure_analyst":
            text = json.dumps(render_messages(ROLES[name], "compact", {"evidence": evidence}))
            answers[text].add(answer_text(teacher.diagnose(evidence)))
            same = json.dumps(render_messages(ROLES[name], "compact", inputs))
            answers[same].add(answer_text(answer))
    assert answers
    assert all(len(found) == 1 for found in answers.values())


def test_the_teacher_moves_data_to_what_can_be_learnt() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        config = draw_config(LAKE, rng)
        evidence = with_success(draw_evidence(LAKE, config, rng), "5x5", 0.4)
        shares = {c.cell: c.knobs["data_ratio"] for c in evidence.cells}
        config = LAKE.with_values(config, {f"{cell}.data_ratio": share for cell, share in shares.items()})
        proposal = teacher.propose(evidence, teacher.diagnose(evidence), LAKE.knobs(config), None, [])
        before, after = LAKE.shares(config), LAKE.shares(apply_changes(LAKE, config, proposal.changes))
        standings = teacher.diagnose(evidence).cells
        learnable = [cell for cell, kind in standings.items() if kind == "learnable"]
        assert sum(after[c] for c in learnable) >= sum(before[c] for c in learnable) - 1e-6


@pytest.mark.parametrize(
    ("successes", "edge"),
    [
        ({"3x3": 90, "4x4": 50, "5x5": 10, "6x6": 0}, "5x5"),
        ({"3x3": 0, "4x4": 0, "5x5": 0, "6x6": 0}, "3x3"),
        ({"3x3": 100, "4x4": 100, "5x5": 0, "6x6": 0}, "5x5"),
        ({"3x3": 100, "4x4": 100, "5x5": 100, "6x6": 90}, "6x6"),
    ],
)
def test_the_frontier_is_the_hardest_cell_that_can_be_learnt(successes: dict[str, int], edge: str) -> None:
    assert teacher.frontier({cell: teacher.standing(s) for cell, s in successes.items()}) == edge


def test_the_critic_follows_the_gates_and_the_evidence() -> None:
    approved = revised = 0
    for name, inputs, answer in drawn(600):
        if name != "safety_critic":
            continue
        report = inputs["gate_report"]
        assert answer.verdict != "approve" or report.passed
        approved += answer.verdict == "approve"
        revised += answer.verdict == "revise"
    assert approved > 20
    assert revised > 20
