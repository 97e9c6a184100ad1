"""What the commands that teach the seedling have in common: their flags, their refusals, and what they print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from trainer.seedling.recipe import Teaching

Kind = TypeVar("Kind", bound=Teaching)


def taught(
    parser: argparse.ArgumentParser,
    argv: list[str] | None,
    kind: type[Kind],
    make: Callable[[argparse.Namespace, Kind], dict[str, Any]],
) -> int:
    """Read the flags that every teaching has, make what it makes, and print its figures. Returns the exit code."""
    parser.add_argument("--episodes", type=Path, required=True, help="role episodes from python -m agents.episodes")
    parser.add_argument("--out", type=Path, required=True, help="directory of what is made")
    parser.add_argument("--set", type=json.loads, default={}, help='recipe fields as JSON, e.g. {"steps": 100}')
    args = parser.parse_args(argv)
    try:
        recipe = kind.model_validate(args.set)
        if not args.episodes.is_file():
            msg = f"--episodes {args.episodes}: no such file; write it with python -m agents.episodes"
            raise ValueError(msg)
        facts = make(args, recipe)
    except (ValidationError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps({k: v for k, v in facts.items() if k != "recipe"}))
    return 0


def log(figures: dict[str, float]) -> None:
    print(" ".join(f"{name} {value:.3f}" for name, value in figures.items()), flush=True)
