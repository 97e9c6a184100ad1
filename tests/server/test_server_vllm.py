"""The embedded model behind a real vLLM server: evaluation, agreement with transformers, constrained role answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.chat import CheckpointChatModel
from agents.checks import semantic_checks
from agents.episodes import draw_episode
from agents.render import render_messages
from agents.roles import load_roles
from agents.structured import ask, output_schema
from envsim import registry
from trainer.checkpoint import resolve
from trainer.evaluate import evaluate, read_rollouts
from trainer.policy import TransformersPolicy
from trainer.serving.client import OpenAIPolicy
from trainer.serving.server import SERVED_NAME, Server
from trainer.spec import GenerationSettings

pytestmark = pytest.mark.server
GREEDY = GenerationSettings(max_new_tokens=96, temperature=0.0)


def test_a_real_server_evaluates_the_seedling_and_speaks_its_roles(seedling_server: Server, tmp_path: Path) -> None:
    lake, ref = registry.get("lake"), resolve("seedling")
    instances = lake.frozen_set("validation")[::3]
    local = TransformersPolicy(ref, threads=2)
    remote = OpenAIPolicy(seedling_server.base_url, SERVED_NAME)
    remote.check()
    reports = {
        name: evaluate(
            policy,
            lake,
            instances,
            set_name="validation",
            model_sha256=ref.sha256,
            style="compact",
            generation=GREEDY,
            directory=tmp_path / name,
        )
        for name, policy in (("remote", remote), ("local", local))
    }
    same = [
        a.answer == b.answer
        for a, b in zip(
            read_rollouts(tmp_path / "remote" / "validation.rollouts.jsonl"),
            read_rollouts(tmp_path / "local" / "validation.rollouts.jsonl"),
            strict=True,
        )
    ]
    # Two engines add in another order; near ties may fall the other way.
    assert np.mean(same) >= 0.97
    assert abs(reports["remote"].macro_valid - reports["local"].macro_valid) <= 0.03
    assert reports["remote"].n == len(instances)

    model = CheckpointChatModel(policy=remote)
    rng = np.random.default_rng(5)
    config, roles, spoken = lake.default_config(), load_roles(), set()
    for _ in range(12):
        name, inputs, _ = draw_episode(lake, rng)
        role = roles[name]
        schema = output_schema(role.output_type, lake, config, style="compact")
        validate = semantic_checks(
            lake, config, style="compact", evidence=inputs["evidence"], bounds=inputs.get("bounds")
        )
        messages = render_messages(role, "compact", inputs)
        answer = ask(model, role, messages, schema, role.output_type, validate, style="compact", seed=1)
        assert answer.parsed is not None, answer.errors
        assert not answer.fallback
        spoken.add(name)
    assert len(spoken) >= 3
