"""``python -m envsim``: generate, solve, verify, draw and grade multi-agent plans on frozen lakes.

Exit codes: 0 every input was answered, 2 bad input or no place to write (one line on stderr says where, what, its value
and what was expected; good rows before it have their answer), 3 a worker process was killed, 130 interrupted, 141
nobody reads the output any more, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

SAID = {signal.SIGINT: "envsim: interrupted", signal.SIGTERM: "envsim: terminated"}


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """The answer to a signal while nothing is under way that must be put in order."""
    os.write(2, f"{SAID[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    # The imports below take a moment in which people change their minds. An ignored signal stays ignored.
    for _number in SAID:
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _leave)

import argparse  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from io import TextIOWrapper  # noqa: E402

from envsim.api import EnvsimError  # noqa: E402
from envsim.commands import bench, benchmark, export, generate, render, schema, sets, solve, verify  # noqa: E402
from envsim.documents import DocumentError  # noqa: E402
from envsim.parallel import WorkerError, let_workers_fork  # noqa: E402

COMMANDS = (generate, solve, verify, render, bench, benchmark, schema, sets, export)
DESCRIPTION = """Multi-agent path finding on frozen lakes: several agents on a grid with holes, each with a start and a
goal; all move at once, one cell a step or none; no two in one cell, no two swapping cells.

Everything is exact: optima are proved by search, plans are judged by one verifier, the same seed gives the same bytes.
Every command prints its own help with an example: python -m envsim COMMAND --help"""
MAX_ERROR = 600


class _Signalled(KeyboardInterrupt):
    """A signal that asks the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    _ready_streams()
    try:
        with _signals_raised():
            options = _parser().parse_args(arguments)
            if sys.stdout is None:
                raise EnvsimError("stdout is closed, so that nobody would see what is printed; send it to /dev/null")
            command: Callable[[argparse.Namespace], None] = options.command
            command(options)
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has gone; what is left in the buffer would fail again at exit.
        _discard_stdout()
        return 141
    except (EnvsimError, DocumentError) as error:
        print(f"envsim: {_one_line(str(error))}", file=sys.stderr)
        return _settled(2)
    except OSError as error:
        # Whoever reads or writes a file names it; what is left is printed.
        what = "cannot write to stdout" if error.filename is None else f"cannot use {error.filename}"
        print(f"envsim: {_one_line(f'{what}: {error.strerror or error}')}", file=sys.stderr)
        return _settled(2)
    except WorkerError as error:
        print(f"envsim: {_one_line(str(error))}", file=sys.stderr)
        return _settled(3)
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, _Signalled) else signal.SIGINT
        print(SAID[signal.Signals(number)], file=sys.stderr)
        return _settled(128 + number)
    return 0


def _ready_streams() -> None:
    """Names and terminals may hold what the other cannot say: it is then written in escapes."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  it is there until the end
    for file in (sys.stdout, sys.stderr):
        if isinstance(file, TextIOWrapper):
            file.reconfigure(errors="backslashreplace")


def _settled(code: int) -> int:
    """The code, once what was printed before an error is out; if it cannot be, it must not fail again at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _discard_stdout()
    return code


def _discard_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _signals_raised() -> Iterator[None]:
    """SIGINT and SIGTERM as an exception, so that workers and half-written files are put in order."""

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        raise _Signalled(number)

    before = {}
    try:
        for number in SAID:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, interrupt)
    except ValueError:  # only the main thread may; another one is interrupted by nobody
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    let_workers_fork()
    sys.exit(main())
