"""Role inputs -> messages. Prompts are Jinja2 files in a sandbox in which an undefined variable is an error.

A template's variables must equal the role's declared inputs; ``template_errors`` checks it when roles are loaded, for
both styles, so that no prompt fails for the first time in the middle of a run. Values reach a template as plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, TemplateNotFound, TemplateSyntaxError, UndefinedError, meta
from jinja2.sandbox import SandboxedEnvironment
from pydantic import BaseModel

from agents.rolespec import STYLES, RoleSpec
from agents.teacher import percent, percent5
from envsim.api import Message, Style


def render_messages(role: RoleSpec, style: Style, inputs: Mapping[str, Any]) -> list[Message]:
    """The system message (left out if it renders empty) and the user message of one role.

    ``inputs`` must hold exactly the role's declared inputs, as pydantic models or plain JSON.
    Raises ValueError naming the role and the input that is missing, undeclared, or unknown to a template.
    """
    missing = sorted(set(role.inputs) - set(inputs))
    extra = sorted(set(inputs) - set(role.inputs))
    if missing or extra:
        msg = f"role {role.name!r}: inputs missing {missing}, not declared {extra}; it declares {list(role.inputs)}"
        raise ValueError(msg)
    values = {name: to_plain(value) for name, value in inputs.items()}
    environment = _environment(tuple(role.prompt_directories(style)))
    messages = []
    for kind, file in (("system", role.prompt.system), ("user", role.prompt.user)):
        try:
            text = environment.get_template(file).render(values).strip()
        except TemplateNotFound as error:
            raise ValueError(_not_found(role, style, file)) from error
        except UndefinedError as error:
            raise ValueError(f"role {role.name!r}: prompt {style}/{file}: {error}") from error
        if text:
            messages.append({"role": kind, "content": text})
    if not messages or messages[-1]["role"] != "user":
        raise ValueError(f"role {role.name!r}: prompt {style}/{role.prompt.user} renders empty; it must ask something")
    return messages


def template_errors(role: RoleSpec) -> list[str]:
    """What is wrong with the role's templates: missing, not Jinja2, or other variables than the declared inputs."""
    errors = []
    for style in STYLES:
        environment = _environment(tuple(role.prompt_directories(style)))
        used: set[str] = set()
        broken = False
        for file in (role.prompt.system, role.prompt.user):
            try:
                source = environment.get_template(file).filename
                text = Path(str(source)).read_text(encoding="utf-8")
                used |= meta.find_undeclared_variables(environment.parse(text))
            except TemplateNotFound:
                errors.append(_not_found(role, style, file))
                broken = True
            except TemplateSyntaxError as error:
                errors.append(f"prompt {style}/{file}: line {error.lineno}: {error.message}")
                broken = True
        if not broken:
            where = f"prompt {style}/{role.prompt.user}"
            errors.extend(
                f"{where}: uses {name!r}, which the role does not declare; add it to inputs or remove it"
                for name in sorted(used - set(role.inputs))
            )
            errors.extend(
                f"{where}: does not use the declared input {name!r}; use it or remove it from inputs"
                for name in sorted(set(role.inputs) - used)
            )
    return errors


def to_plain(value: Any) -> Any:
    """Pydantic models inside lists and mappings as plain JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


@cache
def _environment(directories: tuple[Path, ...]) -> SandboxedEnvironment:
    environment = SandboxedEnvironment(
        loader=FileSystemLoader([str(directory) for directory in directories]),
        undefined=StrictUndefined,
        autoescape=False,
    )
    environment.filters["percent"] = percent
    environment.filters["percent5"] = percent5
    environment.filters["json"] = _json
    environment.filters["clip"] = _clip
    return environment


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _clip(text: str, length: int = 300) -> str:
    """Text of a model shortened in its middle and kept on one line: it is data, and never long."""
    flat = " ".join(text.split())
    half = (length - 5) // 2
    return flat if len(flat) <= length else f"{flat[:half]} ... {flat[-half:]}"


def _not_found(role: RoleSpec, style: Style, file: str) -> str:
    places = " or ".join(str(folder) for folder in dict.fromkeys(role.prompt_directories(style)))
    return f"prompt {style}/{file}: no such file; write it in {places}"
