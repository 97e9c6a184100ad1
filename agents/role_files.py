"""Role files on disk: a user's directory over the shipped roles, read and checked one file at a time.

A user's file for a shipped role holds only what differs: mappings are merged, everything else is replaced.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from agents.notes import FIELD_TYPES
from agents.rolespec import PACKAGE, ExternalModel, Limits, Place, PromptFiles, RoleSpec, TokenLimit, ToolBefore
from envsim.documents import DocumentError, parse_yaml, read_text

TEMPLATES = (".j2", ".jinja", ".jinja2")
DATA = (".yaml", ".yml", ".json")
"""Endings of what somebody most likely meant as a prompt, or as a role."""


class RoleError(ValueError):
    """A set of roles that cannot run. ``errors`` has one line a fault."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("the roles cannot be used:\n" + "\n".join(f"- {error}" for error in errors))
        self.errors = list(errors)


class ReadRoles(NamedTuple):
    """Every role of a directory over the shipped ones, enabled or not, by name; and the faults of files on their own.

    ``unread`` are the names of files with faults, and ``stand_ins`` what is sound of them, with which the set can be
    looked at as a whole.
    """

    roles: dict[str, RoleSpec]
    errors: list[str]
    unread: set[str]
    stand_ins: dict[str, RoleSpec]


def read_roles(directory: Path | None) -> ReadRoles:
    """Read all files. Raises RoleError if the directory is none or holds nothing that roles are made of."""
    shipped = sorted((PACKAGE / "roles").glob("*.yaml"))
    files = {file.stem: file for file in shipped}
    own = {} if directory is None else _own_files(directory)
    errors = [] if directory is None else _strays(directory)
    roots = (PACKAGE,) if directory is None else (directory, PACKAGE)
    found = ReadRoles({}, errors, set(), {})
    for name in dict.fromkeys([*files, *own]):
        sources = [places[name] for places in (files, own) if name in places]
        try:
            role = read_role(*sources)
        except RoleError as error:
            errors.extend(error.errors)
            found.unread.add(name)
            if (sound := stand_in(name, *sources)) is not None:
                found.stand_ins[sound.name] = sound
            continue
        role._roots = roots
        if name != role.name:
            errors.append(
                f"{sources[-1].name}: name: {role.name!r} differs from the file name; call the file {role.name}.yaml"
            )
        found.roles[role.name] = role
    return found


def read_role(*sources: Path) -> RoleSpec:
    """One role from its files, of which a later one is laid over an earlier one. Raises RoleError."""
    data: dict[str, Any] = {}
    for source in sources:
        data = merged(data, _mapping(source))
    name = sources[-1].name
    try:
        return RoleSpec.model_validate(data)
    except ValidationError as error:
        raise RoleError([f"{name}: {line}" for line in explain(error, RoleSpec)]) from error


def stand_in(name: str, *sources: Path) -> RoleSpec | None:
    """What is sound of a role with faults, and the plainest values for the rest; None if that makes no role."""
    plain = {"name": name, "description": "?", "inputs": ["evidence"], "writes": name, "output": "Note", "place": {}}
    data: dict[str, Any] = plain
    for source in sources:
        with suppress(RoleError):
            data = merged(data, _mapping(source))
    for _ in range(2):
        try:
            return RoleSpec.model_validate(data)
        except ValidationError as error:
            faulty = {fault["loc"][0] for fault in error.errors() if fault["loc"]}
            data = plain | {key: value for key, value in data.items() if key not in faulty}
    return None


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping over another: what both have as mappings is merged in turn, anything else of ``above`` replaces."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line a fault of a pydantic error, with the nearest known name for an unknown key."""
    lines = []
    for fault in error.errors():
        where = ".".join(_path(fault["loc"], model))
        if fault["type"] == "extra_forbidden":
            key = str(fault["loc"][-1])
            if where == "place.routes":
                hint = "; a role does not route, code does by gates and critic: say where it stands by after and before"
            else:
                hint = (_misplaced(key, where) if model is RoleSpec else None) or suggest(key, _known_fields(model))
            lines.append(f"{where}: unknown key{hint}")
        elif fault["type"] == "missing":
            lines.append(f"{where}: missing, it must be given")
        else:
            lines.append(f"{where}: {fault['msg'].removeprefix('Value error, ')}, got {short(fault['input'])}")
    return lines


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of an error line on an unknown word."""
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _mapping(file: Path) -> dict[str, Any]:
    try:
        data = parse_yaml(read_text(file), file.name)
    except DocumentError as error:
        raise RoleError([str(error)]) from error
    if not isinstance(data, dict):
        raise RoleError([f"{file.name}: holds {type(data).__name__}, expected a mapping with name, prompt, inputs ..."])
    return data


def _own_files(directory: Path) -> dict[str, Path]:
    if not directory.is_dir():
        raise RoleError([f"{directory}: not a directory; give a directory with one YAML file a role"])
    files = {file.stem: file for file in sorted(directory.glob("[!.]*.yaml"))}
    if not files and not (directory / "prompts").is_dir():
        raise RoleError(
            [f"{directory}: no *.yaml file and no prompts/ in it; write what differs from the shipped roles there"]
        )
    return files


def _strays(directory: Path) -> list[str]:
    """Files that look like roles or prompts and would not be read; those below ``prompts/`` are `stray_prompts`'."""
    errors = []
    for file in sorted(directory.rglob("*")):
        place = file.relative_to(directory)
        if file.is_dir() or place.parts[0] == "prompts" or any(part.startswith(".") for part in place.parts):
            continue
        kind = file.suffix.lower()
        if kind in TEMPLATES:
            errors.append(f"{place}: would not be read; prompts lie in prompts/, call it prompts/{file.stem}.j2")
        elif kind in DATA and (len(place.parts) > 1 or file.suffix != ".yaml"):
            errors.append(f"{place}: would not be read; role files lie at the top and end in .yaml: {file.stem}.yaml")
    return errors


MODELS: tuple[type[BaseModel], ...] = (
    RoleSpec,
    PromptFiles,
    Place,
    Limits,
    TokenLimit,
    ToolBefore,
    ExternalModel,
    *FIELD_TYPES,
)


def _known_fields(model: type[BaseModel]) -> list[str]:
    return [name for part in (MODELS if model is RoleSpec else (model,)) for name in part.model_fields]


def _misplaced(key: str, where: str) -> str | None:
    """Where a known key belongs that stands somewhere else."""
    homes: dict[str, type[BaseModel]] = {
        "limits": Limits,
        "place": Place,
        "prompt": PromptFiles,
        "model": ExternalModel,
    }
    home = next((name for name, part in homes.items() if key in part.model_fields and key != "name"), None)
    if home is not None and not where.startswith(f"{home}."):
        return f"; it belongs under {home!r}"
    if key in RoleSpec.model_fields and where != key:
        return "; it belongs at the top of the file"
    return None


def _path(loc: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """A place in the file: what pydantic adds to say which arm of a union it tried is left out."""
    tags = {"word", "mapping", *(get_args(part.model_fields["type"].annotation)[0] for part in FIELD_TYPES)}
    if model is not RoleSpec or loc[:1] not in (("output",), ("model",)):
        return [str(part) for part in loc]
    return [str(part) for place, part in enumerate(loc) if place not in (1, 3) or part not in tags]
