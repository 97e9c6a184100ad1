"""Loading roles: the checks that a set of role files must pass before a run may begin.

``load_roles`` either returns roles that can run or raises one RoleError with every fault it found: the file, the field,
the value, what was expected and what to do. Nothing is dropped silently and no default hides a typing error.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from agents.render import template_errors
from agents.rolespec import OUTPUTS, PACKAGE, STYLES, WRITES, ExternalModel, Limits, Place, PromptFiles, RoleSpec
from envsim.documents import DocumentError, parse_yaml, read_text
from tools.registry import known_tools

__all__ = ["RoleError", "RoleSpec", "explain", "load_roles", "read_role", "roles_hash"]

FIXED_NODES = ("evidence", "gates", "evaluate")
"""Nodes that are code, around which roles are placed."""
FROM_CODE = ("evidence", "knobs", "bounds", "gate_report", "conditions", "critique")
"""Inputs that code provides at any place; on a first proposal gate_report and critique are null, conditions empty."""
FROM_ROLES = ("diagnosis", "proposal")
INPUTS = FROM_CODE + FROM_ROLES


class RoleError(ValueError):
    """A set of roles that cannot run. ``errors`` has one line a fault."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("the roles cannot be used:\n" + "\n".join(f"- {error}" for error in errors))
        self.errors = list(errors)


def load_roles(directory: Path | str | None = None) -> dict[str, RoleSpec]:
    """The enabled roles of a directory by name, in the order of their places; the shipped ones if None.

    A directory holds one ``<name>.yaml`` a role and may hold ``prompts/{compact,full}/*.j2``; a template that is not
    there is taken from the shipped ones. Raises RoleError with every fault found.
    """
    folder = PACKAGE / "roles" if directory is None else Path(directory)
    if not folder.is_dir():
        raise RoleError([f"{folder}: not a directory; give a directory with one YAML file a role"])
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise RoleError([f"{folder}: no *.yaml file in it; copy the shipped roles there and edit them"])
    errors: list[str] = []
    roles: dict[str, RoleSpec] = {}
    for file in files:
        try:
            role = read_role(file)
        except RoleError as error:
            errors.extend(error.errors)
            continue
        role._root = PACKAGE if directory is None else folder
        roles[role.name] = role
        errors.extend(f"{file.name}: {text}" for text in _role_errors(role, file) + template_errors(role))
    if errors:
        raise RoleError(errors)
    enabled = {name: role for name, role in roles.items() if role.enabled}
    errors = _set_errors(enabled)
    if errors:
        raise RoleError(errors)
    return {name: enabled[name] for name in _order(enabled) if name in enabled}


def read_role(file: Path) -> RoleSpec:
    """One role file, checked against RoleSpec alone. Raises RoleError."""
    try:
        data = parse_yaml(read_text(file), file.name)
    except DocumentError as error:
        raise RoleError([str(error)]) from error
    if not isinstance(data, dict):
        raise RoleError([f"{file.name}: holds {type(data).__name__}, expected a mapping with name, prompt, inputs ..."])
    try:
        return RoleSpec.model_validate(data)
    except ValidationError as error:
        raise RoleError([f"{file.name}: {line}" for line in explain(error, RoleSpec)]) from error


