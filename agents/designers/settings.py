"""What a run's YAML says of its designer: a name, or a mapping with the name and the designer's parameters.

One frozen model a designer, told apart by ``name``; an unknown key is refused. A designer of one's own is named by
``entrypoint`` in place of a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agents.rolespec import ExternalModel
from agents.schemas import Frozen
from trainer.serving.settings import Constraint

DesignerSpec = str | dict[str, Any]
"""As people write it: ``sfl``, ``{name: sfl, keep: 0.5}``, ``my/file.py:Mine`` or ``{entrypoint: ...}``."""


class Plain(Frozen):
    """Designers without parameters."""

    name: Literal[
        "self",
        "base",
        "champion",
        "teacher",
        "fixed",
        "always_easiest",
        "always_impossible",
        "oscillate",
        "single_cell",
        "fake_wait",
        "json_garbage",
    ]


class ExternalSettings(Frozen):
    """Any model behind an OpenAI-compatible URL, asked as the config designer role."""

    name: Literal["external"]
    base_url: str = Field(description="such as http://localhost:8000/v1")
    model: str = Field(min_length=1, description="the model's name at that URL")
    api_key_file: str | None = Field(None, description="a file with the key; none sends none")

    constraint: Constraint = Field(
        "json_schema", description="grammar: the layout of answers in process, which a tiny model needs; vLLM alone"
    )

    def as_model(self) -> ExternalModel:
        return ExternalModel(
            base_url=self.base_url, name=self.model, api_key_file=self.api_key_file, constraint=self.constraint
        )


class RandomSettings(Frozen):
    name: Literal["random"]
    draws: int = Field(4, ge=1, le=64, description="draws until one is admitted by the gates")


class ScheduleSettings(Frozen):
    name: Literal["schedule"]
    file: str = Field("easy_to_hard", description="easy_to_hard, hard_to_easy, or a YAML file")


class SflSettings(Frozen):
    name: Literal["sfl"]
    draws: int = Field(4, ge=1, le=64, description="random configurations that levels are drawn from")
    tasks: int = Field(64, ge=1, le=4096, description="levels of each")
    samples: int = Field(8, ge=2, le=256, description="answers to a level")
    keep: float = Field(0.25, gt=0, le=1, description="share of the levels that count, the most learnable ones")
    mix: float = Field(0.5, ge=0, le=1, description="share of the data that is spread evenly over the cells")


class BestOfKSettings(Frozen):
    name: Literal["best_of_k"]
    k: int = Field(4, ge=2, le=64, description="proposals; the first is greedy")
    temperature: float = Field(0.8, gt=0, le=2, description="of the others")
    model: Literal["self", "base", "champion"] = "self"


class ShuffledSettings(Frozen):
    name: Literal["shuffled"]
    run: str | None = Field(None, description="directory of the run whose evidence is shown; none deals out its own")


class OwnSettings(Frozen):
    """A designer of one's own: ``package.module:Class`` or ``path/to/file.py:Class``."""

    entrypoint: str = Field(pattern=r"^[^:]+:[A-Za-z_]\w*$")
    parameters: dict[str, Any] = Field({}, description="keyword arguments of the class")


Named = Plain | ExternalSettings | RandomSettings | ScheduleSettings | SflSettings | BestOfKSettings | ShuffledSettings
DesignerSettings = Named | OwnSettings
_NAMED: TypeAdapter[Named] = TypeAdapter(Annotated[Named, Field(discriminator="name")])


def _by_name() -> dict[str, type[BaseModel]]:
    return {name: model for model in get_args(Named) for name in get_args(model.model_fields["name"].annotation)}


BY_NAME = _by_name()
DESIGNERS = tuple(BY_NAME)
ADVERSARIES = ("always_easiest", "always_impossible", "oscillate", "single_cell", "fake_wait", "json_garbage")


def parse_designer(spec: DesignerSpec) -> DesignerSettings:
    """The designer's settings. Raises ValueError in one line that names the key, its value and what was expected."""
    data: Mapping[str, Any] = _mapping(spec) if isinstance(spec, str) else spec
    if "entrypoint" in data:
        own: OwnSettings = _validated(OwnSettings, data, "designer")
        return own
    name = data.get("name")
    if name is None:
        raise ValueError(f"designer: a mapping needs 'name' or 'entrypoint', got the keys {sorted(map(str, data))}")
    if not isinstance(name, str) or name not in BY_NAME:
        near = get_close_matches(str(name), DESIGNERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(DESIGNERS)}"
        raise ValueError(f"unknown designer {name!r}; {hint}")
    _validated(BY_NAME[name], data, f"designer {name}")
    return _NAMED.validate_python(data)


def designer_title(spec: DesignerSpec) -> str:
    """What files and reports call it: its name, or the class of one's own. Takes what ``parse_designer`` accepts."""
    settings = parse_designer(spec)
    return settings.entrypoint.rpartition(":")[2] if isinstance(settings, OwnSettings) else settings.name


def _mapping(spec: str) -> dict[str, Any]:
    return {"entrypoint": spec} if ":" in spec else {"name": spec}


def _validated(model: type[BaseModel], data: Mapping[str, Any], where: str) -> Any:
    try:
        return model.model_validate(data, strict=True)
    except ValidationError as error:
        raise ValueError(f"{where}: {'; '.join(_lines(error, model))}") from error


def _lines(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    known = list(model.model_fields)
    for fault in error.errors():
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            near = get_close_matches(key, known, n=1)
            yield f"unknown key {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}")
        elif fault["type"] == "missing":
            yield f"{key} is missing"
        else:
            yield f"{key} = {fault['input']!r}: {fault['msg'].lower()}"
