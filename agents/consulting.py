"""A role looks before it speaks: a bounded loop in which its model calls tools, whose results it then answers from.

Every turn must be a call, so that a model which prefers to talk cannot stall; ``ready_to_answer`` ends the loop, and so
does the last call allowed. Whatever is called counts: a refused or unreadable call too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai import OpenAIError

from agents.schemas import Frozen
from envsim.api import Message
from tools.calling import call_as_text, refused
from tools.log import ToolLog
from trainer.policy import PolicyError

READY = "ready_to_answer"
CLOSING = "Now write your answer as one JSON object."


class _Nothing(Frozen):
    """No arguments."""


class Consultation(Frozen):
    """What came of it: the conversation up to the question for the answer, and the tokens of all turns."""

    messages: list[Any]
    turns: int
    input_tokens: int
    """Read by the model; every turn reads the whole conversation so far."""
    output_tokens: int
    """Written by the model."""


def consult(
    model: BaseChatModel,
    messages: Sequence[Message],
    tools: Mapping[str, StructuredTool],
    log: ToolLog,
    *,
    max_calls: int,
    max_new_tokens: int,
    most_characters: int,
    config: RunnableConfig | None = None,
) -> Consultation:
    """Let a role's model call ``tools`` up to ``max_calls`` times. Raises PolicyError if its back end fails."""
    bound = model.bind_tools([described(tool) for tool in (*tools.values(), _ready())], tool_choice="required")
    bound = bound.bind(**_bound_length(model, max_new_tokens))
    conversation: list[BaseMessage] = convert_to_messages(list(messages))
    before, turns, read, written = len(log.calls), 0, 0, 0
    while len(log.calls) - before < max_calls:
        try:
            reply = bound.invoke(conversation, config)
        except OpenAIError as error:
            raise PolicyError(
                f"the server of {getattr(model, 'model_name', model)!r} failed to call tools: "
                f"{' '.join(str(error).split())[:400]}; a role with tools needs a server that is started with tool "
                "calling, such as vLLM with --enable-auto-tool-choice and a --tool-call-parser"
            ) from error
        turns += 1
        if reply.usage_metadata:
            read += reply.usage_metadata["input_tokens"]
            written += reply.usage_metadata["output_tokens"]
        answers, done = _answered(reply, tools, log, max_calls - (len(log.calls) - before), most_characters)
        conversation += [_plain(reply), *answers]
        if done:
            break
    conversation.append(HumanMessage(CLOSING))
    return Consultation(messages=conversation, turns=turns, input_tokens=read, output_tokens=written)


def described(tool: StructuredTool) -> dict[str, Any]:
    """A tool as servers are told of it: closed, which langchain leaves out, and strict.

    vLLM holds only the arguments of a strict tool to their schema, and a small model fills others with its own.
    """
    told = convert_to_openai_tool(tool)
    function = told["function"]
    closed = {**function["parameters"], "additionalProperties": False}
    return {**told, "function": {**function, "parameters": closed, "strict": True}}


def _answered(
    reply: AIMessage, tools: Mapping[str, StructuredTool], log: ToolLog, left: int, most_characters: int
) -> tuple[list[BaseMessage], bool]:
    """The results of all calls of one turn, and whether the role is ready. Every call gets an answer."""
    answers: list[BaseMessage] = []
    done = False
    for call in reply.tool_calls:
        if call["name"] == READY:
            done, text = True, "ok"
        elif left <= 0:
            text = "error: not called, no calls are left"
        else:
            left -= 1
            text = call_as_text(tools, log, call["name"], call["args"], most_characters=most_characters)
        answers.append(ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"]))
    for bad in reply.invalid_tool_calls:
        text = refused(log, bad["name"] or "unreadable", bad["args"], bad["error"] or "unreadable", most_characters)
        answers.append(HumanMessage(text))
    if not answers:
        text = refused(log, "nothing", {}, f"call a tool: {', '.join(tools)} or {READY}", most_characters)
        answers.append(HumanMessage(text))
    return answers, done


def _plain(reply: AIMessage) -> AIMessage:
    """What goes back into the conversation: what was said and called, without what a server would not take again."""
    content = reply.text if reply.text or reply.tool_calls else "..."
    return AIMessage(content=content, tool_calls=reply.tool_calls)


def _ready() -> StructuredTool:
    return StructuredTool.from_function(
        func=lambda: "ok", name=READY, description="You have seen enough and will answer next.", args_schema=_Nothing
    )


def _bound_length(model: BaseChatModel, max_new_tokens: int) -> dict[str, Any]:
    # The two chat models have a name each for the same thing.
    return {("max_new_tokens" if "max_new_tokens" in type(model).model_fields else "max_tokens"): max_new_tokens}
