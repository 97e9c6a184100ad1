"""SmolLM2-135M behind a real server: the full style, a JSON Schema, tool calls."""

from __future__ import annotations

import json

import pytest
from openai import OpenAI

from trainer.serving.server import SERVED_NAME, Server

pytestmark = pytest.mark.server
TOOL = {
    "type": "function",
    "function": {
        "name": "measure",
        "description": "Measure a configuration of the environment.",
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
