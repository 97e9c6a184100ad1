"""The commands of ``python -m envsim``: a module each, with ``add(commands)`` and ``run(options)``."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What ``ArgumentParser.add_subparsers`` returns."""


def described(
    commands: Commands, name: str, description: str, example: str, run: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    """A command's parser: its first sentence is the help of the list, ``example`` the lines of the epilog."""
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    paragraphs = [textwrap.fill(paragraph, 90) for paragraph in description.split("\n\n")]
    parser = commands.add_parser(
        name,
        help=description.split(". ", maxsplit=1)[0].rstrip(".").replace("\n", " "),
        description="\n\n".join(paragraphs),
        epilog=f"example:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(command=run)
    return parser


def progress(done: int, total: int) -> None:
    """A counter on stderr where a person watches it."""
    if sys.stderr.isatty():
        print(f"\r{done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
