"""A policy as a chat model: counts and finish reasons are filled, and a schema reaches the policy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from agents_fakes import ScriptedPolicy
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from listening import answering

from agents.chat import CheckpointChatModel, chat_model, to_messages, tool_model
from agents.designers import get_designer
from agents.rolespec import ExternalModel
from agents.schemas import Budget

GOOD = '{"reason": "r", "steps": 20, "learning_rate_scale": 1.0}'


class Seen(BaseCallbackHandler):
    """Counts what a tracer would see."""

    def __init__(self) -> None:
        self.starts: list[list[Any]] = []
        self.ends = 0

    def on_chat_model_start(self, serialized: dict[str, Any], messages: Sequence[Any], **kwargs: Any) -> None:  # noqa: ARG002
        self.starts.append(list(messages))

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:  # noqa: ARG002
        self.ends += 1


def test_an_answer_carries_its_cost_and_reason() -> None:
    policy = ScriptedPolicy(["four"], finish_reason="length")
    message = CheckpointChatModel(policy=policy).invoke([SystemMessage("ab"), HumanMessage("cde")])
    assert message.text == "four"
    assert message.usage_metadata == {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9}
    assert message.response_metadata["finish_reason"] == "length"
    assert policy.calls[0]["prompts"] == [
        [{"role": "system", "content": "ab"}, {"role": "user", "content": "cde"}],
    ]


def test_bound_arguments_reach_the_policy() -> None:
    policy = ScriptedPolicy(["x"])
    schema = {"type": "object"}
    bound = CheckpointChatModel(policy=policy, seed=1).bind(
        response_schema=schema, max_new_tokens=9, temperature=0.5, seed=0
    )
    bound.invoke("hello")
    call = policy.calls[0]
    assert (call["schema"], call["max_new_tokens"], call["temperature"], call["seed"]) == (schema, 9, 0.5, 0)


def test_tracers_see_every_question() -> None:
    seen = Seen()
    CheckpointChatModel(policy=ScriptedPolicy(["x"])).invoke("hello", {"callbacks": [seen]})
    assert (len(seen.starts), seen.ends) == (1, 1)


def test_structured_output_is_validated() -> None:
    model = CheckpointChatModel(policy=ScriptedPolicy([GOOD]))
    assert model.with_structured_output(Budget).invoke("x") == Budget(reason="r", steps=20, learning_rate_scale=1.0)
    with pytest.raises(ValueError, match="no JSON object"):
        CheckpointChatModel(policy=ScriptedPolicy(["no"])).with_structured_output(Budget).invoke("x")
    with pytest.raises(ValueError, match="cut off"):
        CheckpointChatModel(policy=ScriptedPolicy([GOOD], finish_reason="length")).with_structured_output({}).invoke(
            "x"
        )


def test_structured_output_can_keep_the_raw_message() -> None:
    model = CheckpointChatModel(policy=ScriptedPolicy(["no"]))
    result = model.with_structured_output(Budget, include_raw=True).invoke("x")
    assert isinstance(result["raw"], AIMessage)
    assert result["parsed"] is None
    assert "no JSON object" in str(result["parsing_error"])


def test_what_a_policy_cannot_do_is_refused() -> None:
    model = CheckpointChatModel(policy=ScriptedPolicy(["x"]))
    with pytest.raises(ValueError, match="stop sequences"):
        model.invoke("x", stop=["a"])
    with pytest.raises(ValueError, match=r"unknown arguments \['top_p'\]"):
        model.invoke("x", top_p=0.5)
    with pytest.raises(ValueError, match="expected tool_choice 'required'"):
        model.bind_tools([Budget], tool_choice="auto")
    with pytest.raises(ValueError, match="text only"):
        to_messages([HumanMessage([{"type": "image_url", "image_url": {"url": "data:,"}}])])


def test_a_models_name_is_resolved() -> None:
    policies: dict[str, Any] = {"inherit": ScriptedPolicy(["now"]), "base": ScriptedPolicy(["then"])}
    assert chat_model("base", policies).invoke("x").text == "then"
    with pytest.raises(KeyError, match="this run has base, inherit"):
        chat_model("champion", policies)
    external = chat_model(ExternalModel(base_url="http://127.0.0.1:9/v1", name="other"), policies)
    assert isinstance(external, CheckpointChatModel)
    assert external.model_name == "other"


CALL = {"tool": "Budget", "arguments": {"reason": "r", "steps": 20, "learning_rate_scale": 1.0}}


def test_tools_are_called_by_constraint() -> None:
    policy = ScriptedPolicy([json.dumps(CALL)])
    message = CheckpointChatModel(policy=policy).bind_tools([Budget]).invoke("set it")
    [call] = message.tool_calls
    assert (call["name"], call["args"]) == ("Budget", CALL["arguments"])
    assert message.content == ""
    asked = policy.calls[0]
    assert asked["schema"]["anyOf"][0]["properties"]["tool"] == {"type": "string", "enum": ["Budget"]}
    assert asked["prompts"][0][-1]["content"].startswith("set it\n\nTools:\n- Budget: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("no", "there is no JSON object"),
        ('{"tool": "Budget"}', 'expected {"tool": name, "arguments": {...}}'),
        ('{"tool": 1, "arguments": {}}', 'expected {"tool": name'),
        ('{"tool": "Budget", "arguments": []}', "arguments: expected an object, got list"),
    ],
)
def test_what_is_no_call_comes_back_as_such(text: str, error: str) -> None:
    message = CheckpointChatModel(policy=ScriptedPolicy([text])).bind_tools([Budget]).invoke("x")
    assert message.tool_calls == []
    assert error in str(message.invalid_tool_calls[0]["error"])
    assert message.text == text


def test_calls_and_results_are_read_as_text_and_no_speaker_comes_twice() -> None:
    call = AIMessage("", tool_calls=[{"name": "look", "args": {"n": 1}, "id": "7"}])
    conversation = [SystemMessage("s"), HumanMessage("a"), call, ToolMessage("[]", tool_call_id="7", name="look")]
    assert to_messages([*conversation, HumanMessage("b")]) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": '{"tool":"look","arguments":{"n":1}}'},
        {"role": "user", "content": "look gave: []\n\nb"},
    ]


def test_tools_behind_a_url_are_called_the_servers_own_way() -> None:
    spec = ExternalModel(base_url="http://127.0.0.1:9/v1", name="other")
    assert isinstance(tool_model(spec, {}), ChatOpenAI)
    assert isinstance(tool_model("base", {"base": ScriptedPolicy(["x"])}), CheckpointChatModel)


@pytest.mark.parametrize(
    ("given", "sent", "left_out"),
    [
        ({}, "response_format", "structured_outputs"),
        ({"constraint": "json_schema"}, "response_format", "structured_outputs"),
        ({"constraint": "grammar"}, "structured_outputs", "response_format"),
    ],
)
def test_a_schema_goes_to_a_url_as_the_file_says(given: dict[str, Any], sent: str, left_out: str) -> None:
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    with answering("{}") as (url, requests):
        model = chat_model(ExternalModel(base_url=url, name="judge", **given), {})
        assert model.bind(response_schema=schema).invoke("?").text == "{}"
        designer = get_designer({"name": "external", "base_url": url, "model": "judge", **given})
        assert isinstance(designer.model, ExternalModel)
        chat_model(designer.model, {}).bind(response_schema=schema).invoke("?")
    assert [(sent in request, left_out in request) for request in requests] == [(True, False)] * 2
