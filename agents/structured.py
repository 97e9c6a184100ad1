"""Asking a role: a closed JSON Schema, a strict parse, bounded repair, and then the role's failure policy.

Nothing that a model writes reaches the run unless it parsed, validated and passed the semantic checks; whatever it
writes, ``ask`` returns a RoleAnswer or raises RoleFailure (``on_failure: stop``). Every attempt is kept in the answer.
``call`` does the same for a role that is a function, which gets no second try.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, SerializeAsAny, ValidationError

from agents.entrypoints import Entrypoint
from agents.parsing import AnswerError, parse_object
from agents.rolespec import RoleSpec
from agents.schemas import Frozen, Written
from envsim.api import Environment, Message, Style

T = TypeVar("T", bound=BaseModel)
Validate = Callable[[T], list[str]]

NO_FAULT = "none"
"""What an analyst calls the dominant fault where nothing fails."""
SHOWN = {"compact": 200, "full": 2000}
"""Characters of a failed answer, and of the errors, that the repair request repeats."""


class RoleFailure(RuntimeError):
    """A role gave no usable answer and its policy is ``stop``."""

    def __init__(self, role: str, errors: Sequence[str], raw: str) -> None:
        super().__init__(
            f"role {role!r} gave no usable answer: {'; '.join(errors)}. "
            "Read the raw answer in the role's log, or let on_failure be rule, for a note skip"
        )
        self.role = role
        self.errors = list(errors)
        self.raw = raw


class Attempt(Frozen):
    """One call of the model and what became of its text."""

    raw: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    errors: list[str]


class RoleAnswer(Frozen, Generic[T]):
    """What came of asking a role. ``fallback`` says that ``parsed`` is the rule's answer and not the model's, or None
    where no rule answers for a note."""

    role: str
    parsed: SerializeAsAny[T] | None
    raw: str
    """The last attempt's text."""
    attempts: list[Attempt]
    errors: list[str]
    """The last attempt's errors; empty if it was accepted."""
    tokens: int
    """Generated tokens of all attempts."""
    fallback: bool


