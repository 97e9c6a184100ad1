"""Inputs of the commands: JSON and JSONL from a file or stdin, sets by name, MovingAI scenarios. Read row by row.

Rows come lazily, so that a command has answered all good rows when it meets a bad one. Every error is one line that
begins with file and line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from envsim.api import SPLITS, EnvsimError
from envsim.commands import progress
from envsim.documents import DocumentError, parse_json
from envsim.formats import hub
from envsim.formats.movingai import read_scenario
from envsim.lake import sets
from envsim.lake.instance import Certificate, LakeInstance
from envsim.lake.rows import Layout, instance_of, is_certified, shown, validated

MAX_LINE = 16 * 2**20
"""Most bytes of a line of JSONL, or of a JSON document of many lines."""
LISTS = ("instances", "cases")
"""Keys under which a document may hold its rows."""
SOURCE = (
    f"file of JSON or JSONL, the directory of a dataset, '-' for stdin, the name of a set ({', '.join(sets.NAMES)}), "
    "or a MovingAI .scen"
)


def documents(source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON objects of a file or of stdin, each with where it stands.

    A line may hold an object, a list of objects, or an object with such a list as ``instances`` or ``cases``; so may a
    whole document of many lines. Raises EnvsimError or DocumentError, also if there is no object at all.
    """
    for where, value in values(source):
        yield from rows_of(value, where)


def values(source: str) -> Iterator[tuple[str, Any]]:
    """The JSON values of a file or of stdin, one a line or one in all, each with where it stands.

    Raises EnvsimError or DocumentError, also if there is none.
    """
    for path in _files(source):
        empty = True
        with _opened(path) as (label, file):
            for where, value in _values(label, file):
                empty = empty and _hollow(value)
                yield where, value
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
    """A question, where it stands, its name in the answer, what was proved of it before, and the row as it was read."""

    where: str
    name: str
    layout: Layout
    certificate: Certificate | None = None
    row: Mapping[str, Any] | None = None


class Found(NamedTuple):
    """An instance, where it stands, and the row as it was read."""

    where: str
    instance: LakeInstance
    row: Mapping[str, Any] | None = None


def layouts(source: str, agents: int | None = None) -> Iterator[Asked]:
    """Every row of a set, of a source of ``documents``, or of a MovingAI scenario.

    Maps and ends of bare layouts are not checked here; what instances say of themselves is.
    """
    if source in sets.NAMES or is_scenario(source):
        for where, instance, _ in each_instance(source, agents):
            yield Asked(where, instance.label(), layout_of(instance), instance.certificate)
        return
    _refuse_agents(source, agents)
    for where, data in documents(source):
        _refuse_solution(data, where)
        layout = validated(Layout, data, where)
        yield Asked(where, layout.name or layout.id or where, layout, _carried(data, where), data)


def _refuse_solution(data: Mapping[str, Any], where: str) -> None:
    if "rows" not in data and {"status", "paths"} <= data.keys():
        raise EnvsimError(
            f"{where}: is a line of 'solve', which has no layout; verify it beside its layouts: solve FILE | verify "
            "FILE --plan -"
        )


def _carried(data: dict[str, Any], where: str) -> Certificate | None:
    """The certificate of a row that has one; a variant's rules are others than those it was proved for.

    Raises EnvsimError if what an instance says of itself does not fit its layout.
    """
    if not is_certified(data) or ("hash" not in data and data.get("variant") is not None):
        return None
    certificate = instance_of(data, where).certificate
    return None if data.get("variant") is not None else certificate


def layout_of(instance: LakeInstance) -> Layout:
    """The question that an instance is."""
    return Layout(rows=instance.rows, starts=instance.starts, goals=instance.goals, via=instance.via)


def instances(source: str, agents: int | None = None) -> list[LakeInstance]:
    """The instances of a set, of a source of ``documents``, or of a MovingAI scenario. A row may be a bare layout.

    Raises EnvsimError if a hash, a split or a certificate does not fit its layout.
    """
    return [instance for _, instance, _ in each_instance(source, agents)]


