"""Text of a model -> one JSON object, or a reason why not. Strict: half an answer is no answer.

Accepts thoughts before the object and one code fence around it: instruct models write them whatever they are told.
Refuses truncation, a second object, repeated keys, NaN and anything after the object.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n?(.*?)```", re.DOTALL)


class AnswerError(ValueError):
    """The text is not exactly one JSON object; the message can be shown to the model."""


def parse_object(text: str) -> dict[str, Any]:
    """The one JSON object of an answer. Raises AnswerError."""
    body = _without_fence(_without_thoughts(text)).strip()
    start = body.find("{")
    if start < 0:
        raise AnswerError("there is no JSON object in the answer")
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)
    try:
        value, end = decoder.raw_decode(body, start)
    except RecursionError as error:
        raise AnswerError("the JSON is nested too deeply") from error
    except AnswerError:
        raise
    except ValueError as error:
        raise AnswerError(f"not valid JSON: {error}") from error
    rest = body[end:].strip()
    if rest:
        raise AnswerError(f"there is text after the JSON object: {rest[:40]!r}")
    if not isinstance(value, dict):
        raise AnswerError(f"expected a JSON object, got {type(value).__name__}")
    return value


def _without_thoughts(text: str) -> str:
    """The text after the last ``</think>``; a thought that was never closed is a truncated answer."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    if "<think>" in text:
        raise AnswerError("the thought was not closed with </think>")
    return text


def _without_fence(text: str) -> str:
    """The inside of the one fenced block, with whatever follows it kept, so that text after it is still refused."""
    blocks = list(FENCE.finditer(text))
    if not blocks or "{" in text[: blocks[0].start()]:
        return text
    if len(blocks) > 1:
        raise AnswerError(f"there are {len(blocks)} fenced blocks; write one JSON object")
    return blocks[0].group(1) + text[blocks[0].end() :]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise AnswerError(f"the key {twice!r} is written twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise AnswerError(f"{name} is not a JSON number")
