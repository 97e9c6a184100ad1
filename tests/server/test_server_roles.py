"""Roles behind real servers: the contract of asking on the seedling, tool calls within bounds on SmolLM2-135M."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from role_contract import CONFIG, LAKE, check
from role_sets import HISTORIAN

from agents.chat import chat_model, tool_model
from agents.consulting import CLOSING, consult
from agents.rolespec import ExternalModel, RoleSpec
from agents.structured import ask, output_schema
from tools.context import ToolContext
from tools.log import ToolLog
from tools.registry import toolbox
from trainer.checkpoint import resolve
from trainer.policy import PolicyError
from trainer.spec import GenerationSettings

pytestmark = pytest.mark.server

TEMPLATE = Path(__file__).parent / "smollm2_tools.jinja"
"""SmolLM2's own template, and beside it what hermes-style tool calls need."""
START_SECONDS = 420
TOOLS = ("measure_config", "read_history")


@contextmanager
def served(python: Path, model: str, log: Path, *more: str) -> Iterator[ExternalModel]:
    """A model behind a server of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    command += ["--served-model-name", "policy", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    # Eager: compiling takes longer than all that is asked here.
    command += ["--generation-config", "vllm", "--enforce-eager", *more]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not healthy(port):
            assert process.poll() is None, f"vLLM ended:\n{log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"vLLM was not healthy in time:\n{log.read_text()[-3000:]}"
            time.sleep(1)
        yield ExternalModel(base_url=f"http://127.0.0.1:{port}/v1", name="policy")
    finally:
        os.killpg(process.pid, 15)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)


@pytest.fixture(scope="module")
def smollm2(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalModel]:
    """SmolLM2-135M, which can be made to call tools."""
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    tool_calling = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--chat-template", str(TEMPLATE))
    with served(vllm_python, resolve("smollm2").path, log, "--max-model-len", "4096", *tool_calling) as model:
        yield model


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return True
    except OSError:
        return False


def test_a_real_server_keeps_the_contract(vllm_python: Path, tmp_path: Path) -> None:
    with served(vllm_python, resolve("seedling").path, tmp_path / "log", "--max-model-len", "1024") as seedling:
        check(lambda _: chat_model(seedling, {}))


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
    assert found.tokens > 0
    return found.messages


@pytest.mark.parametrize("way", ["the server's own", "by constraint"])
def test_a_role_calls_tools_within_its_bounds_and_then_answers(
    smollm2: ExternalModel, tmp_path: Path, way: str
) -> None:
    log = ToolLog()
    model = tool_model(smollm2, {}) if way == "the server's own" else chat_model(smollm2, {})
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
    answer = ask(chat_model(smollm2, {}), ROLE, messages, schema, ROLE.output_type, lambda _: [])
    assert answer.parsed is not None, answer.errors
    assert answer.parsed.trend in ("rising", "flat", "falling")


def test_a_server_that_cannot_be_asked_is_told_of(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = ExternalModel(base_url=f"http://127.0.0.1:{probe.getsockname()[1]}/v1", name="policy")
    with pytest.raises(PolicyError, match="failed to call tools: Connection error"):
        look(tool_model(nowhere, {}), ToolLog(), tmp_path, calls=1)
