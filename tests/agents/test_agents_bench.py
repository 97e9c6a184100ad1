"""The role bench asks as the loop does: each analyst under a schema with the ids of its own evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from agents.bench import UNSEEN, role_scores
from agents.bench.__main__ import main
from agents.episodes import answer_text, draw_episode
from agents.render import render_messages
from agents.roles import load_roles
from agents.structured import output_schema
from envsim import registry
from envsim.api import Message
from trainer.policy import Completion

LAKE = registry.get("lake")
SEED, N = 5, 60


class Teacher:
    """Gives the teacher's answer to every prompt of the bench; keeps the schema of each and the size of each call."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.schemas: dict[str, Any] = {}
        self.cases: dict[str, tuple[str, list[str], str]] = {}
        rng, roles = np.random.default_rng(np.random.SeedSequence([SEED, UNSEEN])), load_roles()
        for _ in range(N):
            role, inputs, answer = draw_episode(LAKE, rng)
            ids = [failure.id for failure in inputs["evidence"].failures]
            prompt = json.dumps(render_messages(roles[role], "compact", inputs))
            self.cases[prompt] = (role, ids, answer_text(answer))

    def generate(
        self, prompts: Sequence[list[Message]], *, schema: dict[str, Any] | None = None, **_: Any
    ) -> list[list[Completion]]:
        self.sizes.append(len(prompts))
        texts = []
        for prompt in map(json.dumps, prompts):
            self.schemas[prompt] = schema
            texts.append(self.cases[prompt][2])
        return [[Completion(text=text, prompt_tokens=1, tokens=1, finish_reason="stop")] for text in texts]


@pytest.mark.parametrize("constrained", [True, False])
def test_answers_are_scored_under_the_schema_of_their_own_case(constrained: bool) -> None:
    teacher, roles = Teacher(), load_roles()
    scores = role_scores(teacher, LAKE, N, SEED, constrained=constrained)
    assert sum(score["n"] for score in scores.values()) == N
    assert all((score["valid"], score["agreement"]) == (1.0, 1.0) for score in scores.values())
    for prompt, (role, ids, _) in teacher.cases.items():
        expected = output_schema(
            roles[role].output_type, LAKE, LAKE.default_config(), style="compact", evidence_ids=ids
        )
        assert teacher.schemas[prompt] == (expected if constrained else None)


def test_equal_schemas_are_decoded_together() -> None:
    teacher = Teacher()
    role_scores(teacher, LAKE, N, SEED, constrained=True)
    analysts = {tuple(ids) for role, ids, _ in teacher.cases.values() if role == "failure_analyst"}
    others = {role for role, _, _ in teacher.cases.values()} - {"failure_analyst"}
    assert len(analysts) > 1
    assert len(teacher.sizes) == len(analysts) + len(others)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--n", "0"], "--n 0, expected at least 2"),
        (["--drawn", "-1"], "--drawn -1, expected at least 0"),
        (["--max-tokens", "1"], "--max-tokens 1, expected at least 16"),
        (["--url", "ftp://x"], "base_url"),
        (["--run", "/nope"], "--run /nope holds no stages"),
        (["--threads", "0"], "--threads 0, expected at least 1"),
        (["--seed", "-1"], "--seed -1, expected at least 0"),
        (["--model", "/nope"], "'/nope' is no directory"),
    ],
)
def test_bad_flags_are_one_line(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
