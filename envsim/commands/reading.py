"""Inputs of the commands: JSON and JSONL from a file or stdin, sets by name, MovingAI scenarios. Read row by row.

Rows come lazily, so that a command has answered all good rows when it meets a bad one. Every error is one line that
begins with file and line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from envsim.api import SPLITS, EnvsimError
from envsim.commands import progress
from envsim.documents import DocumentError, parse_json
from envsim.formats.movingai import read_scenario
from envsim.lake import sets
from envsim.lake.instance import Certificate, LakeInstance
from envsim.lake.rows import Layout, instance_of, is_certified, shown, validated

MAX_LINE = 16 * 2**20
"""Most bytes of a line of JSONL, or of a JSON document of many lines."""
LISTS = ("instances", "cases")
"""Keys under which a document may hold its rows."""
JSON_SOURCE = "file of JSON or JSONL, the directory of a dataset, or '-' for stdin"
SOURCE = f"{JSON_SOURCE}, or the name of a set ({', '.join(sets.NAMES)})"


def documents(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON objects of a file or of stdin, each with where it stands.

    A line may hold an object, a list of objects, or an object with such a list as ``instances`` or ``cases``; so may a
    whole document of many lines. Raises EnvsimError or DocumentError, also if there is no object at all.
    """
    for path in _files(source):
        empty = True
        with _opened(path) as (label, file):
            for where, value in _values(label, file):
                for row in _rows(value, where):
                    empty = False
                    yield row
        if empty:
            raise EnvsimError(f"{label} is empty; expected a JSON object a line")


def add_agents(parser: argparse.ArgumentParser) -> None:
    """The option that only MovingAI scenarios have."""
    parser.add_argument(
        "--agents",
        type=int,
        metavar="K",
        help="how many agents of a .scen file to take, from its first line on (default: all)",
    )


class Asked(NamedTuple):
    """A question, where it stands, its name in the answer, and what was proved of it before."""

    where: str
    name: str
    layout: Layout
    certificate: Certificate | None = None


def layouts(source: str, agents: int | None = None) -> Iterator[Asked]:
    """Every row of a set, of a source of ``documents``, or of a MovingAI scenario.

    Maps and ends of bare layouts are not checked here; what instances say of themselves is.
    """
    if source in sets.NAMES or Path(source).suffix == ".scen":
        for where, instance in each_instance(source, agents):
            name = instance.id if source in sets.NAMES else Path(source).name
            yield Asked(where, name, layout_of(instance), instance.certificate)
        return
    _refuse_agents(source, agents)
    for where, data in documents(source):
        layout = validated(Layout, data, where)
        yield Asked(where, name_of(layout, where), layout, carried(data, where))


def carried(data: dict[str, Any], where: str) -> Certificate | None:
    """The certificate of a row that has one; a variant's rules are others than those it was proved for.

    Raises EnvsimError if what an instance says of itself does not fit its layout.
    """
    if not is_certified(data):
        return None
    certificate = instance_of(data, where).certificate
    return None if data.get("variant") is not None else certificate


def layout_of(instance: LakeInstance) -> Layout:
    """The question that an instance is."""
    return Layout(rows=instance.rows, starts=instance.starts, goals=instance.goals, via=instance.via)


def name_of(layout: Layout, where: str) -> str:
    """The name of a row in the answer to it."""
    return layout.name or layout.id or where


def instances(source: str, agents: int | None = None) -> list[LakeInstance]:
    """The instances of a set, of a source of ``documents``, or of a MovingAI scenario. A row may be a bare layout.

    Raises EnvsimError if a hash, a split or a certificate does not fit its layout.
    """
    return [instance for _, instance in each_instance(source, agents)]


def each_instance(source: str, agents: int | None = None) -> Iterator[tuple[str, LakeInstance]]:
    """The same one by one, each with where it stands."""
    if Path(source).suffix == ".scen":
        yield source, read_scenario(Path(source), agents)
        return
    _refuse_agents(source, agents)
    if source in sets.NAMES:
        yield from ((source, instance) for instance in frozen(source))
        return
    for where, data in documents(source):
        yield where, instance_of(data, where)


def frozen(name: str) -> list[LakeInstance]:
    """A frozen set by name. Where it must be made first, which takes a while, that is said on stderr."""
    if not sets.is_made(name):
        print(f"making the set {name}, this once; it takes {MAKING[name]}", file=sys.stderr, flush=True)
    return sets.frozen_set(name, progress)


