"""``python -m agents validate [DIR]`` checks role files; ``python -m agents schema [NAME]`` prints the roles' protocol.

Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import BaseModel

from agents.places import stage_order
from agents.roles import RoleError, load_roles, roles_hash
from agents.rolespec import NOTES, OUTPUTS, ExternalModel, RoleSpec
from agents.schemas import Evidence, GateReport
from envsim import registry
from envsim.api import EnvsimError

SCHEMAS: dict[str, type[BaseModel]] = {
    "Evidence": Evidence,
    **OUTPUTS,
    **NOTES,
    "GateReport": GateReport,
    "RoleSpec": RoleSpec,
}


def validate(directory: Path | None, environment: str) -> int:
    """Print the stage as the roles make it and their hash, or every fault.

    All groups of knobs count as open: which of them are is a run's to say, and it looks again.
    """
    try:
        known = registry.get(environment)
        roles = load_roles(directory, environment=known.editing(known.knob_groups))
    except EnvsimError as error:
        print(error, file=sys.stderr)
        return 2
    except RoleError as error:
        print(error, file=sys.stderr)
        return 2
    for node in stage_order(roles):
        print(role_line(roles[node]) if node in roles else f"({node})")
    print(f"{len(roles)} roles are sound, sha256 {roles_hash(roles)}")
    return 0


def role_line(role: RoleSpec) -> str:
    """What a role reads, writes and may do, in one line."""
    model = f"{role.model.name} at {role.model.base_url}" if isinstance(role.model, ExternalModel) else role.model
    parts = [
        f"{role.name}: {', '.join(role.inputs)} -> {role.writes}",
        f"python {role.entrypoint}" if role.entrypoint else f"model {model}",
        f"before it speaks {', '.join(call.tool for call in role.tools_before)}" if role.tools_before else "",
        f"tools {', '.join(role.tools)}" if role.tools else "",
        f"at most {role.limits.max_tool_calls} calls" if role.limits.max_tool_calls else "",
        f"a person approves: {role.approval}" if role.approval != "never" else "",
        f"on failure {role.on_failure}",
    ]
    return "; ".join(part for part in parts if part)


def schema(name: str | None) -> int:
    """Print one JSON Schema, or all by name."""
    schemas = {key: model.model_json_schema() for key, model in SCHEMAS.items()}
    print(json.dumps(schemas if name is None else schemas[name], indent=2))
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agents", description="Role files and the roles' protocol.")
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser(
        "validate", help="check role files and print a stage's nodes in their order, code in brackets"
    )
    checking.add_argument(
        "directory",
        nargs="?",
        type=Path,
        help="a directory laid over the shipped roles; none = the shipped roles alone",
    )
    checking.add_argument(
        "--environment",
        default="lake",
        metavar="NAME",
        help="whose cells and knobs calls of tools name (default: lake)",
    )
    printing = commands.add_parser("schema", help="print the roles' protocol as JSON Schema")
    printing.add_argument("name", nargs="?", choices=sorted(SCHEMAS), help="one schema only")
    arguments = parser.parse_args(argv)
    if arguments.command == "validate":
        return validate(arguments.directory, arguments.environment)
    return schema(arguments.name)


if __name__ == "__main__":
    sys.exit(main())
