"""Role episodes: every answer is one that a role may give, and follows from what its prompt shows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from agents import teacher
from agents.bench import agreement, with_success
from agents.changes import apply_changes
from agents.checks import semantic_checks
from agents.episodes import answer_text, draw_config, draw_episode, draw_evidence, episodes
from agents.episodes.planted import World, draw_judgement, draw_planted, measured
from agents.episodes.weaknesses import WEAKNESSES, Weakness, WeakPolicy
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
    assert list(episodes(LAKE, 20, 3, 0)) == list(episodes(LAKE, 20, 3, 0))
    assert list(episodes(LAKE, 20, 3, 0)) != list(episodes(LAKE, 20, 4, 0))


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
        ({"3x3": 90, "4x4": 50, "5x5": 15, "6x6": 10}, "5x5"),
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


@cache
def world() -> World:
    """A few training tasks a cell, with the answers to each."""
    return World.of(LAKE, held_out=False, a_cell=8, seed=3)


def test_weak_answers_show_their_weakness_and_right_ones_are_right() -> None:
    shown: Counter[str] = Counter()
    for known in world().known:
        assert known.right[1].valid
        for weakness in WEAKNESSES:
            if weakness.name in known.wrong:
                text, verdict = known.wrong[weakness.name]
                assert LAKE.score(known.instance, text) == verdict
                assert verdict.outcome in weakness.outcomes
                shown[weakness.name] += 1
    assert min(shown[weakness.name] for weakness in WEAKNESSES) >= len(world().known) // 3


@pytest.mark.parametrize("weakness", WEAKNESSES, ids=lambda weakness: weakness.name)
def test_a_planted_weakness_rules_among_the_failures_of_its_policy(weakness: Weakness) -> None:
    policy = WeakPolicy(weakness, dict.fromkeys(LAKE.cells(), 0.3))
    seen = measured(world(), policy, np.random.default_rng(1))
    failed = {outcome: n for outcome, n in seen.outcomes.items() if outcome not in ("optimal", "valid_suboptimal")}
    assert sum(failed.get(outcome, 0) for outcome in weakness.outcomes) >= 0.7 * sum(failed.values())
    strong = WeakPolicy(weakness, dict.fromkeys(LAKE.cells(), 1.0))
    assert measured(world(), strong, np.random.default_rng(1)).macro_valid == 1.0


def test_the_truth_of_planted_evidence_is_what_the_teacher_reads() -> None:
    rng = np.random.default_rng(5)
    knobs = LAKE.knobs(world().config)
    rares = set()
    for _ in range(10):
        planted = draw_planted(world(), rng)
        proposal = teacher.propose(planted.evidence, planted.diagnosis, knobs, None, [])
        mark = next(cell for cell in planted.evidence.cells if cell.cell == planted.mark)
        assert mark.top_fault in planted.policy.weakness.outcomes
        # Where most groups would teach little, the rule leaves the share as it is.
        rare = planted.policy.weakness.knob is None and teacher.percent5(mark.valid) < teacher.FERTILE
        op = {change.path: change.op for change in proposal.changes}[planted.wanted]
        assert op == ("keep" if rare else "up")
        rares.add(rare)
    assert rares == {True, False}


def test_good_proposals_pass_the_gates_and_bad_ones_are_bad() -> None:
    rng = np.random.default_rng(2)
    good, *bad = (draw_judgement(world(), rng, good=number == 0) for number in range(5))
    assert good.report.passed
    assert (good.kind, good.name) == ("good", "teacher")
    for one in bad:
        standings = one.planted.diagnosis.cells
        wrong = [
            change
            for change in one.proposal.changes
            if change.path.endswith(".data_ratio")
            and change.op == ("down" if standings[change.path.split(".")[0]] == "learnable" else "up")
        ]
        assert len(wrong) >= 2 if one.name == "against the evidence" else not one.report.passed


def test_the_stream_holds_as_many_planted_episodes_as_asked_for() -> None:
    invented = list(episodes(LAKE, 6, 3, planted=0.0))
    half = list(episodes(LAKE, 12, 3, planted=0.5))
    assert half[::2] == invented
    assert half == list(episodes(LAKE, 12, 3, planted=0.5))
    assert {row["role"] for row in half[1::2]} == {"failure_analyst", "config_designer", "safety_critic"}
    config = LAKE.default_config()
    for row in half[1::2]:
        role = ROLES[row["role"]]
        schema = output_schema(role.output_type, LAKE, config, style="compact")
        validate = semantic_checks(LAKE, config, style="compact")
        found, errors = read_answer(row["answer"], schema, role.output_type, validate)
        assert found is not None
        assert errors == []
