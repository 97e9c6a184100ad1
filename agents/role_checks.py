"""What a role file's form cannot say: names that exist, a set of roles that fits together, and a critic that reads.

Every error is one line that says what was found, what was expected and, where that is not plain, what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import networkx as nx
from pydantic import ValidationError

from agents.entrypoints import EntrypointError, load_entrypoint
from agents.notes import form_errors
from agents.places import CODE_PLACES, RESERVED, PlaceCycle, part_of, stage_graph, stage_order
from agents.role_files import explain, suggest
from agents.rolespec import MOST_ROLLOUTS, NOTES, OUTPUTS, TOOL_RESULTS, WRITES, RoleSpec
from envsim.api import Environment
from tools.constants import constant_errors
from tools.registry import TOOLS, arguments_of, known_tools

FROM_CODE = ("evidence", "knobs", "bounds", "gate_report", "conditions", "critique")
"""Inputs that code provides at any place; on a first proposal gate_report and critique are null, conditions empty."""
FROM_ROLES = ("diagnosis", "proposal")
"""Inputs that roles of the loop write; without an analyst code gives the rule's diagnosis."""
INPUTS = FROM_CODE + FROM_ROLES
NEEDED = ("proposal", "critique")
"""Keys without whose writers there is no loop."""
A_CRITIC_READS = ("proposal", "gate_report")
MOST_ROLES = 24


def role_errors(role: RoleSpec, notes: Iterable[str]) -> list[str]:
    """The faults of one role beside the others; ``notes`` are the keys that any role of the set writes as a note."""
    return [
        *_name_errors(role),
        *_input_errors(role, set(notes)),
        *_output_errors(role),
        *_kind_errors(role),
        *_tool_errors(role),
        *_failure_errors(role),
    ]


def _name_errors(role: RoleSpec) -> list[str]:
    if role.name in RESERVED:
        return [f"name: {role.name!r} is reserved for a node of code; choose another"]
    return []


def _input_errors(role: RoleSpec, notes: set[str]) -> list[str]:
    known = {*INPUTS, *notes}
    errors = [f"inputs: unknown input {key!r}{suggest(key, known)}" for key in role.inputs if key not in known]
    errors.extend(f"inputs: {key!r} is listed twice" for key in duplicates(role.inputs))
    if role.writes in role.inputs:
        errors.append(f"inputs: {role.writes!r} is what the role itself writes; remove it")
    if role.output == "Critique":
        errors.extend(
            f"inputs: a critic must read {key!r}, or it would approve blindly; add it and use it in its prompt"
            for key in A_CRITIC_READS
            if key not in role.inputs
        )
    return errors


def _output_errors(role: RoleSpec) -> list[str]:
    if not isinstance(role.output, str):
        errors = [f"output: {error}" for error in form_errors(role.output)]
    elif role.output in OUTPUTS:
        expected = WRITES[role.output]
        wrong = f"writes: {role.writes!r} cannot hold a {role.output}; expected {expected!r}"
        return [] if role.writes == expected else [wrong]
    elif role.output not in NOTES:
        return [f"output: unknown output {role.output!r}{suggest(role.output, [*OUTPUTS, *NOTES])}"]
    else:
        errors = []
    taken = {*INPUTS, *WRITES.values(), TOOL_RESULTS}
    if role.writes in taken:
        errors.append(
            f"writes: {role.writes!r} is a key of the loop and no place for a note; choose another, such as "
            f"{role.name!r}"
        )
    return errors


def _kind_errors(role: RoleSpec) -> list[str]:
    if role.kind == "llm":
        errors = [] if role.entrypoint is None else ["entrypoint: only a role of kind python has one; remove it"]
        return errors if role.prompt else [*errors, "prompt: missing, a role of kind llm is asked by one"]
    errors = [
        f"{key}: a role of kind python has none; remove it, or over a shipped role write '{key}: {none}'"
        for key, none, given in (
            ("prompt", "null", role.prompt),
            ("tools", "[]", role.tools),
            ("tools_before", "[]", role.tools_before),
        )
        if given
    ]
    if role.model != "inherit":
        errors.append("model: a role of kind python asks no model; remove it")
    if role.output == "Critique":
        errors.append("kind: a critic of kind python could approve blindly; expected llm (a note may warn the critic)")
    if role.entrypoint is None:
        return [*errors, "entrypoint: missing, expected package.module:function"]
    try:
        load_entrypoint(role.entrypoint)
    except EntrypointError as error:
        errors.append(f"entrypoint: {error}")
    return errors


