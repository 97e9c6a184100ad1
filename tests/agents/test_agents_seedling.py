"""The embedded model in the roles, against the same architecture at random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.bench import direction, role_scores
from envsim import registry
from trainer.checkpoint import resolve
from trainer.policy import Policy, TransformersPolicy
from trainer.seedling.baseline import randomised

LAKE = registry.get("lake")


@pytest.fixture(scope="module")
def seedling() -> Policy:
    return TransformersPolicy(resolve("seedling"), threads=1, batch_size=32)


@pytest.fixture(scope="module")
def chance(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder: Path = tmp_path_factory.mktemp("random")
    return TransformersPolicy(randomised(resolve("seedling"), folder / "model", 0), threads=1, batch_size=32)


def test_proposals_follow_the_evidence(seedling: Policy, chance: Policy) -> None:
    """A cell turns from hopeless to learnable, all else equal: its share should go up, or down less."""
    ours, random = direction(seedling, LAKE, 80, 3), direction(chance, LAKE, 80, 3)
    assert ours["right"] >= 0.7
    assert ours["wrong"] <= 0.05
    assert abs(random["right"] - random["wrong"]) <= 0.15
    assert ours["right"] - ours["wrong"] >= random["right"] - random["wrong"] + 0.5


def test_roles_are_answered_validly_and_better_than_by_a_schema_alone(seedling: Policy, chance: Policy) -> None:
    ours = role_scores(seedling, LAKE, 120, 4, constrained=True)
    free = role_scores(seedling, LAKE, 120, 4, constrained=False)
    random = role_scores(chance, LAKE, 120, 4, constrained=True)
    for role in ("failure_analyst", "config_designer", "safety_critic", "trainer"):
        assert ours[role]["valid"] >= 0.95, role
        assert free[role]["valid"] >= 0.6, role
        assert ours[role]["agreement"] >= random[role]["agreement"] + 0.2, role
