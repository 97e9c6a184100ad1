"""YAML and JSON files that people write or that a crash may have cut: read whole, or refused in one line.

Every room reads such files through here, so that a binary file, a number too long or a nesting too deep is the same
kind of error everywhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 64


class DocumentError(ValueError):
    """A file that cannot be read as what it should be. One line: file, what is wrong."""


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key written twice instead of keeping the last one, and a key that is no scalar."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            where = ("while reading a mapping", node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(*where, "a key is no plain value", key_node.start_mark)
            if key_node.value in seen:
                problem = f"the key {key_node.value!r} is written twice"
                raise yaml.constructor.ConstructorError(*where, problem, key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def read_text(path: Path) -> str:
    """The file as UTF-8. Raises DocumentError."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise DocumentError(f"{path} has {size} bytes, expected at most {MAX_BYTES}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"{path} is no UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}"
        ) from error
    except ValueError as error:
        raise DocumentError(f"cannot read {str(path)!r}: {error}") from error


def read_yaml(path: Path) -> Any:
    """The plain data of a YAML file; None for an empty one. Raises DocumentError."""
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, where: str) -> Any:
    """The plain data of YAML text; ``where`` begins the error line. Raises DocumentError."""
    try:
        _refuse_depth(text, where)
        return yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        told = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise DocumentError(f"{where} is no valid YAML: {told}") from error
    except DocumentError:
        raise
    except ValueError as error:
        # A date that does not exist, or a number with thousands of digits.
        raise DocumentError(f"{where} is no valid YAML: {_told(error)}") from error


def read_json(path: Path) -> Any:
    """The plain data of a JSON file. Raises DocumentError."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, where: str, *, unique: bool = False) -> Any:
    """The plain data of JSON text; ``where`` begins the error line. Raises DocumentError.

    ``unique`` refuses a key written twice instead of keeping the last one, and NaN and Infinity, which are no JSON.
    """
    try:
        if unique:
            return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        return json.loads(text)
    except RecursionError as error:
        raise DocumentError(f"{where} is no valid JSON: nested too deeply") from error
    except ValueError as error:
        raise DocumentError(f"{where} is no valid JSON: {_told(error)}") from error


def _told(error: ValueError) -> str:
    """The parser's own words, but for its advice to programmers."""
    if "set_int_max_str_digits" in str(error):
        return f"a number has more than {sys.get_int_max_str_digits()} digits"
    return str(error)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is written twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _refuse_depth(text: str, where: str) -> None:
    """Reading the events needs no recursion, building from them does."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise DocumentError(f"{where} is nested more than {MAX_DEPTH} deep")