def roles_hash(roles: dict[str, RoleSpec]) -> str:
    """sha256 over the specs, their templates' text and their output schemas: what a role will be asked."""
    content: dict[str, Any] = {}
    for name, role in sorted(roles.items()):
        texts = {}
        for style in STYLES:
            for file in (role.prompt.system, role.prompt.user):
                path = next(folder / file for folder in role.prompt_directories(style) if (folder / file).is_file())
                texts[f"{style}/{file}"] = path.read_text(encoding="utf-8")
        content[name] = {
            "spec": role.model_dump(mode="json"),
            "templates": texts,
            "output": role.output_type.model_json_schema(),
        }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def explain(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line a fault of a pydantic error, with the nearest known name for an unknown key."""
    lines = []
    for fault in error.errors():
        where = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            key = str(fault["loc"][-1])
            lines.append(f"{where}: unknown key{_suggest(key, _all_fields(model))}")
        elif fault["type"] == "missing":
            lines.append(f"{where}: missing, it must be given")
        else:
            lines.append(f"{where}: {fault['msg'].removeprefix('Value error, ')}, got {_short(fault['input'])}")
    return lines


def _role_errors(role: RoleSpec, file: Path) -> list[str]:
    errors = []
    if file.stem != role.name:
        errors.append(f"name: {role.name!r} differs from the file name; call the file {role.name}.yaml")
    if role.name in FIXED_NODES:
        errors.append(f"name: {role.name!r} is reserved for a node of code; choose another")
    for key in role.inputs:
        if key not in INPUTS:
            errors.append(f"inputs: unknown input {key!r}{_suggest(key, INPUTS)}")
    errors.extend(f"inputs: {key!r} is listed twice" for key in _duplicates(role.inputs))
    if role.output not in OUTPUTS:
        errors.append(f"output: unknown output {role.output!r}{_suggest(role.output, OUTPUTS)}")
    elif role.writes != WRITES[role.output]:
        errors.append(f"writes: {role.writes!r} cannot hold a {role.output}; expected {WRITES[role.output]!r}")
    for tool in role.tools:
        if tool not in known_tools():
            errors.append(f"tools: unknown tool {tool!r}{_suggest(tool, known_tools())}")
    return errors


def _set_errors(roles: dict[str, RoleSpec]) -> list[str]:
    errors = []
    nodes = {*roles, *FIXED_NODES}
    for name, role in roles.items():
        for place in role.place.after:
            if place not in nodes:
                errors.append(f"{name}: place.after: unknown or disabled node {place!r}{_suggest(place, nodes)}")
    for key in _duplicates(role.writes for role in roles.values()):
        writers = sorted(name for name, role in roles.items() if role.writes == key)
        errors.append(f"{' and '.join(writers)}: both write {key!r}; a state key has one writer, disable one of them")
    if errors:
        return errors
    edges = _edges(roles)
    try:
        list(TopologicalSorter(edges).static_order())
    except CycleError as error:
        return [f"place.after: the roles {' -> '.join(error.args[1])} wait for one another; remove one of these places"]
    for name, role in roles.items():
        before = _ancestors(name, edges)
        if "evidence" not in before:
            errors.append(f"{name}: place.after does not lead back to 'evidence', so it would never be reached")
        for key in role.inputs:
            writers = [other for other, spec in roles.items() if spec.writes == key]
            if key in FROM_ROLES and not any(writer in before for writer in writers):
                errors.append(
                    f"{name}: inputs: nobody placed before it writes {key!r}; place it after a role that does"
                )
        if role.writes == "budget":
            critics = [other for other, spec in roles.items() if spec.writes == "critique"]
            if not any(critic in before and "gates" in _ancestors(critic, edges) for critic in critics):
                errors.append(
                    f"{name}: nothing that writes 'critique' stands between 'gates' and it; "
                    "place it after a safety critic that is itself after 'gates'"
                )
    missing = [key for key in WRITES.values() if key not in {role.writes for role in roles.values()}]
    errors.extend(f"no enabled role writes {key!r}, which the loop needs; enable one that does" for key in missing)
    return errors


def _edges(roles: dict[str, RoleSpec]) -> dict[str, set[str]]:
    """Predecessors by node: the roles' places, and the gates after every writer of a proposal."""
    edges: dict[str, set[str]] = {name: set(role.place.after) for name, role in roles.items()}
    edges["gates"] = {name for name, role in roles.items() if role.writes == "proposal"}
    edges["evaluate"] = {name for name, role in roles.items() if role.writes == "budget"}
    return edges


def _order(roles: dict[str, RoleSpec]) -> list[str]:
    return list(TopologicalSorter(_edges(roles)).static_order())


def _ancestors(node: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = [node]
    while todo:
        for before in edges.get(todo.pop(), set()) - found:
            found.add(before)
            todo.append(before)
    return found


def _all_fields(model: type[BaseModel]) -> list[str]:
    parts: tuple[type[BaseModel], ...] = (model, PromptFiles, Place, Limits, ExternalModel)
    return [name for part in parts for name in part.model_fields]


def _suggest(word: str, known: Iterable[str]) -> str:
    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(names)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _duplicates(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    twice = []
    for name in names:
        if name in seen and name not in twice:
            twice.append(name)
        seen.add(name)
    return twice
