"""Loading roles: the checks that a set of role files must pass before a run may begin.

``load_roles`` either returns roles that can run or raises one RoleError with every fault it found: the file, the field,
the value, what was expected and what to do. Nothing is dropped silently and no default hides a typing error.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agents.entrypoints import source_of
from agents.places import stage_order, without_disabled
from agents.render import rendering_errors, stray_prompts, template_errors
from agents.role_checks import constant_call_errors, role_errors, set_errors
from agents.role_files import RoleError, explain, read_role, read_roles
from agents.rolespec import STYLES, RoleSpec
from envsim.api import Environment

__all__ = ["RoleError", "RoleSpec", "explain", "load_roles", "read_role", "roles_hash"]


def load_roles(directory: Path | str | None = None, *, environment: Environment | None = None) -> dict[str, RoleSpec]:
    """The enabled roles by name, in the order in which they speak: the shipped ones, with a directory laid over them.

    A directory holds only what differs: ``<name>.yaml`` for a new role or for the keys of a shipped one that change,
    and ``prompts/*.j2`` or ``prompts/{compact,full}/*.j2``, which go before the shipped ones of the same name. With an
    ``environment`` the fixed calls of tools are held against its cells and knobs too. Raises RoleError with every fault
    found: those of the set as a whole are looked for among what is sound of the files.
    """
    folder = None if directory is None else Path(directory)
    read = read_roles(folder)
    errors, every = read.errors, read.roles | read.stand_ins
    notes = {role.writes for role in every.values() if role.writes_note}
    faulty = bool(read.unread)
    for name, role in read.roles.items():
        own = [*role_errors(role, notes), *(template_errors(role) if role.prompt is not None else [])]
        if environment is not None:
            own += constant_call_errors(role, environment, environment.default_config())
        errors.extend(f"{name}.yaml: {text}" for text in own)
        faulty |= bool(own)
    if folder is not None:
        errors.extend(stray_prompts(folder, every))
    enabled = without_disabled(every)
    if of_set := set_errors(enabled, every, read.unread):
        raise RoleError([*errors, *of_set])
    roles = {name: enabled[name] for name in stage_order(enabled) if name in enabled}
    if not faulty:
        errors.extend(f"{name}.yaml: {text}" for name in roles for text in rendering_errors(roles, name))
    if errors:
        raise RoleError(errors)
    return roles


def roles_hash(roles: dict[str, RoleSpec]) -> str:
    """sha256 over the specs, their templates or code, and their output schemas: what decides what is asked."""
    content: dict[str, Any] = {}
    for name, role in sorted(roles.items()):
        content[name] = {
            "spec": role.model_dump(mode="json"),
            "templates": _template_texts(role),
            "output": role.output_type.model_json_schema(),
        }
        if role.entrypoint is not None:
            content[name]["source"] = source_of(role.entrypoint)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _template_texts(role: RoleSpec) -> dict[str, str]:
    texts = {}
    for style in STYLES:
        for _, file in () if role.prompt is None else role.prompt.files:
            path = next(folder / file for folder in role.prompt_directories(style) if (folder / file).is_file())
            texts[f"{style}/{file}"] = path.read_text(encoding="utf-8")
    return texts
