"""Drawn reference plans: always optimal by the verifier, the same for the same seed, and really different ones."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from envsim import registry
from envsim.lake.config import EnvConfig
from envsim.lake.reference import TURNS, drawn_plan, reference_plan
from envsim.lake.text import render

LAKE = registry.get("lake")


def test_drawn_plans_are_optimal_and_various() -> None:
    several = 0
    instances = LAKE.generate(LAKE.default_config(), 64, 5).instances
    for instance in instances:
        answers = [render(drawn_plan(instance, seed), "compact") for seed in range(12)]
        assert all(LAKE.score(instance, answer).optimal for answer in answers)
        assert render(drawn_plan(instance, 3), "compact") == answers[3]
        several += len(set(answers)) > 1
    assert several > len(instances) / 2


def test_demonstrations_are_valid_and_some_are_late() -> None:
    verdicts = []
    for instance in LAKE.generate(LAKE.default_config(), 64, 6).instances:
        answers = [LAKE.demonstration(instance, "compact", seed) for seed in range(4)]
        assert LAKE.demonstration(instance, "compact", 2) == answers[2]
        verdicts += [LAKE.score(instance, answer) for answer in answers]
    assert all(verdict.valid for verdict in verdicts)
    assert 0.02 < sum(not verdict.optimal for verdict in verdicts) / len(verdicts) < 0.5


def test_a_careless_demonstrator_overlooks_holes_and_agents() -> None:
    instances = LAKE.generate(LAKE.default_config(), 96, 7).instances
    outcomes = {
        careless: Counter(
            LAKE.score(instance, LAKE.demonstration(instance, "compact", seed, careless)).outcome
            for instance in instances
            for seed in range(3)
        )
        for careless in (0.0, 0.5, 1.0)
    }
    assert set(outcomes[0.0]) <= {"optimal", "valid_suboptimal"}
    faults = ("hole", "vertex_conflict", "edge_conflict")
    # Nothing else goes wrong: such a plan is the best one of an easier task.
    assert set(outcomes[1.0]) <= {"optimal", *faults}
    assert 0 < sum(outcomes[0.5][f] for f in faults) < sum(outcomes[1.0][f] for f in faults)
    assert all(outcomes[1.0][f] for f in ("hole", "vertex_conflict"))


def test_plans_with_two_goals_an_agent_visit_both() -> None:
    asked = EnvConfig.model_validate(EnvConfig().model_dump() | {"goals": {2: 1}})
    outcomes: dict[float, Counter[str]] = {0.0: Counter(), 1.0: Counter()}
    for instance in LAKE.generate(asked, 48, 8).instances:
        assert instance.via is not None
        assert all(LAKE.score(instance, render(drawn_plan(instance, seed), "compact")).optimal for seed in range(4))
        bare = instance.model_copy(update={"certificate": None})
        assert LAKE.score(instance, render(reference_plan(bare), "compact")).optimal
        for careless, seen in outcomes.items():
            seen.update(
                LAKE.score(instance, LAKE.demonstration(instance, "compact", s, careless)).outcome for s in (0, 1)
            )
    assert set(outcomes[0.0]) <= {"optimal", "valid_suboptimal"}
    assert set(outcomes[1.0]) <= {"optimal", "hole", "vertex_conflict", "edge_conflict"}
    assert outcomes[1.0]["hole"]


def test_turns_keep_neighbours_and_are_all_different() -> None:
    cells = [(r, c) for r in range(3) for c in range(5)]
    images = []
    for turn, swapped in TURNS:
        image = [turn(cell, 3, 5) for cell in cells]
        rows, columns = (5, 3) if swapped else (3, 5)
        assert sorted(image) == [(r, c) for r in range(rows) for c in range(columns)]
        for (a, b), (x, y) in zip(pairwise(cells), pairwise(image), strict=True):
            assert abs(a[0] - b[0]) + abs(a[1] - b[1]) == abs(x[0] - y[0]) + abs(x[1] - y[1])
        images.append(tuple(image))
    assert len(set(images)) == len(TURNS)
