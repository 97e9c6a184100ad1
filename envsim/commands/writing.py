"""Instances written in the formats that ``generate`` and ``export`` know. Nothing that exists is overwritten,
and a write that fails leaves nothing."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from envsim.api import EnvsimError
from envsim.formats.hub import export
from envsim.formats.movingai import write_scenario
from envsim.lake.config import EnvConfig
from envsim.lake.instance import Labels, LakeInstance, write_instances
from envsim.whole import whole

FORMATS = ("jsonl", "datasets", "movingai")
FORMATS_HELP = (
    "jsonl: one file, an instance with its certificate a line; datasets: a directory for Hugging Face datasets "
    "(Parquet, JSONL and a card); movingai: a directory of a .scen and a .map file an instance (default: jsonl)"
)


STDOUT = Path("-")


def out_path(text: str) -> Path:
    """What argparse makes of a path to write. Raises ArgumentTypeError for what names none."""
    if text == "-":
        raise argparse.ArgumentTypeError("is '-', and a file of that name is hard to be rid of; expected another name")
    return out_or_stdout(text)


def out_or_stdout(text: str) -> Path:
    """The same where ``-`` is stdout."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; expected the name of a file")
    return Path(text)


def refuse_existing(path: Path) -> None:
    """Raise EnvsimError if there is something at the path, or no directory for it."""
    if path.exists():
        raise EnvsimError(f"{path} exists; remove it or choose another name")
    if not path.parent.is_dir():
        raise EnvsimError(f"{path.parent} is no directory; make it first")


def check(path: Path, format_: str, config: EnvConfig | None = None) -> None:
    """Raise EnvsimError if what is asked for cannot be written: better before the work than after it."""
    refuse_existing(path)
    if format_ == "movingai" and config is not None and 2 in config.agents and config.goals.get(2, 0) > 0:
        raise EnvsimError(
            f"goals.2 is {config.goals[2]:g}, so that agents have via cells; a MovingAI scenario has one goal an "
            "agent: choose another format, or goals.2 0"
        )
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
    two = next((instance for instance in instances if instance.via is not None), None)
    if format_ == "movingai" and two is not None:
        raise EnvsimError(
            f"instance {two.id} has two goals an agent, which a MovingAI scenario cannot say; choose another "
            "format, or 'export --skip' to leave such instances out"
        )
    with whole(path) as draft:
        if format_ == "jsonl":
            write_instances(draft, instances)
        elif format_ == "datasets":
            export(instances, draft, config=config, seed=seed)
        else:
            draft.mkdir()
            for index, instance in enumerate(instances):
                write_scenario(instance, draft / f"{index:05d}-{instance.id}.scen")
    if format_ == "movingai":
        _say_what_is_lost(instances)


def _say_what_is_lost(instances: Sequence[LakeInstance]) -> None:
    """On stderr: nobody should take a lake on which moves slip for one on which they do not."""
    counts = Counter(
        name
        for instance in instances
        for name in Labels.__annotations__
        if name != "name" and getattr(instance, name) != LakeInstance.model_fields[name].default
    )
    if counts:
        told = ", ".join(f"{name} of {count}" for name, count in counts.items())
        print(f"not written, as a MovingAI scenario has no place for it: {told} instances", file=sys.stderr)