def output_schema(
    output: type[BaseModel],
    environment: Environment,
    config: Any,
    *,
    style: Style = "full",
    evidence_ids: Sequence[str] | None = None,
    bounds: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A closed, flat JSON Schema of one output for a concrete environment, fields in the order of the model.

    Knob paths, outcomes and (if given) evidence ids become enums, objects keyed by cell get exactly the cells as
    required integers or standings, steps get their bounds. ``schema_version`` is not asked of the model. In compact
    style a change has no value and no op ``set``.
    """
    whole = output.model_json_schema()
    schema: dict[str, Any] = _inline(whole, whole.get("$defs", {}))
    fields: dict[str, Any] = schema["properties"]
    fields.pop("schema_version", None)
    if issubclass(output, Written):
        return _closed(fields)
    if output.__name__ == "Diagnosis":
        fields["dominant_fault"] = {"type": "string", "enum": [*environment.outcomes, NO_FAULT]}
        fields["cells"] = _by_cell(environment, fields["cells"]["additionalProperties"])
        if evidence_ids is not None:
            fields["evidence_ids"] = _ids(evidence_ids, fields["evidence_ids"]["maxItems"])
    if "predicted" in fields:
        fields["predicted"] = _by_cell(environment, {"type": "integer", "minimum": 0, "maximum": 100})
    for name in ("changes", "conditions"):
        if name in fields:
            fields[name]["items"] = _change(list(environment.knobs(config)), style)
    if "steps" in fields and bounds is not None:
        fields["steps"] = {"type": "integer", "minimum": bounds["steps_low"], "maximum": bounds["steps_high"]}
    return _closed(fields)


def ask(  # noqa: PLR0917  what is asked, then how
    model: BaseChatModel,
    role: RoleSpec,
    messages: Sequence[Message | BaseMessage],
    schema: dict[str, Any],
    output: type[T],
    validate: Validate[T],
    *,
    style: Style = "full",
    rule: Callable[[], T] | None = None,
    seed: int = 0,
    config: RunnableConfig | None = None,
) -> RoleAnswer[T]:
    """Ask one role and return its validated answer, or the rule's.

    The first attempt uses the role's temperature, repairs use 0. ``validate`` returns an answer's semantic errors.
    Raises RoleFailure if every attempt failed and the policy is ``stop``. Errors of the back end itself propagate.
    """
    attempts: list[Attempt] = []
    conversation: list[Message | BaseMessage] = list(messages)
    max_new_tokens = getattr(role.limits.max_new_tokens, style)
    for number in range(role.limits.max_repairs + 1):
        reply = model.bind(
            response_schema=schema,
            max_new_tokens=max_new_tokens,
            temperature=role.temperature if number == 0 else 0.0,
            seed=seed + number,
        ).invoke(conversation, config)
        parsed, attempt = _read(reply, schema, output, validate, max_new_tokens)
        attempts.append(attempt)
        if parsed is not None:
            return _answer(role, parsed, attempts, fallback=False)
        conversation = [*messages, *_repair(attempt, style)]
    return _without_answer(role, attempts, rule)


def call(  # noqa: PLR0917  what is called, then with what
    function: Entrypoint,
    role: RoleSpec,
    inputs: Mapping[str, Any],
    schema: dict[str, Any],
    output: type[T],
    validate: Validate[T],
    *,
    rule: Callable[[], T] | None = None,
) -> RoleAnswer[T]:
    """The validated answer of a role of kind python, or the rule's. ``inputs`` are plain data.

    What the function raises is told as the error of its one attempt. Raises RoleFailure if the policy is ``stop``.
    """
    parsed, raw, errors = None, "", list[str]()
    try:
        raw = json.dumps(dict(function(inputs)), ensure_ascii=False, allow_nan=False)
    except Exception as error:
        errors = [f"{role.entrypoint} raised {type(error).__name__}: {error}"]
    else:
        parsed, errors = read_answer(raw, schema, output, validate)
    shown = raw.encode("utf-8", "replace").decode("utf-8")
    attempts = [Attempt(raw=shown, finish_reason="stop", input_tokens=0, output_tokens=0, errors=errors)]
    if parsed is not None:
        return _answer(role, parsed, attempts, fallback=False)
    return _without_answer(role, attempts, rule)


def _without_answer(role: RoleSpec, attempts: list[Attempt], rule: Callable[[], T] | None) -> RoleAnswer[T]:
    """What the role's failure policy makes of attempts that all failed."""
    last = attempts[-1]
    if role.on_failure == "stop":
        raise RoleFailure(role.name, last.errors, last.raw)
    return _answer(role, rule() if rule else None, attempts, fallback=True)


def read_answer(
    text: str, schema: dict[str, Any], output: type[T], validate: Validate[T]
) -> tuple[T | None, list[str]]:
    """The parse path of every role answer: the validated answer, or None and the errors."""
    try:
        data = parse_object(text)
    except AnswerError as error:
        return None, [str(error)]
    unknown = [key for key in data if key not in schema["properties"]]
    missing = [key for key in schema["required"] if key not in data]
    errors = [f"{key}: unknown field" for key in unknown] + [f"{key}: missing" for key in missing]
    if errors:
        return None, errors
    try:
        parsed = output.model_validate(data, strict=True)
    except ValidationError as error:
        return None, [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
    errors = validate(parsed)
    return (None, errors) if errors else (parsed, [])


def _read(
    reply: AIMessage, schema: dict[str, Any], output: type[T], validate: Validate[T], max_new_tokens: int
) -> tuple[T | None, Attempt]:
    raw = reply.text
    finish_reason = str(reply.response_metadata.get("finish_reason", "unknown"))
    if finish_reason == "length":
        parsed, errors = None, [f"the answer was cut off after {max_new_tokens} tokens; answer more briefly"]
    else:
        parsed, errors = read_answer(raw, schema, output, validate)
    usage = reply.usage_metadata
    return parsed, Attempt(
        raw=raw.encode("utf-8", "replace").decode("utf-8"),
        finish_reason=finish_reason,
        input_tokens=usage["input_tokens"] if usage else 0,
        output_tokens=usage["output_tokens"] if usage else 0,
        errors=errors,
    )


def _repair(attempt: Attempt, style: Style) -> list[Message]:
    """The request to write the answer again: what was written, shortened, and what is wrong with it."""
    limit = SHOWN[style]
    errors = "\n".join(f"- {error}" for error in attempt.errors)[:limit]
    return [
        {"role": "assistant", "content": attempt.raw[:limit]},
        {
            "role": "user",
            "content": f"Not accepted:\n{errors}\nWrite the whole corrected JSON object and nothing else.",
        },
    ]


def _answer(role: RoleSpec, parsed: T | None, attempts: list[Attempt], *, fallback: bool) -> RoleAnswer[T]:
    return RoleAnswer[T](
        role=role.name,
        parsed=parsed,
        raw=attempts[-1].raw,
        attempts=attempts,
        errors=attempts[-1].errors,
        tokens=sum(attempt.output_tokens for attempt in attempts),
        fallback=fallback,
    )


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without references, titles, defaults and descriptions, which decoders do not need."""
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(definitions[node["$ref"].rpartition("/")[2]], definitions)
    dropped = {"$defs", "title", "default", "description"}
    return {
        key: {name: _inline(part, definitions) for name, part in value.items()}
        if key == "properties"
        else _inline(value, definitions)
        for key, value in node.items()
        if key not in dropped
    }


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _by_cell(environment: Environment, value: Any) -> dict[str, Any]:
    return _closed(dict.fromkeys(environment.cells(), value))


def _change(paths: Sequence[str], style: Style) -> dict[str, Any]:
    path = {"type": "string", "enum": list(paths)}
    if style == "compact":
        return _closed({"path": path, "op": {"type": "string", "enum": ["up", "down", "keep"]}})
    value = {"anyOf": [{"type": "number"}, {"type": "null"}]}
    return _closed({"path": path, "op": {"type": "string", "enum": ["set", "up", "down", "keep"]}, "value": value})


def _ids(ids: Sequence[str], most: int) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "string", "enum": list(ids)} if ids else {"type": "string"}
    return {"type": "array", "items": item, "maxItems": min(most, len(ids))}
