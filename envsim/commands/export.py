"""``export``: instances from one format into another."""

from __future__ import annotations

import argparse

from envsim.api import EnvsimError
from envsim.commands import Commands, described
from envsim.commands.reading import SOURCE, add_agents, instances
from envsim.commands.writing import FORMATS, FORMATS_HELP, check, out_path, write

DESCRIPTION = """Write instances in another format. Reads what 'generate' wrote, a frozen set, bare layouts, or a
MovingAI scenario; keeps certificates and names where the format has a place for them (movingai has none, nor for
success_rate and other labels: stderr says what is left out)."""

EXAMPLE = """python -m envsim export validation --format datasets --out validation-dataset
python -m envsim export train.jsonl --format movingai --out scenarios"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "export", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("file", metavar="FILE", help=SOURCE)
    add_agents(parser)
    parser.add_argument(
        "--out", type=out_path, metavar="PATH", required=True, help="file or directory to write; not there yet"
    )
    parser.add_argument("--format", choices=FORMATS, default="jsonl", help=FORMATS_HELP)
    parser.add_argument(
        "--skip",
        action="store_true",
        help="with movingai: leave out instances with two goals an agent, and say how many",
    )


def run(options: argparse.Namespace) -> None:
    """Read, write, and say how many."""
    check(options.out, options.format)
    if options.skip and options.format != "movingai":
        raise EnvsimError(f"--skip goes with --format movingai; {options.format} holds all instances")
    found = instances(options.file, options.agents)
    kept = [instance for instance in found if instance.via is None] if options.skip else found
    write(kept, options.out, options.format)
    left_out = f"; {len(found) - len(kept)} with two goals an agent left out" if len(kept) < len(found) else ""
    print(f"{len(kept)} instances in {options.out}{left_out}")
