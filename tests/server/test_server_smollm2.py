"""SmolLM2-135M behind a real server: the full style, a JSON Schema, tool calls."""

from __future__ import annotations

import json

import pytest
from openai import OpenAI

from envsim import registry
from trainer.serving.agreement import agreement
from trainer.serving.client import OpenAIPolicy
from trainer.serving.server import SERVED_NAME, Server
from trainer.serving.settings import Constraint
from trainer.spec import ModelRef

pytestmark = pytest.mark.server
TOOL = {
    "type": "function",
    "function": {
        "name": "measure",
        "description": "Measure a configuration of the environment.",
        # vLLM holds only the arguments of a strict tool to their schema.
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"size": {"type": "integer", "minimum": 3, "maximum": 9}},
            "required": ["size"],
            "additionalProperties": False,
        },
    },
}


def test_a_call_of_a_tool_can_be_required(smollm2_server: Server) -> None:
    client = OpenAI(base_url=smollm2_server.base_url, api_key="none", max_retries=0)
    answer = client.chat.completions.create(
        model=SERVED_NAME,
        messages=[{"role": "user", "content": "Measure maps of size 5."}],
        tools=[TOOL],  # type: ignore[list-item]
        tool_choice="required",
        temperature=0,
        max_tokens=64,
    )
    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "measure"
    assert 3 <= json.loads(call.function.arguments)["size"] <= 9


def test_it_is_asked_in_the_full_style_and_graded(smollm2_server: Server, smollm2: ModelRef) -> None:
    lake = registry.get("lake")
    instances = lake.frozen_set("validation")[::40]
    prompts = [lake.prompt(instance, "full") for instance in instances]
    policy = OpenAIPolicy(smollm2_server.base_url, SERVED_NAME, fate=smollm2_server.fate)
    answers = policy.generate(prompts, max_new_tokens=96, temperature=0.0)
    outcomes = {lake.score(i, answer.text).outcome for i, [answer] in zip(instances, answers, strict=True)}
    assert outcomes <= set(lake.outcomes)
    assert sum(answer.tokens for [answer] in answers) > 10 * len(instances)
    # In two engines of float32 the same tokens up to near ties, by its own template and not the one with tools.
    found = agreement(smollm2, smollm2_server.base_url, SERVED_NAME, prompts[:4], max_new_tokens=48)
    print(outcomes, found)
    assert found.same_prompts == 4
    assert found.share >= 0.98
    assert found.largest_gap <= 0.01


@pytest.mark.parametrize("constraint", ["json_schema", "grammar"])
def test_a_schema_binds_it(smollm2_server: Server, constraint: Constraint) -> None:
    policy = OpenAIPolicy(smollm2_server.base_url, SERVED_NAME, constraint=constraint)
    policy.check()
    schema = {
        "type": "object",
        "properties": {
            "verdict": {"enum": ["approve", "revise"]},
            "steps": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["verdict", "steps"],
        "additionalProperties": False,
    }
    question = [{"role": "system", "content": "Answer in JSON."}, {"role": "user", "content": "Is the plan good?"}]
    [answers] = policy.generate([question], max_new_tokens=64, temperature=1.0, samples=6, seed=3, schema=schema)
    for answer in answers:
        assert answer.finish_reason == "stop"
        said = json.loads(answer.text)
        assert set(said) == {"verdict", "steps"}
        assert 1 <= said["steps"] <= 9
        if constraint == "grammar":
            assert answer.text == json.dumps(said)
