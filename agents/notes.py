"""What a role of a user writes: a note, as the shipped ``Note`` or as a small form of typed fields in its own YAML.

A form is data. ``note_type`` makes the pydantic model of it, which then goes the way of every other output: JSON Schema
for the decoder, strict parse, repair.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, create_model, model_validator

from agents.schemas import Budget, Critique, Diagnosis, Frozen, Proposal, Written

MOST_FIELDS = 12
MOST_CHARACTERS = 2000
_FREE = {"reason", "summary", "rationale"}
TAKEN = {name for model in (Diagnosis, Proposal, Critique, Budget) for name in model.model_fields} - _FREE
"""Fields by which the run tells the other outputs apart and which it closes over its environment."""


class TextField(Frozen):
    """A text of bounded length."""

    type: Literal["text"]
    max_length: int = Field(240, ge=1, le=MOST_CHARACTERS)


class TextsField(Frozen):
    """A short list of texts."""

    type: Literal["texts"]
    max_items: int = Field(4, ge=1, le=16)
    max_length: int = Field(120, ge=1, le=400)


class ChoiceField(Frozen):
    """One of a few words."""

    type: Literal["choice"]
    choices: tuple[Annotated[str, StringConstraints(min_length=1, max_length=60)], ...] = Field(
        min_length=2, max_length=24
    )

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len(set(self.choices)) != len(self.choices):
            raise ValueError("a choice is written twice")
        return self


class IntegerField(Frozen):
    """A whole number between two bounds, both allowed."""

    type: Literal["integer"]
    minimum: int = Field(ge=-(2**31), le=2**31)
    maximum: int = Field(ge=-(2**31), le=2**31)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} exceeds maximum {self.maximum}")
        return self


class NumberField(Frozen):
    """A number between two bounds, both allowed."""

    type: Literal["number"]
    minimum: float = Field(ge=-1e9, le=1e9, allow_inf_nan=False)
    maximum: float = Field(ge=-1e9, le=1e9, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum:g} exceeds maximum {self.maximum:g}")
        return self


class BooleanField(Frozen):
    """True or false."""

    type: Literal["boolean"]


NoteField = Annotated[
    TextField | TextsField | ChoiceField | IntegerField | NumberField | BooleanField, Field(discriminator="type")
]
FieldName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
Form = dict[FieldName, NoteField]
FIELD_TYPES: tuple[type[BaseModel], ...] = (
    TextField,
    TextsField,
    ChoiceField,
    IntegerField,
    NumberField,
    BooleanField,
)


def form_errors(form: Mapping[str, Any]) -> list[str]:
    """What the model of one field cannot say of a form."""
    errors = [] if form else ["a form without fields; give at least one, such as text: {type: text}"]
    if len(form) > MOST_FIELDS:
        errors.append(f"{len(form)} fields, at most {MOST_FIELDS} are possible")
    errors.extend(
        f"a field cannot be called {name!r}, which is a name of the roles' protocol; choose another"
        for name in form
        if name in TAKEN or hasattr(BaseModel, name)
    )
    return errors


def note_type(form: Mapping[str, Any]) -> type[Written]:
    """The model of a form, its fields in the order of the form, which is the order of generation."""
    return _note_type(tuple(form.items()))


@cache
def _note_type(form: tuple[tuple[str, Any], ...]) -> type[Written]:
    fields: dict[str, Any] = {name: (_annotation(field), ...) for name, field in form}
    return create_model("Note", __base__=Written, **fields)


def _annotation(field: Any) -> Any:
    match field:
        case TextField():
            return Annotated[str, Field(max_length=field.max_length)]
        case TextsField():
            return Annotated[
                list[Annotated[str, Field(max_length=field.max_length)]], Field(max_length=field.max_items)
            ]
        case ChoiceField():
            return Literal[field.choices]
        case IntegerField():
            return Annotated[int, Field(ge=field.minimum, le=field.maximum)]
        case NumberField():
            return Annotated[float, Field(ge=field.minimum, le=field.maximum, allow_inf_nan=False)]
        case BooleanField():
            return bool
    raise TypeError(f"no annotation is known for {type(field).__name__}")


def example_note(model: type[BaseModel]) -> dict[str, Any]:
    """A note as its reader may get it: every field at its shortest, its first choice or its lowest value."""
    return {name: _example(part) for name, part in model.model_json_schema()["properties"].items()}


def _example(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    examples: dict[str, Any] = {"string": "text", "array": ["text"], "boolean": False}
    kind = schema["type"]
    return examples[kind] if kind in examples else schema["minimum"]
