"""``python -m envsim``: generate, solve, verify, draw and grade multi-agent plans on frozen lakes.

Exit codes: 0 every input was answered, 2 bad input (one line on stderr says where, what, its value and what was
expected; good rows before it have their answer), 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from envsim.api import EnvsimError
from envsim.commands import bench, benchmark, export, generate, render, schema, sets, solve, verify
from envsim.documents import DocumentError

COMMANDS = (generate, solve, verify, render, bench, benchmark, schema, sets, export)
DESCRIPTION = """Multi-agent path finding on frozen lakes: several agents on a grid with holes, each with a start and a
goal; all move at once, one cell a step or none; no two in one cell, no two swapping cells.

Everything is exact: optima are proved by search, plans are judged by one verifier, the same seed gives the same bytes.
Every command prints its own help with an example: python -m envsim COMMAND --help"""
MAX_ERROR = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], None] = options.command
        command(options)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone; what is left in the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (EnvsimError, DocumentError, OSError) as error:
        print(f"envsim: {_one_line(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("envsim: interrupted", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, as of any other input."""

    def error(self, message: str) -> NoReturn:
        raise EnvsimError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m envsim", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for module in COMMANDS:
        module.add(commands)
    return parser


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_ERROR else f"{line[: MAX_ERROR - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
