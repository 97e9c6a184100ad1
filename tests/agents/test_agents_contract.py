"""The contract of asking a role, on the scripted stand-in and on the embedded model under xgrammar."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agents_fakes import ScriptedPolicy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from role_contract import CONFIG, LAKE, check

from agents.chat import CheckpointChatModel
from agents.consulting import consult
from tools.context import ToolContext
from tools.log import ToolLog
from tools.registry import toolbox
from trainer.checkpoint import resolve
from trainer.policy import TransformersPolicy
from trainer.spec import GenerationSettings


def test_a_scripted_stand_in_keeps_the_contract() -> None:
    def make(texts: Sequence[str]) -> BaseChatModel:
        return CheckpointChatModel(policy=ScriptedPolicy(list(texts)))

    check(make)


@pytest.fixture(scope="module")
def seedling() -> TransformersPolicy:
    return TransformersPolicy(resolve("seedling"), threads=1)


def test_the_embedded_model_keeps_the_contract(seedling: TransformersPolicy) -> None:
    check(lambda _: CheckpointChatModel(policy=seedling))


def test_the_embedded_model_calls_tools_by_constraint(seedling: TransformersPolicy, tmp_path: Path) -> None:
    """It was never taught to, and every turn is a call all the same: of a tool that there is, or counted as none."""

    def never(*_: Any) -> Any:
        raise AssertionError("these tools have no business with that")

    context = ToolContext(
        environment=LAKE,
        config=CONFIG,
        proposed=CONFIG,
        policy=never,
        style="compact",
        generation=GenerationSettings(),
        samples=2,
        seed=1,
        failures=tmp_path / "none.jsonl",
        history=[],
        evaluate=never,
        max_rollouts=0,
    )
    log = ToolLog()
    names = ("compare_configs", "measure_config", "read_history")
    found = consult(
        CheckpointChatModel(policy=seedling),
        [{"role": "user", "content": "look"}],
        toolbox(names, context, log),
        log,
        max_calls=2,
        max_new_tokens=160,
        most_characters=200,
    )
    assert 1 <= found.turns <= 2
    assert {call.name for call in log.calls} <= {*names, "unreadable"}
    assert all(len(str(message.content)) <= 200 for message in found.messages if isinstance(message, ToolMessage))
