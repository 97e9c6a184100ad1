"""What is wrong with a stage's spec, in one line: where in the file, the value, what was expected, the nearest name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trainer.frozen import short
from trainer.spec import SftSpec, StageSpec

_MODELS: dict[str, type[BaseModel]] = {"grpo": StageSpec, "sft": SftSpec}


def explain_spec(error: ValidationError) -> str:
    """All problems that `trainer.spec.read_spec` found."""
    return "; ".join(_line(item) for item in error.errors(include_url=False))


def _line(item: ErrorDetails) -> str:
    if item["type"] == "json_invalid":
        return item["msg"]
    if not item["loc"]:
        return f"kind = {short(item['ctx']['tag'])}: expected {' or '.join(map(repr, _MODELS))}"
    # The kind comes first, by which the specs are told apart; in the file it is no place.
    kind, *place = item["loc"]
    where = ".".join(map(str, place)) or "the spec"
    # A mapping is in the file, and too long for a line.
    value = "" if isinstance(item["input"], dict) else f" = {short(item['input'])}"
    return f"{where}{value}: {' '.join(item['msg'].split())}{_hint(item['type'], _MODELS[str(kind)], place)}"


def _hint(fault: str, model: type[BaseModel], place: Sequence[Any]) -> str:
    if fault != "extra_forbidden":
        return ""
    near = get_close_matches(str(place[-1]), _fields_at(model, place[:-1]), n=1)
    return f", did you mean {near[0]!r}?" if near else ""


def _fields_at(model: type[BaseModel], place: Sequence[Any]) -> list[str]:
    """Fields of all models that there may be at a place."""
    models = [model]
    for part in place:
        inner = [arm for one in models if part in one.model_fields for arm in _arms(one.model_fields[part].annotation)]
        # What names no field tells the arms of a union apart.
        models = inner or models
    return [name for one in models for name in one.model_fields]


def _arms(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _arms(part)
