"""How an attempt ended and why a file was passed over: names that programs can act on, and the files that hold them.

The supervisor writes ``attempt.json`` before the worker starts; whoever knows why the attempt ended writes
``outcome.json``. Both only explain: whether a stage is done, its result alone decides.
"""

from __future__ import annotations

import errno
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import ValidationError

from trainer.files import write_atomic
from trainer.spec import Frozen, PassedOver

Outcome = Literal[
    "done",
    "killed",
    "terminated",
    "stale_heartbeat",
    "no_result",
    "out_of_memory",
    "disk_full",
    "wrong_model",
    "wrong_dataset",
    "wrong_spec",
    "bad_input",
    "held",
    "lost",
    "failed",
]
"""``killed``: by a signal that left it no word; ``terminated``: by SIGTERM, once it trains after a checkpoint;
``stale_heartbeat``: hung and was ended by its supervisor; ``no_result``: it said that it was done and was not;
``held``: another worker had the stage; ``lost``: nobody lived, or had the room, to write down how; ``failed``: by
itself, see its log."""

EXIT_CODES: Final[dict[int, Outcome]] = {
    0: "no_result",
    2: "bad_input",
    3: "held",
    5: "out_of_memory",
    6: "disk_full",
    75: "terminated",
}
"""What a worker's exit code says where it could not write; any other code is ``failed``."""
REFUSALS: Final[frozenset[Outcome]] = frozenset({"wrong_model", "wrong_dataset", "wrong_spec", "bad_input"})
"""The caller must change the spec or what it names; another attempt would end alike."""
INTERRUPTIONS: Final[frozenset[Outcome]] = frozenset({"killed", "terminated", "stale_heartbeat", "no_result", "lost"})
"""Another attempt goes on where this one was."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_WORDS = (*(f"os error {number}" for number in _FULL), "PytorchStreamWriter", "unexpected pos")
"""How safetensors and torch tell that a write failed: neither raises OSError."""
_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")
_LIBRARIES = ("accelerate", "torch", "transformers", "trl", "peft", "vllm")
_RECORD = "attempt.json"
_OUTCOME = "outcome.json"
_File = TypeVar("_File", bound=Frozen)


class AttemptRecord(Frozen):
    """What an attempt starts from."""

    schema_version: Literal[1] = 1
    spec_hash: str
    resumed_from: str | None = None
    """The checkpoint, as ``attempt-N/checkpoint-M`` inside the stage."""
    micro_batch: int
    """Completions in one pass: the spec's, or fewer after the memory ran out."""
    exact: bool = True
    """Whether the weights will be those of one undisturbed attempt, bit by bit, where the device repeats itself."""
    versions: dict[str, str]
    passed_over: tuple[PassedOver, ...] = ()


class AttemptEnd(Frozen):
    """How an attempt ended."""

    schema_version: Literal[1] = 1
    outcome: Outcome
    detail: str = ""


def write_record(attempt: Path, record: AttemptRecord) -> None:
    write_atomic(attempt / _RECORD, record.model_dump_json(indent=1))


def read_record(attempt: Path) -> AttemptRecord | None:
    """None if there is none or it is damaged."""
    return _read(attempt / _RECORD, AttemptRecord)


def write_end(attempt: Path, outcome: Outcome, detail: str = "") -> None:
    write_atomic(attempt / _OUTCOME, AttemptEnd(outcome=outcome, detail=detail).model_dump_json(indent=1))


def read_end(attempt: Path) -> AttemptEnd | None:
    """None if the attempt has not ended, nobody could write how, or the file is damaged."""
    return _read(attempt / _OUTCOME, AttemptEnd)


def _read(path: Path, model: type[_File]) -> _File | None:
    try:
        return model.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def versions() -> dict[str, str]:
    """Of the libraries that decide what a stage computes; those that are not installed are left out."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine_fault(error: BaseException) -> Outcome | None:
    """``disk_full`` or ``out_of_memory`` if that is why an exception was raised, in itself or in what caused it."""
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if (isinstance(seen, OSError) and seen.errno in _FULL) or any(word in text for word in _FULL_WORDS):
            return "disk_full"
        if isinstance(seen, MemoryError) or (isinstance(seen, OSError) and seen.errno == errno.ENOMEM):
            return "out_of_memory"
        if isinstance(seen, RuntimeError) and any(word in text for word in _MEMORY_WORDS):
            return "out_of_memory"
        seen = seen.__cause__ or seen.__context__
    return None


def fewer_at_once(batch: int, micro_batch: int) -> int | None:
    """The largest divisor of the batch that is at most half of what was tried at once; None below one."""
    return next((size for size in range(micro_batch // 2, 0, -1) if batch % size == 0), None)