def _tool_errors(role: RoleSpec) -> list[str]:
    errors: list[str] = []
    named = [*(("tools", name) for name in role.tools), *(("tools_before", call.tool) for call in role.tools_before)]
    for field, name in named:
        if name not in known_tools():
            errors.append(f"{field}: unknown tool {name!r}{suggest(name, known_tools())}")
            continue
        tool = TOOLS[name]
        if tool.only_for and role.writes not in tool.only_for:
            errors.append(
                f"{field}: {name!r} is only for the role that writes {' or '.join(tool.only_for)}, "
                f"this one writes {role.writes!r}"
            )
        if tool.with_answer and field == "tools_before":
            errors.append(f"{field}: {name!r} takes the role's answer, so it cannot be called before; list it in tools")
    errors.extend(f"tools: {name!r} is listed twice" for name in duplicates(role.tools))
    errors.extend(
        f"tools_before: two results are called {key!r}; give one a name of its own, such as name: {key}_2"
        for key in duplicates(call.key for call in role.tools_before)
    )
    called = [name for name in role.tools if name in TOOLS and not TOOLS[name].with_answer]
    if called and role.limits.max_tool_calls == 0:
        errors.append(f"limits.max_tool_calls: 0, so that {called[0]!r} could never be called; expected 1 to 16")
    if role.limits.max_tool_calls and not called:
        errors.append(f"limits.max_tool_calls: {role.limits.max_tool_calls}, but tools lists none to be called")
    if not errors:
        errors.extend(_argument_errors(role))
    return errors


def _argument_errors(role: RoleSpec) -> list[str]:
    errors: list[str] = []
    for call in role.tools_before:
        model = arguments_of(call.tool)
        try:
            model.model_validate(call.args)
        except ValidationError as error:
            errors.extend(f"tools_before: {call.tool}: args.{line}" for line in explain(error, model))
    return errors


def constant_call_errors(role: RoleSpec, environment: Environment, config: Any, samples: int = 1) -> list[str]:
    """Fixed calls that this environment could answer in no stage, and more tasks than the policy may be asked for.

    ``samples`` are the answers to each task of a probe; whoever does not know the profile yet says 1. Calls that are no
    calls of the tool at all are for `role_errors`.
    """
    errors: list[str] = []
    rollouts = 0
    for call in role.tools_before:
        try:
            request = arguments_of(call.tool).model_validate(call.args)
        except (KeyError, ValidationError):
            continue
        errors.extend(
            f"tools_before: {call.key}: args.{line}" for line in constant_errors(request, environment, config)
        )
        tasks = TOOLS[call.tool].tasks
        rollouts += 0 if tasks is None else getattr(request, tasks) * samples
    if rollouts > role.limits.max_rollouts:
        errors.append(
            f"tools_before: {rollouts} answers of the policy are asked for ({samples} a task), and limits.max_rollouts "
            f"is {role.limits.max_rollouts}; lower n, or raise the limit (at most {MOST_ROLLOUTS})"
        )
    return errors


def _failure_errors(role: RoleSpec) -> list[str]:
    if role.writes_note and role.on_failure == "rule":
        return ["on_failure: no rule can write a note in the role's place; expected skip (the note is null) or stop"]
    if not role.writes_note and role.on_failure == "skip":
        return [f"on_failure: the stage needs what writes {role.writes!r}; expected rule or stop"]
    return []


