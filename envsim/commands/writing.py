"""Instances written in the formats that ``generate`` and ``export`` know. Nothing that exists is overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from envsim.api import EnvsimError
from envsim.formats.hub import export
from envsim.formats.movingai import write_scenario
from envsim.lake.config import EnvConfig
from envsim.lake.instance import LakeInstance, write_instances

FORMATS = ("jsonl", "datasets", "movingai")
FORMATS_HELP = (
    "jsonl: one file, an instance with its certificate a line; datasets: a directory for Hugging Face datasets "
    "(Parquet, JSONL and a card); movingai: a directory of a .scen and a .map file an instance (default: jsonl)"
)


def refuse_existing(path: Path) -> None:
    """Raise EnvsimError if there is something at the path, or no directory for it."""
    if path.exists():
        raise EnvsimError(f"{path} exists; remove it or choose another name")
    if not path.parent.is_dir():
        raise EnvsimError(f"{path.parent} is no directory; make it first")


def check(path: Path, format_: str) -> None:
    """Raise EnvsimError if what is asked for cannot be written: better before the work than after it."""
    refuse_existing(path)
    if format_ == "datasets" and find_spec("datasets") is None:
        raise EnvsimError("the library 'datasets' is not installed, which this format needs; pip install datasets")


def write(
    instances: Sequence[LakeInstance],
    path: Path,
    format_: str,
    *,
    config: EnvConfig | None = None,
    seed: int | None = None,
) -> None:
    """Write instances to a path that is not there yet. ``config`` and ``seed`` go into the card of a dataset."""
    check(path, format_)
    if not instances:
        raise EnvsimError("there are no instances to write; expected at least one")
    if format_ == "jsonl":
        write_instances(path, instances)
    elif format_ == "datasets":
        export(instances, path, config=config, seed=seed)
    else:
        two = next((instance for instance in instances if instance.via is not None), None)
        if two is not None:
            raise EnvsimError(
                f"instance {two.id} has two goals an agent, which a MovingAI scenario cannot say; choose another "
                "format, or 'export --skip' to leave such instances out"
            )
        path.mkdir()
        for index, instance in enumerate(instances):
            write_scenario(instance, path / f"{index:05d}-{instance.id}.scen")
