"""Inputs that nobody meant: mutations of bytes, of JSON and YAML documents, of answers and of plans, from a seed."""

from __future__ import annotations

import copy
import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3.5, 1e308, 10**30, -(10**18), float("nan"), float("inf"),
    "", "x", ".", "@", "0", "\x00", "\ud800", "é", "a\nb", "." * 5000, "...\n...",
    [], [[]], {}, [None], [[0]], [[0, 0, 0]], [[0.0, 0.0]], [["0", "0"]], [[True, False]], [[0, 0]] * 300, [[[]]],
    {"rows": []}, [""], ["", ""], ["...", ".."], ["SG", "FH"],
)  # fmt: skip


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Fails whatever hangs, wherever it hangs."""

    def expire(_signal: int, _frame: object) -> None:
        raise AssertionError(f"still at work after {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(rng: random.Random, document: Any) -> Any:
    """A document with one to three of its values replaced, dropped, doubled or nested."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = list(places(document))
        if not found:
            return rng.choice(ODD)
        *path, last = rng.choice(found)
        holder = document
        for key in path:
            holder = holder[key]
        match rng.randrange(6):
            case 0 | 1 | 2:
                holder[last] = copy.deepcopy(rng.choice(ODD))
            case 3:
                del holder[last]
            case 4 if isinstance(holder, list):
                holder.insert(last, copy.deepcopy(holder[last]))
            case 4:
                holder[rng.choice(("extra", "rows", "hash", "instances", "via", "variant", "name"))] = holder[last]
            case _:
                holder[last] = [holder[last]]
    return document


def broken(rng: random.Random, data: bytes) -> bytes:  # noqa: PLR0911
    """Bytes cut, flipped, filled or replaced."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.randrange(1, 40))
    match rng.randrange(11):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 2:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        case 3:
            return data[:at] + data[end:]
        case 4:
            return data[:end] + data[at:]
        case 5:
            return (
                data[:at]
                + rng.choice((b"\xff", b"\x00", b"\r", b"\n\n", b"\xef\xbb\xbf", b"NaN", b"1e999"))
                + data[at:]
            )
        case 6:
            return rng.choice(
                (b"", b" \n", b"[" * 50_000, b'{"a":' * 50_000, b"[]", b"{}", b"null", b"9" * 5000, b"\xff\xfe")
            )
        case 7:
            return b"\xef\xbb\xbf" + data
        case 8:
            return data.replace(b"\n", b"\r\n")
        case 9:
            return data.replace(
                rng.choice((b"0", b"1", b'"', b"[", b"]", b".", b":", b",")), rng.choice((b"", b"-", b"9" * 20))
            )
        case _:
            return data.replace(b'"rows"', b'"rows": 1, "rows"', 1)


def json_lines(rng: random.Random, rows: list[Any]) -> bytes:
    """JSONL of rows, one or none of them changed."""
    rows = list(rows)
    if rng.random() < 0.8:
        index = rng.randrange(len(rows))
        rows[index] = changed(rng, rows[index])
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def yaml_text(rng: random.Random, document: Any) -> bytes:
    """YAML of a changed document."""
    document = changed(rng, document)
    try:
        return yaml.safe_dump(document, allow_unicode=False).encode("utf-8", "surrogatepass")
    except yaml.YAMLError:
        return b"a: &a [*a]\n"
