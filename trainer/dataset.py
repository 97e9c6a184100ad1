"""The frozen dataset of a stage: one environment instance a line, identified by the hash of its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from envsim.api import Environment, Instance
from trainer.files import hash_file, write_atomic
from trainer.spec import DataRef


class DatasetError(ValueError):
    """A dataset file is missing, changed or not made of instances."""


def write_dataset(instances: Sequence[Instance], path: Path) -> DataRef:
    """Write instances as JSON lines, atomically.

    Raises:
        DatasetError: there are no instances.
    """
    if not instances:
        raise DatasetError(f"the dataset {path} would be empty; expected at least one instance")
    write_atomic(path, "".join(instance.model_dump_json() + "\n" for instance in instances))
    return DataRef(path=str(path), sha256=hash_file(path), n=len(instances))


def read_dataset(environment: Environment, reference: DataRef) -> list[Instance]:
    """The instances of a dataset, in file order, once its bytes are those of the reference.

    Raises:
        DatasetError: the file is missing, has other bytes or another count, or a line is no instance.
    """
    path = reference.path
    lines = frozen_lines(reference, "dataset", rows="instances", remedy="write it with trainer.dataset.write_dataset")
    instances = []
    for number, line in enumerate(lines, start=1):
        try:
            instances.append(environment.instance_model.model_validate_json(line))
        except ValidationError as error:
            raise DatasetError(f"dataset {path}, line {number} is no {environment.name} instance: {error}") from error
    return instances


def frozen_lines(reference: DataRef, what: str, *, rows: str, remedy: str) -> list[str]:
    """The lines of a file that a stage depends on, once its bytes are those of the reference.

    Raises:
        DatasetError: the file is missing, where ``remedy`` says how it comes to be, or has other bytes or another
            count.
    """
    path = Path(reference.path)
    if not path.is_file():
        raise DatasetError(f"{what} {path} does not exist; {remedy} first")
    found = hash_file(path)
    if found != reference.sha256:
        raise DatasetError(
            f"{what} {path} has sha256 {found}, expected {reference.sha256}: the file changed after the stage was "
            "specified; restore it or specify a new stage"
        )
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if len(lines) != reference.n:
        raise DatasetError(f"{what} {path} has {len(lines)} {rows}, expected {reference.n}")
    return lines
