"""``schema``: the JSON Schemas of what the lake reads and writes."""

from __future__ import annotations

import argparse
import json

from pydantic import BaseModel

from envsim.api import EnvsimError, Measurement, Verdict
from envsim.commands import Commands, described
from envsim.commands.lines import Judgement, Layout, PlannedLayout, Solution
from envsim.lake.config import EnvConfig, nearest
from envsim.lake.instance import LakeInstance
from envsim.lake.scoring import AnswerRow, PromptRow, Score

SCHEMAS: dict[str, type[BaseModel]] = {
    "EnvConfig": EnvConfig,
    "LakeInstance": LakeInstance,
    "Measurement": Measurement,
    "Verdict": Verdict,
    "Layout": Layout,
    "PlannedLayout": PlannedLayout,
    "Solution": Solution,
    "Judgement": Judgement,
    "AnswerRow": AnswerRow,
    "PromptRow": PromptRow,
    "Score": Score,
}

DESCRIPTION = """Print the JSON Schemas of what the commands read and print. One object, name -> schema: EnvConfig (what
'generate' takes), LakeInstance (what it writes), Layout and Solution (what 'solve' reads and prints), PlannedLayout and
Judgement (the same of 'verify'), AnswerRow, PromptRow and Score (of 'benchmark'), Measurement, Verdict."""

EXAMPLE = "python -m envsim schema EnvConfig"


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "schema", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(SCHEMAS)} (default: all)")


def run(options: argparse.Namespace) -> None:
    """Print them as one object."""
    names = options.names or list(SCHEMAS)
    for name in names:
        if name not in SCHEMAS:
            raise EnvsimError(f"unknown schema {name!r}; {nearest(name, list(SCHEMAS))}")
    print(json.dumps({name: SCHEMAS[name].model_json_schema() for name in names}, indent=2))
