"""Tool calls by constraint: the tools as text and as a closed JSON Schema, and an answer under it as a tool call.

So a checkpoint without a tool-calling chat template, behind any back end that decodes under a schema, calls tools too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents.parsing import AnswerError, parse_object
from envsim.api import Message

CALL_ID = "call-0"
"""An answer holds one call."""


def asked(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages with the tools told at the end of the last one."""
    lines = [
        f"- {tool['function']['name']}: {tool['function'].get('description', '')} Arguments: "
        f"{json.dumps(_properties(tool), ensure_ascii=False, separators=(',', ':'))}"
        for tool in tools
    ]
    text = "\n".join(["Tools:", *lines, 'Call one, as {"tool": name, "arguments": {...}}.'])
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}\n\n{text}"}]


def schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One closed object a tool; an answer is one of them."""
    return {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "tool": {"type": "string", "enum": [tool["function"]["name"]]},
                    "arguments": tool["function"]["parameters"] | {"additionalProperties": False},
                },
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
            for tool in tools
        ]
    }


def read(text: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of an AIMessage: one tool call, or the text and what is wrong with it."""
    try:
        data = parse_object(text)
        if set(data) != {"tool", "arguments"} or not isinstance(data["tool"], str):
            raise AnswerError('expected {"tool": name, "arguments": {...}}')
        if not isinstance(data["arguments"], dict):
            raise AnswerError(f"arguments: expected an object, got {type(data['arguments']).__name__}")
    except AnswerError as error:
        known = ", ".join(tool["function"]["name"] for tool in tools)
        failed = {"name": "unreadable", "args": text, "id": CALL_ID, "error": f"{error}; known tools: {known}"}
        return {"content": text, "invalid_tool_calls": [{**failed, "type": "invalid_tool_call"}]}
    call = {"name": data["tool"], "args": data["arguments"], "id": CALL_ID, "type": "tool_call"}
    return {"content": "", "tool_calls": [call]}


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as the model wrote it."""
    return json.dumps({"tool": name, "arguments": arguments}, ensure_ascii=False, separators=(",", ":"))


def _properties(tool: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = tool["function"]["parameters"].get("properties", {})
    return {name: part.get("description", part.get("type", "")) for name, part in found.items()}
