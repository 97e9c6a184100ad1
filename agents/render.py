"""Role inputs -> messages. Prompts are Jinja2 files in a sandbox in which an undefined variable is an error.

A template is one file and its variables equal the role's declared inputs, and ``tools`` where it has results of tools
to read. Both are checked when roles are loaded, and both styles are rendered with example inputs, so that no prompt
fails for the first time in the middle of a run. Values reach a template as plain JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment
from pydantic import BaseModel

from agents.examples import example_inputs
from agents.notes import example_note
from agents.places import part_of
from agents.rolespec import STYLES, TOOL_RESULTS, PromptFiles, RoleSpec
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

    ``inputs`` must hold exactly the role's declared inputs, as pydantic models or plain JSON, and the texts of its
    ``tools_before`` by name under ``tools`` if it has any.
    Raises ValueError naming the role and the input that is missing, undeclared, or unknown to a template.
    """
    missing = sorted(set(role.variables) - set(inputs))
    extra = sorted(set(inputs) - set(role.variables))
    if missing or extra:
        msg = f"role {role.name!r}: inputs missing {missing}, not declared {extra}; it declares {list(role.variables)}"
        raise ValueError(msg)
    values = {name: to_plain(value) for name, value in inputs.items()}
    try:
        return _messages(role, style, values)
    except ValueError as error:
        raise ValueError(f"role {role.name!r}: {error}") from error


def _messages(role: RoleSpec, style: Style, values: Mapping[str, Any]) -> list[Message]:
    messages = []
    prompt = asked_by(role)
    for kind, file in prompt.files:
        try:
            text = _template(_text(role, style, file)).render(values).strip()
        except DocumentError as error:
            raise ValueError(f"prompt {style}/{file}: {error}") from error
        except RENDER_FAULTS as error:
            raise ValueError(f"prompt {style}/{file}: {error or type(error).__name__}") from error
        if text:
            messages.append({"role": kind, "content": text})
    if not messages or messages[-1]["role"] != "user":
        raise ValueError(f"prompt {style}/{prompt.user} renders empty; it must ask something")
    return messages


def asked_by(role: RoleSpec) -> PromptFiles:
    """The prompt of a role that is asked by one."""
    if role.prompt is None:
        raise ValueError(f"role {role.name!r} has no prompt; it is of kind {role.kind}")
    return role.prompt


def template_errors(role: RoleSpec) -> list[str]:
    """What can be seen of the role's templates on their own: unreadable, not Jinja2, other variables than declared."""
    return [line for style in STYLES for line in _written_errors(role, style)]


def rendering_errors(roles: Mapping[str, RoleSpec], name: str) -> list[str]:
    """What goes wrong when a role's templates are rendered with inputs such as a run gives at its place."""
    return [] if roles[name].prompt is None else [line for style in STYLES for line in _rendered(roles, name, style)]


def stray_prompts(folder: Path, roles: Mapping[str, RoleSpec]) -> list[str]:
    """Templates of a user's directory that no role asks with: most likely a typing error."""
    used = {file for role in roles.values() if role.prompt is not None for _, file in role.prompt.files}
    known = {"prompts", *(f"prompts/{style}" for style in STYLES)}
    errors = []
    for path in sorted((folder / "prompts").rglob("*")):
        place = path.relative_to(folder)
        if path.is_dir() and not path.is_symlink():
            continue
        if path.name.startswith("."):
            continue
        if place.parent.as_posix() not in known:
            errors.append(f"{place}: would not be read; prompts lie in {' or '.join(sorted(known))}")
        elif path.name not in used:
            errors.append(f"{place}: no role has a prompt of this name; known: {', '.join(sorted(used))}")
    return errors


def _written_errors(role: RoleSpec, style: Style) -> list[str]:
    """What can be seen without rendering."""
    used: set[str] = set()
    prompt = asked_by(role)
    for _, file in prompt.files:
        try:
            used |= _variables(role, style, file)
        except TemplateSyntaxError as error:
            return [f"prompt {style}/{file}: line {error.lineno}: {error.message}"]
        except DocumentError as error:
            return [f"prompt {style}/{file}: {error}"]
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            # Nested deeper than the compiler goes, or a number of thousands of digits.
            return [f"prompt {style}/{file}: cannot be compiled: {error or type(error).__name__}"]
    where = f"prompt {style}/{prompt.user}"
    unknown = [
        f"{where}: uses {name!r}, which the role does not declare; add it to inputs or remove it"
        for name in sorted(used - set(role.variables) - {TOOL_RESULTS})
    ]
    if TOOL_RESULTS in used and not role.tools_before:
        unknown.append(f"{where}: uses {TOOL_RESULTS!r}, but the role has no tools_before whose results it could read")
    if role.tools_before and TOOL_RESULTS not in used:
        unknown.append(f"{where}: does not use {TOOL_RESULTS!r}, the results of tools_before; use them or remove it")
    return unknown + [
        f"{where}: does not use the declared input {name!r}; use it or remove it from inputs"
        for name in sorted(set(role.inputs) - used)
    ]


def _variables(role: RoleSpec, style: Style, file: str) -> set[str]:
    """The variables of a template. Raises DocumentError, TemplateSyntaxError and what the compiler raises."""
    text = _text(role, style, file)
    tree = _environment().parse(text)
    for node in tree.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        word = type(node).__name__.lower()
        raise TemplateSyntaxError(f"a prompt is one file, {word!r} is not supported; write the text here", node.lineno)
    _template(text)
    return meta.find_undeclared_variables(tree)


def _text(role: RoleSpec, style: Style, file: str) -> str:
    """A template's text. Raises DocumentError."""
    folders = role.prompt_directories(style)
    places = [folder / file for folder in folders]
    # A link that leads nowhere must not give way to the shipped template.
    path = next((place for place in places if place.exists() or place.is_symlink()), None)
    if path is None:
        raise DocumentError(f"no such file; write it in {' or '.join(str(folder) for folder in folders)}")
    return read_text(path)


def _rendered(roles: Mapping[str, RoleSpec], name: str, style: Style) -> list[str]:
    """What rendering with example inputs raises, early in a run and later."""
    role = roles[name]
    looks_back = part_of(roles, name) in ("design", "proposed")
    for later in (False, True):
        examples = example_inputs(looks_back=looks_back, later=later) | _example_notes(roles, later=later)
        values = {key: examples[key] for key in role.inputs}
        if role.tools_before:
            values[TOOL_RESULTS] = {call.key: "{}" for call in role.tools_before}
        try:
            _messages(role, style, values)
        except ValueError as error:
            when = "of a later round" if later else "of a first round"
            null = [key for key in role.inputs if examples[key] is None]
            hint = f", in which {' and '.join(null)} {'are' if len(null) > 1 else 'is'} null" if null else ""
            return [f"{error}; rendered with example inputs {when}{hint}"]
    return []


def _example_notes(roles: Mapping[str, RoleSpec], *, later: bool) -> dict[str, Any]:
    """The notes of all roles by key; early, one whose role may be skipped is null."""
    return {
        role.writes: example_note(role.output_type) if later or role.on_failure != "skip" else None
        for role in roles.values()
        if role.writes_note
    }


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
def _template(text: str) -> Template:
    """The compiled template; a prompt is one file, so that its text is all there is to it."""
    return _environment().from_string(text)


@cache
def _environment() -> SandboxedEnvironment:
    environment = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
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
