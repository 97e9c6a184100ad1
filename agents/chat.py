"""A trainer Policy as a langchain chat model, so that roles run on the checkpoint and every tracer sees them.

``bind(response_schema=...)`` constrains the answer to a JSON Schema; ``finish_reason`` and token counts are filled.
``bind_tools`` makes every answer a call of one of the tools, by constraint and not by training: any policy can do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr, SkipValidation

from agents import toolcalls
from agents.parsing import parse_object
from agents.rolespec import ExternalModel
from envsim.api import Message
from trainer.policy import Policy
from trainer.serving.client import OpenAIPolicy

ModelSpec = str | ExternalModel


class CheckpointChatModel(BaseChatModel):
    """One policy behind langchain's chat interface.

    Call-time arguments (through ``bind`` or ``invoke``): ``response_schema`` (JSON Schema or None), ``max_new_tokens``,
    ``temperature``, ``seed``, and ``tools`` (OpenAI descriptions) through ``bind_tools``. Stop sequences are refused:
    the policy has none.
    """

    policy: SkipValidation[Any]
    model_name: str = "checkpoint"
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return "envwright-checkpoint"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "max_new_tokens": self.max_new_tokens, "temperature": self.temperature}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002  langchain's signature
        *,
        response_schema: dict[str, Any] | None = None,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        tools: list[dict[str, Any]] | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if stop:
            raise ValueError(f"stop sequences {stop!r} are not supported; bound the answer by response_schema instead")
        if kwargs:
            raise ValueError(
                f"unknown arguments {sorted(kwargs)}; known: response_schema, max_new_tokens, temperature, seed, tools"
            )
        asked = to_messages(messages)
        if tools:
            asked, response_schema = toolcalls.asked(asked, tools), toolcalls.schema(tools)
        [[completion]] = self.policy.generate(
            [asked],
            max_new_tokens=self.max_new_tokens if max_new_tokens is None else max_new_tokens,
            temperature=self.temperature if temperature is None else temperature,
            samples=1,
            seed=self.seed if seed is None else seed,
            schema=response_schema,
        )
        message = AIMessage(
            **(toolcalls.read(completion.text, tools) if tools else {"content": completion.text}),
            response_metadata={"finish_reason": completion.finish_reason, "model_name": self.model_name},
            usage_metadata=UsageMetadata(
                input_tokens=completion.prompt_tokens,
                output_tokens=completion.tokens,
                total_tokens=completion.prompt_tokens + completion.tokens,
            ),
        )
        return ChatResult(
            generations=[ChatGeneration(message=message, generation_info={"finish_reason": completion.finish_reason})]
        )

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = "required",
        **kwargs: Any,
    ) -> Runnable[Any, AIMessage]:
        """Every answer is a call of one of the tools; ``tool_choice`` must be ``required`` or ``any``.

        An answer that is cut off or does not parse comes back with ``invalid_tool_calls``.
        """
        if tool_choice not in ("required", "any") or kwargs:
            raise ValueError(
                f"tool_choice {tool_choice!r} with {sorted(kwargs)} is not supported; a checkpoint that has tools must "
                "call one: expected tool_choice 'required' and nothing else"
            )
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[Any, Any]:
        """Answers as a validated model (or dict for a dict schema), parsed as strictly as a role's answer.

        With ``include_raw`` the result is ``{"raw", "parsed", "parsing_error"}`` and a bad answer does not raise.
        """
        if kwargs:
            raise ValueError(f"unknown arguments {sorted(kwargs)}; known: include_raw")
        if isinstance(schema, type) and not issubclass(schema, BaseModel):
            raise TypeError(f"expected a JSON Schema or a pydantic model, got {schema.__name__}")
        json_schema = schema if isinstance(schema, dict) else schema.model_json_schema()

        def parse(message: AIMessage) -> Any:
            if message.response_metadata["finish_reason"] == "length":
                raise ValueError("the answer was cut off; raise max_new_tokens")
            data = parse_object(message.text)
            return data if isinstance(schema, dict) else schema.model_validate(data)

        def parse_quietly(step: dict[str, Any]) -> dict[str, Any]:
            try:
                return {"raw": step["raw"], "parsed": parse(step["raw"]), "parsing_error": None}
            except ValueError as error:
                return {"raw": step["raw"], "parsed": None, "parsing_error": error}

        bound = self.bind(response_schema=json_schema)
        if not include_raw:
            return bound | RunnableLambda(parse)
        return RunnablePassthrough() | {"raw": bound} | RunnableLambda(parse_quietly)


def chat_model(spec: ModelSpec, policies: Mapping[str, Policy]) -> BaseChatModel:
    """The chat model that a role's ``model`` means: a policy of this run by name, or one behind a URL.

    Raises KeyError naming the models that this run has.
    """
    if isinstance(spec, ExternalModel):
        return _external(spec)
    if spec not in policies:
        raise KeyError(f"unknown model {spec!r}; this run has {', '.join(sorted(policies))}")
    return CheckpointChatModel(policy=policies[spec], model_name=spec)


def tool_model(spec: ModelSpec, policies: Mapping[str, Policy], *, seed: int = 0) -> BaseChatModel:
    """The chat model that a role calls tools with: the server's own tool calling behind a URL, else by constraint.

    Raises KeyError naming the models that this run has.
    """
    if not isinstance(spec, ExternalModel):
        return chat_model(spec, policies)
    return ChatOpenAI(
        model=spec.name,
        base_url=spec.base_url,
        api_key=SecretStr(_key(spec)),
        temperature=0.0,
        top_p=1.0,
        seed=seed,
        timeout=600.0,
        use_responses_api=False,
    )


def to_messages(messages: Sequence[BaseMessage]) -> list[Message]:
    """langchain messages as role-and-content dicts, tool calls and their results as text.

    Neighbours of one speaker become one message: not every chat template takes two. Raises ValueError for content that
    is not text.
    """
    plain: list[Message] = []
    for message in messages:
        speaker, text = _spoken(message)
        if plain and plain[-1]["role"] == speaker and speaker != "system":
            plain[-1] = {"role": speaker, "content": f"{plain[-1]['content']}\n\n{text}"}
        else:
            plain.append({"role": speaker, "content": text})
    return plain


def _spoken(message: BaseMessage) -> tuple[str, str]:
    if not isinstance(message.content, str):
        raise ValueError(f"a checkpoint reads text only, got {type(message.content).__name__} content")
    if isinstance(message, ToolMessage):
        return "user", f"{message.name} gave: {message.content}"
    [data] = convert_to_openai_messages([message])
    assert isinstance(data, dict)
    calls = [toolcalls.written(call["name"], call["args"]) for call in getattr(message, "tool_calls", [])]
    return data["role"], "\n".join([*([message.content] if message.content or not calls else []), *calls])


def _external(spec: ExternalModel) -> BaseChatModel:
    policy = OpenAIPolicy(spec.base_url, spec.name, api_key=_key(spec), constraint=spec.constraint)
    return CheckpointChatModel(policy=policy, model_name=spec.name)


def _key(spec: ExternalModel) -> str:
    return "none" if spec.api_key_file is None else Path(spec.api_key_file).read_text(encoding="utf-8").strip()
