"""Role inputs -> messages. Prompts are Jinja2 files in a sandbox in which an undefined variable is an error.

A template is one file and its variables equal the role's declared inputs; ``template_errors`` checks it when roles are
loaded and renders both styles with example inputs, so that no prompt fails for the first time in the middle of a run.
Values reach a template as plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment
from pydantic import BaseModel

from agents.examples import example_inputs
from agents.rolespec import STYLES, RoleSpec
from agents.teacher import percent, percent5
from envsim.api import Message, Style
from envsim.documents import DocumentError, read_text

RENDER_FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template's own expressions may raise."""


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
    try:
        return _messages(role, style, values)
    except ValueError as error:
        raise ValueError(f"role {role.name!r}: {error}") from error


def _messages(role: RoleSpec, style: Style, values: Mapping[str, Any]) -> list[Message]:
    environment = _environment(tuple(role.prompt_directories(style)))
    messages = []
    for kind, file in (("system", role.prompt.system), ("user", role.prompt.user)):
        try:
            text = environment.get_template(file).render(values).strip()
        except TemplateNotFound as error:
            raise ValueError(_not_found(role, style, file)) from error
        except RENDER_FAULTS as error:
            raise ValueError(f"prompt {style}/{file}: {error or type(error).__name__}") from error
        if text:
            messages.append({"role": kind, "content": text})
    if not messages or messages[-1]["role"] != "user":
        raise ValueError(f"prompt {style}/{role.prompt.user} renders empty; it must ask something")
    return messages


def template_errors(role: RoleSpec) -> list[str]:
    """What is wrong with the role's templates: unreadable, not Jinja2, other variables than the declared inputs, or not
    to be rendered with inputs such as a run gives."""
    return [line for style in STYLES for line in _written_errors(role, style) or _rendered_errors(role, style)]


def _written_errors(role: RoleSpec, style: Style) -> list[str]:
    """What can be seen without rendering."""
    used: set[str] = set()
    for file in (role.prompt.system, role.prompt.user):
        try:
            used |= _variables(role, style, file)
        except TemplateSyntaxError as error:
            return [f"prompt {style}/{file}: line {error.lineno}: {error.message}"]
        except DocumentError as error:
            return [f"prompt {style}/{file}: {error}"]
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            # Nested deeper than the compiler goes, or a number of thousands of digits.
            return [f"prompt {style}/{file}: cannot be compiled: {error or type(error).__name__}"]
    where = f"prompt {style}/{role.prompt.user}"
    unknown = [
        f"{where}: uses {name!r}, which the role does not declare; add it to inputs or remove it"
        for name in sorted(used - set(role.inputs))
    ]
    return unknown + [
        f"{where}: does not use the declared input {name!r}; use it or remove it from inputs"
        for name in sorted(set(role.inputs) - used)
    ]


def _variables(role: RoleSpec, style: Style, file: str) -> set[str]:
    """The variables of a template. Raises DocumentError, TemplateSyntaxError and what the compiler raises."""
    places = [folder / file for folder in role.prompt_directories(style)]
    # A link that leads nowhere must not give way to the shipped template.
    path = next((place for place in places if place.exists() or place.is_symlink()), None)
    if path is None:
        raise DocumentError(_not_found(role, style, file).removeprefix(f"prompt {style}/{file}: "))
    text = read_text(path)
    environment = _environment(tuple(role.prompt_directories(style)))
    tree = environment.parse(text)
    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        word = type(node).__name__.lower()
        raise TemplateSyntaxError(f"a prompt is one file, {word!r} is not supported; write the text here", node.lineno)
    environment.compile(text)
    return meta.find_undeclared_variables(tree)


def _rendered_errors(role: RoleSpec, style: Style) -> list[str]:
    """What rendering with example inputs raises, early in a run and later."""
    for later in (False, True):
        examples = example_inputs(role.writes, later=later)
        values = {name: examples[name] for name in role.inputs if name in examples}
        try:
            _messages(role, style, values)
        except ValueError as error:
            when = "of a later round" if later else "of a first round"
            return [f"{error}; rendered with example inputs {when}"]
    return []


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
