"""Roles behind real servers: the contract of asking on the seedling, tool calls within bounds on SmolLM2-135M."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from role_contract import CONFIG, LAKE, check
from role_sets import HISTORIAN

from agents.chat import CheckpointChatModel, chat_model, tool_model
from agents.consulting import CLOSING, consult
from agents.rolespec import ExternalModel, RoleSpec
from agents.structured import ask, output_schema
from tools.context import ToolContext
from tools.log import ToolLog
from tools.registry import toolbox
from trainer.policy import PolicyError
from trainer.serving.client import OpenAIPolicy
from trainer.serving.server import SERVED_NAME, Server
from trainer.spec import GenerationSettings

pytestmark = pytest.mark.server

TOOLS = ("measure_config", "read_history")


@pytest.fixture(scope="module")
def caller(smollm2_server: Server) -> ExternalModel:
    """SmolLM2-135M, which can be made to call tools."""
    return ExternalModel(base_url=smollm2_server.base_url, name=SERVED_NAME)


def test_a_server_of_ours_keeps_the_contract(seedling_server: Server) -> None:
    policy = OpenAIPolicy(seedling_server.base_url, SERVED_NAME, constraint="grammar", fate=seedling_server.fate)
    check(lambda _: CheckpointChatModel(policy=policy))


def test_any_server_keeps_the_contract(seedling_server: Server) -> None:
    model = ExternalModel(base_url=seedling_server.base_url, name=SERVED_NAME)
    check(lambda _: chat_model(model, {}))


def context(tmp_path: Path) -> ToolContext:
    def never(*_: Any) -> Any:
        raise AssertionError("no tool of this role asks the policy")

    history = [{"stage": 1, "designer": "self", "changes": ["3x3.data_ratio up"], "accepted": True}]
    return ToolContext(
        environment=LAKE,
        config=CONFIG,
        proposed=None,
        policy=never,
        style="full",
        generation=GenerationSettings(),
        samples=2,
        seed=1,
        failures=tmp_path / "none.jsonl",
        history=history,
        evaluate=never,
        max_rollouts=0,
    )


ROLE = RoleSpec.model_validate(
    HISTORIAN | {"tools": TOOLS, "limits": {"max_tool_calls": 2, "max_new_tokens": {"full": 64}}}
)
MESSAGES = [
    {"role": "system", "content": "You keep the history of a curriculum. Look at it with your tools, then judge it."},
    {"role": "user", "content": "How does the training go? Read the history and measure the configuration."},
]


def look(model: Any, log: ToolLog, tmp_path: Path, calls: int) -> list[Any]:
    tools = toolbox(TOOLS, context(tmp_path), log)
    found = consult(model, MESSAGES, tools, log, max_calls=calls, max_new_tokens=64, most_characters=400)
    assert 1 <= found.turns <= calls + 1
    assert found.input_tokens > found.output_tokens > 0
    return found.messages


@pytest.mark.parametrize("way", ["the server's own", "by constraint"])
def test_a_role_calls_tools_within_its_bounds_and_then_answers(caller: ExternalModel, tmp_path: Path, way: str) -> None:
    log = ToolLog()
    model = tool_model(caller, {}) if way == "the server's own" else chat_model(caller, {})
    messages = look(model, log, tmp_path, calls=2)
    assert 1 <= len(log.calls) <= 2
    assert {call.name for call in log.calls} <= {*TOOLS, "nothing", "unreadable"}
    assert any(call.error is None for call in log.calls), log.calls
    # Every call has its answer, of bounded length, and the last word is the question for the note.
    asked = [call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    told = [message for message in messages if isinstance(message, ToolMessage)]
    assert [message.tool_call_id for message in told] == asked
    assert all(len(message.content) <= 400 for message in told)
    assert messages[-1].content == CLOSING
    schema = output_schema(ROLE.output_type, LAKE, CONFIG)
    answer = ask(chat_model(caller, {}), ROLE, messages, schema, ROLE.output_type, lambda _: [])
    assert answer.parsed is not None, answer.errors
    assert answer.parsed.trend in ("rising", "flat", "falling")


def test_a_server_that_cannot_be_asked_is_told_of(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = ExternalModel(base_url=f"http://127.0.0.1:{probe.getsockname()[1]}/v1", name="policy")
    with pytest.raises(PolicyError, match="failed to call tools: Connection error"):
        look(tool_model(nowhere, {}), ToolLog(), tmp_path, calls=1)
