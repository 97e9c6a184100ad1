"""``python -m agents validate [DIR]`` checks role files; ``python -m agents schema [NAME]`` prints the roles' protocol.

Exit codes: 0 done, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import BaseModel

from agents.roles import RoleError, load_roles, roles_hash
from agents.rolespec import OUTPUTS, RoleSpec
from agents.schemas import Evidence, GateReport

SCHEMAS: dict[str, type[BaseModel]] = {"Evidence": Evidence, **OUTPUTS, "GateReport": GateReport, "RoleSpec": RoleSpec}


def validate(directory: Path | None) -> int:
    """Print the roles and their hash, or every fault."""
    try:
        roles = load_roles(directory)
    except RoleError as error:
        print(error, file=sys.stderr)
        return 2
    for name, role in roles.items():
        tools = f", tools {', '.join(role.tools)}" if role.tools else ""
        print(f"{name}: {', '.join(role.inputs)} -> {role.writes}{tools}; on failure {role.on_failure}")
    print(f"{len(roles)} roles are sound, sha256 {roles_hash(roles)}")
    return 0


def schema(name: str | None) -> int:
    """Print one JSON Schema, or all by name."""
    schemas = {key: model.model_json_schema() for key, model in SCHEMAS.items()}
    print(json.dumps(schemas if name is None else schemas[name], indent=2))
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agents", description="Role files and the roles' protocol.")
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("validate", help="check role files")
    checking.add_argument("directory", nargs="?", type=Path, help="a directory of role files; none = the shipped roles")
    printing = commands.add_parser("schema", help="print the roles' protocol as JSON Schema")
    printing.add_argument("name", nargs="?", choices=sorted(SCHEMAS), help="one schema only")
    arguments = parser.parse_args(argv)
    return validate(arguments.directory) if arguments.command == "validate" else schema(arguments.name)


if __name__ == "__main__":
    sys.exit(main())
