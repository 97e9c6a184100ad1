"""``python -m graph.study --plan FILE``: arms x seeds of whole runs, their table and their report page.

The command can be given again at any time: what is finished is read, what was cut off is resumed, what failed is tried
again. Exit codes: 0 all runs of the plan are done, 1 some failed, 2 bad input, 75 stopped by a signal. ``python -m
graph.study pilot`` searches for an oracle curriculum, ``python -m graph.study reproduce`` makes published runs again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from graph.exits import Exit
from graph.settings import SettingsError
from graph.study.command import study
from graph.study.reproduce import reproduce
from graph.study.search import pilot
from trainer.launch.contract import LaunchError

COMMANDS = {"pilot": pilot, "reproduce": reproduce}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] and given[0] in COMMANDS:
            return COMMANDS[given[0]](given[1:])
        return study(given)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.FAILED


if __name__ == "__main__":
    sys.exit(main())
