"""From a designer's settings to the designer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from agents.designers import adversaries
from agents.designers.base import Designer
from agents.designers.best_of_k import BestOfK
from agents.designers.models import ModelDesigner
from agents.designers.own import load_designer, source_text
from agents.designers.randomly import Random
from agents.designers.rules import Fixed, Teacher
from agents.designers.schedule import read_schedule, shipped
from agents.designers.settings import (
    BestOfKSettings,
    DesignerSpec,
    ExternalSettings,
    OwnSettings,
    Plain,
    RandomSettings,
    ScheduleSettings,
    SflSettings,
    ShuffledSettings,
    parse_designer,
)
from agents.designers.sfl import SamplingForLearnability
from agents.designers.shuffled import Shuffled
from envsim.api import Environment
from envsim.documents import DocumentError, read_text

MODELS = {"self": "inherit", "base": "base", "champion": "champion"}
RULES: dict[str, type[Designer]] = {
    kind.name: kind
    for kind in (
        Teacher,
        Fixed,
        adversaries.AlwaysEasiest,
        adversaries.AlwaysImpossible,
        adversaries.Oscillate,
        adversaries.SingleCell,
        adversaries.FakeWait,
        adversaries.JsonGarbage,
    )
}


def get_designer(spec: DesignerSpec) -> Designer:
    """A fresh designer. Raises ValueError in one line for whatever is wrong with it, files that it needs included."""
    settings = parse_designer(spec)
    return MAKERS[type(settings)](settings)


def check_designer(spec: DesignerSpec, environment: Environment, config: Any, stages: int) -> None:
    """Whether the designer can do its part in a run of so many designed stages that begins on ``config``.

    Raises ValueError in one line: what ``get_designer`` refuses, and what the designer's own ``check`` does.
    """
    designer, settings = get_designer(spec), parse_designer(spec)
    try:
        designer.check(environment, config, stages)
    except Exception as error:
        if not isinstance(settings, OwnSettings):
            raise
        raise ValueError(
            f"designer entrypoint {settings.entrypoint!r}: its check says {type(error).__name__}: {error}"
        ) from error


def designer_hash(spec: DesignerSpec) -> str | None:
    """sha256 over what decides the proposals beside the settings: own source, a schedule, another run's evidence.

    None if there is nothing. Where it lies is not part of it. Raises ValueError in one line.
    """
    designer, settings = get_designer(spec), parse_designer(spec)
    own = settings if isinstance(settings, OwnSettings) else None
    try:
        content = designer.content()
        source = None if own is None else source_text(own)
        text = json.dumps({"source": source, "content": content}, sort_keys=True, allow_nan=False)
    except (OSError, TypeError, ValueError) as error:
        where = f"designer {designer.name}" if own is None else f"designer entrypoint {own.entrypoint!r}"
        raise ValueError(f"{where}: its content cannot be had: {type(error).__name__}: {error}") from error
    return None if own is None and content is None else hashlib.sha256(text.encode()).hexdigest()


def designer_files(spec: DesignerSpec) -> list[Path]:
    """The files of a person that the settings name and the hash is of."""
    settings = parse_designer(spec)
    if isinstance(settings, OwnSettings):
        place = settings.entrypoint.rpartition(":")[0]
        return [Path(place)] if place.endswith(".py") else []
    if isinstance(settings, ScheduleSettings) and settings.file not in shipped():
        return [Path(settings.file)]
    return []


def _plain(settings: Plain) -> Designer:
    if settings.name in MODELS:
        return ModelDesigner(settings.name, MODELS[settings.name])
    return RULES[settings.name]()


def _sfl(settings: SflSettings) -> Designer:
    return SamplingForLearnability(**settings.model_dump(exclude={"name"}))


def _best_of_k(settings: BestOfKSettings) -> Designer:
    return BestOfK(k=settings.k, temperature=settings.temperature, asked=MODELS[settings.model])


def _external(settings: ExternalSettings) -> Designer:
    """The key is looked at now: the designer speaks long after the run began."""
    try:
        model = settings.as_model()
        key = None if model.api_key_file is None else read_text(Path(model.api_key_file)).strip()
    except ValidationError as error:
        fault = error.errors()[0]
        raise ValueError(f"designer external: {fault['loc'][0]}: {fault['msg']}, got {fault['input']!r}") from error
    except DocumentError as error:
        raise ValueError(f"designer external: api_key_file: {error}") from error
    if key == "":
        raise ValueError(f"designer external: api_key_file: {model.api_key_file} is empty, expected a key")
    return ModelDesigner("external", model)


def _shuffled(settings: ShuffledSettings) -> Designer:
    run = None if settings.run is None else Path(settings.run)
    if run is not None and not (run / "stages").is_dir():
        raise ValueError(f"designer shuffled: run: {run} holds no stages, expected a run directory")
    return Shuffled(run)


MAKERS: dict[type[BaseModel], Callable[[Any], Designer]] = {
    Plain: _plain,
    OwnSettings: load_designer,
    ExternalSettings: _external,
    RandomSettings: lambda settings: Random(settings.draws),
    ScheduleSettings: lambda settings: read_schedule(settings.file),
    SflSettings: _sfl,
    BestOfKSettings: _best_of_k,
    ShuffledSettings: _shuffled,
}