def set_errors(roles: Mapping[str, RoleSpec], every: Mapping[str, RoleSpec], unread: Collection[str] = ()) -> list[str]:
    """The faults of the enabled roles together; ``every`` has the disabled ones too.

    ``unread`` are the names of files with faults of their own: they may be places, and what they write is not known.
    """
    errors = _place_errors(roles, every, unread)
    if not unread:
        errors += _writer_errors(roles, every)
    if len(roles) > MOST_ROLES:
        errors.append(f"{len(roles)} roles are enabled, at most {MOST_ROLES} are possible")
    if errors:
        return errors
    try:
        stage_order(roles)
    except PlaceCycle as cycle:
        return [str(cycle)]
    graph = stage_graph(roles)
    for name, role in roles.items():
        before = nx.ancestors(graph, name)
        for key in () if unread else role.inputs:
            errors.extend(_source_errors(role, key, before, roles, every))
        if not unread:
            errors.extend(_proposed_errors(role, roles))
        if role.approval != "never" and "approval" in before:
            errors.append(
                f"{name}: approval: {role.approval!r} on a role that speaks after the approval has no effect; put it "
                "on one that stands before, such as the critic"
            )
    return errors


def _source_errors(
    role: RoleSpec, key: str, before: set[str], roles: Mapping[str, RoleSpec], every: Mapping[str, RoleSpec]
) -> list[str]:
    """Whether somebody placed before the role writes what it reads."""
    if key in FROM_CODE:
        return []
    writer = next((name for name, other in roles.items() if other.writes == key), None)
    if writer in before or (key == "diagnosis" and writer is None):
        return []
    if writer is not None:
        return [
            f"{role.name}: inputs: nobody placed before it writes {key!r}; {writer!r} does, so write "
            f"place: {{after: [{writer}]}}, or place: {{before: [{role.name}]}} there"
        ]
    off = [name for name, other in every.items() if other.writes == key]
    if not off:
        # An input that nobody knows is a fault of the role alone.
        return []
    return [f"{role.name}: inputs: {key!r} is written by {' or '.join(off)}, which is not enabled; enable it"]


def _proposed_errors(role: RoleSpec, roles: Mapping[str, RoleSpec]) -> list[str]:
    """Fixed calls on a proposal of a role that speaks before there is one that can be generated."""
    if part_of(roles, role.name) not in ("design", "proposed"):
        return []
    return [
        f"{role.name}: tools_before: {call.key}: args.{name}.base: there is no 'proposed' configuration before the "
        "gates have made one; use base 'accepted', or place the role after them"
        for call in role.tools_before
        for name, side in call.args.items()
        if isinstance(side, Mapping) and side.get("base") == "proposed"
    ]


def _place_errors(roles: Mapping[str, RoleSpec], every: Mapping[str, RoleSpec], unread: Collection[str]) -> list[str]:
    known = {*every, *unread}
    allowed = {"after": {*known, *CODE_PLACES[:-1]}, "before": {*known, *CODE_PLACES[1:]}}
    errors = []
    for name, role in roles.items():
        for side, names in allowed.items():
            for other in getattr(role.place, side):
                if other == name:
                    errors.append(f"{name}: place.{side}: names the role itself; remove it")
                elif other in RESERVED and other not in names:
                    errors.append(
                        f"{name}: place.{side}: {other!r} is outside of where roles speak; expected a role or one of "
                        f"{', '.join(node for node in CODE_PLACES if node in names)}"
                    )
                elif other not in names:
                    errors.append(f"{name}: place.{side}: unknown node {other!r}{suggest(other, names)}")
    return errors


def _writer_errors(roles: Mapping[str, RoleSpec], every: Mapping[str, RoleSpec]) -> list[str]:
    errors = []
    for key in duplicates(role.writes for role in roles.values()):
        writers = sorted(name for name, role in roles.items() if role.writes == key)
        errors.append(f"{' and '.join(writers)}: both write {key!r}; a state key has one writer, disable one of them")
    written = {role.writes for role in roles.values()}
    for key in NEEDED:
        if key not in written:
            off = [name for name, role in every.items() if role.writes == key]
            which = f"; {' or '.join(off)} would, but enabled is false there" if off else ""
            errors.append(f"no enabled role writes {key!r}, which the loop needs{which}; enable one that does")
    return errors


def duplicates(names: Iterable[str]) -> list[str]:
    """What occurs more than once, in the order of first appearance."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name for name, n in counts.items() if n > 1]
