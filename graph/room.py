"""Evidence cut to the room that a role's model has for it: its context, less the answer it may give."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase

from agents.evidence import BudgetError, fit
from agents.evidence.budget import Count
from agents.render import render_messages
from agents.rolespec import RoleSpec
from agents.schemas import Evidence
from envsim.api import Message
from graph.state import Pointer
from graph.work import Work
from trainer.checkpoint import load_tokenizer
from trainer.decoding import encode
from trainer.spec import ModelRef

CHARACTERS_A_TOKEN = 3
"""Of a model behind a URL, whose tokenizer is not at hand: English and JSON have more, so that this counts too many."""


def fitted(work: Work, role: RoleSpec, inputs: Mapping[str, Any], pointer: Pointer | None) -> dict[str, Any]:
    """What the role's prompt is rendered from with as much of the evidence as fits; the same if all of it does.

    ``pointer`` is the checkpoint that speaks, None for a model behind a URL, whose context nobody knows: then only
    ``evidence.tokens`` of the settings bounds the prompt. Where not even the least fits the model is asked with that,
    and the run says so.
    """
    found = dict(inputs)
    evidence, most = found.get("evidence"), work.settings.evidence.tokens
    if not isinstance(evidence, Evidence):
        return found
    style = work.profile.style

    def messages(shown: Evidence) -> list[Message]:
        return render_messages(role, style, {**found, "evidence": shown})

    if pointer is None:
        if most is None:
            return found
        return found | _cut(
            work, role, evidence, lambda shown: _characters(messages(shown)) // CHARACTERS_A_TOKEN, most
        )
    tokenizer, context = _reader(work.reference(pointer))
    room = context - getattr(role.limits.max_new_tokens, style)
    template = work.profile.generation.chat_template_kwargs or {}
    budget = room if most is None else min(room, most)
    return found | _cut(
        work, role, evidence, lambda shown: len(encode(tokenizer, [messages(shown)], template)[0]), budget
    )


def _cut(work: Work, role: RoleSpec, evidence: Evidence, count: Count, budget: int) -> dict[str, Evidence]:
    try:
        return {"evidence": fit(evidence, count, budget)}
    except BudgetError as error:
        work.reporter.line(f"warning: {role.name}: {error}", style="yellow", indent=2)
        return {"evidence": error.least}


@lru_cache(maxsize=8)
def _reader(model: ModelRef) -> tuple[PreTrainedTokenizerBase, int]:
    """Tokenizer and context of a checkpoint."""
    config: Any = AutoConfig.from_pretrained(model.path, local_files_only=True)
    return load_tokenizer(model), int(config.max_position_embeddings)


def _characters(messages: list[Message]) -> int:
    return sum(len(message["content"]) for message in messages)