def each_instance(source: str, agents: int | None = None) -> Iterator[Found]:
    """The same one by one, each with where it stands. A scenario is named after its file."""
    if is_scenario(source):
        instance = read_scenario(Path(source), agents)
        yield Found(source, instance.model_copy(update={"name": Path(source).name}))
        return
    _refuse_agents(source, agents)
    if source in sets.NAMES:
        yield from (Found(source, instance) for instance in frozen(source))
        return
    for where, data in documents(source):
        _refuse_solution(data, where)
        yield Found(where, instance_of(data, where), data)


def is_scenario(source: str) -> bool:
    """Whether a source is a MovingAI scenario: a file whose name ends in .scen, or that begins like one."""
    path = Path(source)
    if path.suffix.lower() == ".scen":
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.readline(len(SCENARIO) + 1).split() == SCENARIO.split()
    except (OSError, ValueError):  # whoever reads it says why it cannot be read
        return False


def one_of(names: Sequence[str]) -> str:
    """Some names for an error."""
    return ", ".join(map(shown, names[:MOST_NAMES])) + (", ..." if len(names) > MOST_NAMES else "")


def frozen(name: str) -> list[LakeInstance]:
    """A frozen set by name. Where it must be made first, which takes a while, that is said on stderr."""
    if not sets.is_made(name):
        print(f"making the set {name}, this once; it takes {MAKING[name]}", file=sys.stderr, flush=True)
    return sets.frozen_set(name, progress)


MAKING = dict.fromkeys(sets.STRATIFIED, "some seconds") | {"benchmark": "about a minute"}
SCENARIO = b"version 1"
MOST_NAMES = 5
HEADS = {
    "version": "the first line of a MovingAI scenario, which names its map; give the file itself, not stdin",
    "type octile": "the first line of a MovingAI map, which has no agents; give a .scen file that names it",
}
"""First lines that are no JSON, and what they are."""
NOT_JSON = {
    ".scen": "it is a MovingAI scenario, which can only be read as a layout",
    ".map": "a map has no agents; give a .scen file that names it",
    ".yaml": "YAML is for configurations; make instances of one with generate --config",
    ".yml": "YAML is for configurations; make instances of one with generate --config",
    ".parquet": "give the directory of the dataset",
}
"""What else people give for JSON, and what to do instead."""


def refuse_twice(sources: Sequence[str | None]) -> None:
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
    if not source:
        raise EnvsimError("the name of a file is empty; expected a file, the name of a set, or '-' for stdin")
    if path.suffix.lower() in NOT_JSON:
        raise EnvsimError(f"{source} is no JSON: {NOT_JSON[path.suffix.lower()]}")
    if source == "-" or not path.is_dir():
        return [source]
    hub.check_rows(path)
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
        try:
            yield "stdin", sys.stdin.buffer
        except OSError as error:
            raise EnvsimError(f"cannot read stdin: {error.strerror}") from error
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
            if first and (kind := next((kind for head, kind in HEADS.items() if line.startswith(head)), None)):
                raise EnvsimError(f"{where}: is {kind}") from error
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


def _hollow(value: Any) -> bool:
    """Whether a value is a list of nothing."""
    return value == [] or (isinstance(value, dict) and "rows" not in value and any(value.get(k) == [] for k in LISTS))


def rows_of(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of one JSON value, each with where it stands. Raises EnvsimError if it holds anything else."""
    for key in LISTS:
        if isinstance(value, dict) and "rows" not in value and key in value:
            where, value = f"{where} {key}", value[key]
            if not isinstance(value, list):
                raise EnvsimError(f"{where}: is {shown(value)}; expected a list of layouts")
            break
    many = isinstance(value, list)
    for index, row in enumerate(value if many else [value]):
        here = f"{where}[{index}]" if many else where
        if not isinstance(row, dict):
            raise EnvsimError(f"{here}: is {shown(row)}; expected a JSON object")
        yield here, row
