"""A role that calls tools: bounded, every call answered and counted, and no error of a tool or of the model ends it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents_fakes import ScriptedPolicy, characters
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from pydantic import Field

from agents.chat import CheckpointChatModel
from agents.consulting import CLOSING, READY, Consultation, consult, described
from envsim.api import EnvsimError, Message
from tools.log import Frozen, ToolLog, ToolResult, logged_tool

MESSAGES: list[Message] = [{"role": "user", "content": "look"}]


class Args(Frozen):
    n: int = Field(1, ge=1, le=9)


def counter(log: ToolLog) -> dict[str, StructuredTool]:
    """One tool that doubles a number, and refuses 7."""

    def call(args: Args) -> ToolResult:
        if args.n == 7:
            raise EnvsimError("seven is refused")
        return ToolResult({"twice": 2 * args.n}, tokens=3, rollouts=args.n)

    return {
        "double": logged_tool(log, name="double", description="Twice n.", args=Args, call=call, refusals=(EnvsimError,))
    }


def written(tool: str, **arguments: Any) -> str:
    return json.dumps({"tool": tool, "arguments": arguments})


def looked(texts: list[str], calls: int = 4) -> tuple[Consultation, ToolLog, ScriptedPolicy]:
    log, policy = ToolLog(), ScriptedPolicy(texts)
    model = CheckpointChatModel(policy=policy)
    found = consult(model, MESSAGES, counter(log), log, max_calls=calls, max_new_tokens=9, most_characters=120)
    return found, log, policy


def test_results_come_back_in_order_and_the_role_says_when_it_is_ready() -> None:
    found, log, policy = looked([written("double", n=2), written("double", n=3), written(READY)])
    told = [message for message in found.messages if isinstance(message, ToolMessage)]
    assert [message.content for message in told] == ['{"twice":4}', '{"twice":6}', "ok"]
    assert found.messages[-1] == HumanMessage(CLOSING)
    answers = [written("double", n=2), written("double", n=3), written(READY)]
    assert (found.turns, found.output_tokens) == (3, sum(map(len, answers)))
    # Every turn reads all that was said before it.
    read = [characters(call["prompts"][0]) for call in policy.calls]
    assert found.input_tokens == sum(read) > 3 * read[0] > 0
    assert [call.args for call in log.calls] == [{"n": 2}, {"n": 3}]
    assert (log.tokens(), log.rollouts()) == (6, 5)
    assert policy.calls[0]["max_new_tokens"] == 9
    assert 'double gave: {"twice":4}' in policy.calls[1]["prompts"][0][-1]["content"]


def test_a_server_is_told_of_closed_and_strict_tools() -> None:
    """Without both, vLLM 0.32 let SmolLM2 write arguments that no tool has until its answer was cut off."""
    function = described(counter(ToolLog())["double"])["function"]
    assert function["strict"] is True
    assert function["parameters"]["additionalProperties"] is False
    assert list(function["parameters"]["properties"]) == ["n"]


def test_the_last_call_allowed_ends_the_loop() -> None:
    found, log, policy = looked([written("double", n=1)], calls=2)
    assert (found.turns, len(log.calls), len(policy.calls)) == (2, 2, 2)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (written("double", n=0), "n: Input should be greater than or equal to 1; known arguments: n"),
        (written("double", m=1), "m: Extra inputs are not permitted"),
        (written("double", n="many"), "n: Input should be a valid integer"),
        (written("doubel"), "unknown tool 'doubel'; did you mean 'double'?"),
        (written("double", n=7), "seven is refused"),
        ("I would rather talk", "there is no JSON object in the answer; known tools: double, ready_to_answer"),
        (written("rm", path="/" + "x" * 5000), "unknown tool 'rm'; known: double"),
    ],
)
def test_an_error_is_told_and_counts(text: str, error: str) -> None:
    found, log, _ = looked([text, written(READY)])
    told = found.messages[2]
    assert isinstance(told, (ToolMessage, HumanMessage))
    assert error in str(told.content)
    assert len(str(told.content)) <= 120
    [call] = log.calls
    assert error in (call.error or "")
    assert len(json.dumps(call.model_dump())) < 1000


def test_a_fault_of_the_tool_itself_is_no_ones_answer() -> None:
    log = ToolLog()

    def broken(_: Args) -> ToolResult:
        raise ZeroDivisionError("a bug")

    tools = {"double": logged_tool(log, name="double", description="Twice n.", args=Args, call=broken)}
    model = CheckpointChatModel(policy=ScriptedPolicy([written("double")]))
    with pytest.raises(ZeroDivisionError):
        consult(model, MESSAGES, tools, log, max_calls=1, max_new_tokens=9, most_characters=120)
    assert log.calls[0].error == "ZeroDivisionError: a bug"


class Parallel(CheckpointChatModel):
    """Calls five times in one turn, as a server's model may."""

    def _generate(self, *_: Any, **__: Any) -> Any:
        calls = [{"name": "double", "args": {"n": n}, "id": f"c{n}"} for n in range(1, 6)]
        result = CheckpointChatModel(policy=ScriptedPolicy(["{}"])).generate([[HumanMessage("x")]])
        [[generation]] = result.generations
        generation.message = AIMessage("", tool_calls=calls)
        return result.model_copy(update={"generations": [generation]})


def test_every_call_of_a_turn_is_answered_though_not_every_one_is_made() -> None:
    log = ToolLog()
    found = consult(
        Parallel(policy=ScriptedPolicy(["x"])),
        MESSAGES,
        counter(log),
        log,
        max_calls=2,
        max_new_tokens=9,
        most_characters=120,
    )
    told = [message for message in found.messages if isinstance(message, ToolMessage)]
    assert [message.tool_call_id for message in told] == ["c1", "c2", "c3", "c4", "c5"]
    assert [call.args["n"] for call in log.calls] == [1, 2]
    assert told[-1].content == "error: not called, no calls are left"


@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=4), calls=st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_whatever_a_model_writes_the_loop_ends_and_counts(texts: list[str], calls: int) -> None:
    found, log, policy = looked(texts, calls)
    assert len(log.calls) == calls == len(policy.calls) == found.turns
    assert all(call.error for call in log.calls)
    assert all(len(str(message.content)) <= 120 for message in found.messages[2::2])
