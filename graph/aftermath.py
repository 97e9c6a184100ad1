"""Whether two runs came to the same: every file of what was computed, without when, how long and in how many goes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from trainer.files import hash_file
from trainer.spec import canonical_hash

Trace = dict[str, str]
"""Of each file what it says, as a hash, by its name in the run directory."""
OF_THE_DAY = frozenset(
    {"seconds", "time", "attempt", "earlier", "resumed_from_step", "passed_over", "exact", "micro_batch", "path"}
)
"""Keys of JSON files that tell of a run's course and not of what it came to."""
NOT_COMPARED = re.compile(
    r"attempt-\d+/|graph\.sqlite|events\.jsonl|lock|.*\.lock|report/|run\.yaml|stages/\d+/completions/|tensorboard/"
    r"|.*made_from\.json|.*\.tmp"
)
"""Logs, databases, locks, pages, and what an attempt leaves: the model that it made is compared by its files."""


def trace(root: Path) -> Trace:
    """What a finished run came to."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        inside = re.sub(r"^stages/\d+/", "", name)
        if path.is_file() and not NOT_COMPARED.match(name) and not NOT_COMPARED.match(inside):
            found[name] = said(path)
    return found


def said(path: Path) -> str:
    """The hash of what a file says."""
    if path.suffix == ".json" and "model" not in path.parts:
        return canonical_hash(timeless(json.loads(path.read_text(encoding="utf-8"))))
    return hash_file(path)


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in OF_THE_DAY}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def findings(root: Path, expected: Trace) -> list[str]:
    """How a run differs from what was expected, a line a file."""
    found = trace(root)
    lines = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    lines += [f"{name} is not in an undisturbed run" for name in sorted(found.keys() - expected.keys())]
    return lines + [
        f"{name} differs" for name in sorted(expected.keys() & found.keys()) if found[name] != expected[name]
    ]
