"""The contract of asking a role, on the scripted stand-in and on the embedded model under xgrammar."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from agents_fakes import ScriptedPolicy
from langchain_core.language_models import BaseChatModel
from role_contract import check

from agents.chat import CheckpointChatModel
from trainer.checkpoint import resolve
from trainer.policy import TransformersPolicy


def test_a_scripted_stand_in_keeps_the_contract() -> None:
    def make(texts: Sequence[str]) -> BaseChatModel:
        return CheckpointChatModel(policy=ScriptedPolicy(list(texts)))

    check(make)


@pytest.fixture(scope="module")
def seedling() -> TransformersPolicy:
    return TransformersPolicy(resolve("seedling"), threads=1)


def test_the_embedded_model_keeps_the_contract(seedling: TransformersPolicy) -> None:
    check(lambda _: CheckpointChatModel(policy=seedling))
