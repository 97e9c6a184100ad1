"""One call of a tool for a role: whatever the role asks for, it gets text of bounded length, and the log a line.

Bad names, bad arguments and refusals are answers that the role can read. An exception that is no refusal is a fault of
the tool and propagates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import BaseModel, ValidationError

from tools.log import ToolCall, ToolLog, sha256

DIGITS = 4
"""Decimals of the numbers that a role reads."""


def call_as_text(
    tools: Mapping[str, StructuredTool], log: ToolLog, name: str, arguments: Any, *, most_characters: int
) -> str:
    """What the role reads of the call. ``arguments`` may be anything a model wrote."""
    tool = tools.get(name)
    if tool is None:
        near = get_close_matches(name, tools, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(tools))}"
        return refused(log, name, arguments, f"unknown tool {name!r}; {hint}", most_characters)
    model = tool.args_schema
    assert isinstance(model, type)
    assert issubclass(model, BaseModel)
    try:
        model.model_validate(arguments)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}" for fault in error.errors()
        ]
        text = f"{'; '.join(problems)}; known arguments: {', '.join(model.model_fields) or 'none'}"
        return refused(log, name, arguments, text, most_characters)
    data = json.loads(tool.invoke(arguments))
    if set(data) == {"error"}:
        return clipped(f"error: {data['error']}", most_characters)
    return clipped(json.dumps(rounded(data), ensure_ascii=False, separators=(",", ":")), most_characters)


def refused(log: ToolLog, name: str, arguments: Any, error: str, most_characters: int) -> str:
    """The text of a call that was not made; it counts as one all the same."""
    written = arguments if isinstance(arguments, dict) else {"written": arguments}
    shown = clipped(json.dumps(written, ensure_ascii=False, default=str, allow_nan=True), most_characters)
    error = clipped(error, most_characters)
    log.add(
        ToolCall(name=clipped(str(name), 80), args={"refused": shown}, result_sha256=sha256(error), seconds=0.0,
                 tokens=0, error=error)
    )  # fmt: skip
    return clipped(f"error: {error}", most_characters)


def rounded(value: Any) -> Any:
    """Plain JSON with its numbers rounded: what a role reads, and has to pay for in tokens."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def clipped(text: str, length: int) -> str:
    """Text of bounded length; what is left out is said."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    if len(plain) <= length:
        return plain
    mark = f" ... ({len(plain)} characters)"
    return plain[: max(0, length - len(mark))] + mark