MAKING = dict.fromkeys(sets.STRATIFIED, "some seconds") | {"benchmark": "about a minute"}
NOT_JSON = {
    ".scen": "a MovingAI scenario has no plans; give JSON with rows, starts, goals and plan",
    ".map": "a map has no agents; give a .scen file that names it",
    ".yaml": "YAML is for configurations; make instances of one with generate --config",
    ".yml": "YAML is for configurations; make instances of one with generate --config",
    ".parquet": "give the directory of the dataset",
}
"""What else people give for JSON, and what to do instead."""


def refuse_twice(sources: Sequence[str]) -> None:
    """Raise EnvsimError if stdin is to be read more than once."""
    if sources.count("-") > 1:
        raise EnvsimError("'-' is given twice; stdin can be read once")


def _refuse_agents(source: str, agents: int | None) -> None:
    if agents is not None:
        raise EnvsimError(
            f"--agents {agents} does not go with {source}; it chooses the agents of a MovingAI .scen file"
        )


def _files(source: str) -> list[str]:
    """The files of a source: itself, or of a dataset's directory its JSONL, in the order of the splits."""
    path = Path(source)
    if path.suffix in NOT_JSON:
        raise EnvsimError(f"{source} is no JSON: {NOT_JSON[path.suffix]}")
    if source == "-" or not path.is_dir():
        return [source]
    found = [str(file) for split in SPLITS if (file := path / "jsonl" / f"{split}.jsonl").is_file()]
    if not found:
        hint = ", or one of its .scen files" if any(path.glob("*.scen")) else ""
        raise EnvsimError(f"{source} is a directory without jsonl/*.jsonl; expected a file, or a dataset{hint}")
    return found


@contextmanager
def _opened(source: str) -> Iterator[tuple[str, BinaryIO]]:
    """The bytes of a source and its name in errors."""
    if source == "-":
        if sys.stdin is None:
            raise EnvsimError("stdin is closed; give a file instead of '-'")
        yield "stdin", sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(source).open("rb"))
        except OSError as error:
            raise EnvsimError(f"cannot read {source}: {error.strerror}") from error
        except ValueError as error:
            raise EnvsimError(f"cannot read {source!r}: {error}") from error
        yield source, file


def _values(label: str, file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The JSON values of the lines; if the first line is none, that of the whole text."""
    first = True
    for number, line in _lines(label, file):
        where = f"{label}:{number}"
        try:
            value = parse_json(line, where, unique=True)
        except DocumentError as error:
            if not (first and _unfinished(error, line)):
                raise
            yield _whole(label, number, line, file)
            return
        first = False
        yield where, value


def _lines(label: str, file: BinaryIO) -> Iterator[tuple[int, str]]:
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise EnvsimError(f"{label}:{number}: the line is longer than {MAX_LINE} bytes")
        text = _decoded(line, f"{label}:{number}")
        if text.strip():
            yield number, text


def _decoded(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise EnvsimError(f"{where}: no UTF-8 text: byte {line[error.start]:#04x} at {error.start}") from error


def _unfinished(error: DocumentError, line: str) -> bool:
    """Whether the text was valid as far as it goes."""
    cause = error.__cause__
    return isinstance(cause, JSONDecodeError) and cause.pos >= len(line.rstrip())


def _whole(label: str, number: int, line: str, file: BinaryIO) -> tuple[str, Any]:
    rest = file.read(MAX_LINE + 1)
    if len(rest) > MAX_LINE:
        raise EnvsimError(f"{label}: the document is longer than {MAX_LINE} bytes; write a JSON object a line instead")
    text = line + _decoded(rest, label)
    try:
        return f"{label}:{number}", parse_json(text, label, unique=True)
    except DocumentError as error:
        cause = error.__cause__
        if not isinstance(cause, JSONDecodeError):
            raise
        at = number + min(cause.lineno, text.rstrip().count("\n") + 1) - 1
        raise DocumentError(f"{label}:{at} is no valid JSON: {cause.msg} at column {cause.colno}") from error


def _rows(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in LISTS:
        if isinstance(value, dict) and "rows" not in value and isinstance(value.get(key), list):
            where, value = f"{where} {key}", value[key]
            break
    many = isinstance(value, list)
    for index, row in enumerate(value if many else [value]):
        here = f"{where}[{index}]" if many else where
        if not isinstance(row, dict):
            raise EnvsimError(f"{here}: is {shown(row)}; expected a JSON object")
        yield here, row
