"""The base of all data that crosses a file or a process, the hash that identifies it, and how its faults are told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sized
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def absent(value: object) -> bool:
    """What is left out of a file, so that one without it reads as it always did."""
    return value is None


def empty(value: Sized) -> bool:
    """Left out of a file likewise."""
    return not value


def canonical_hash(value: Any) -> str:
    """sha256 of the sorted, compact JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def explain(error: ValidationError) -> str:
    """All problems of a validation error in one line: where, the value, what was expected."""
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'it'} = {short(item['input'])}: "
        f"{' '.join(item['msg'].split())}"
        for item in error.errors()
    )


def short(value: Any) -> str:
    """A value as Python writes it, cut to what an error line can hold."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
