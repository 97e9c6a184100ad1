"""``python -m trainer.seedling --episodes FILE --out DIR``: rebuild the embedded model from its recipe."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pydantic import ValidationError

from envsim import registry
from trainer.seedling.build import build
from trainer.seedling.recipe import Recipe


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.seedling", description=__doc__)
    parser.add_argument("--episodes", type=Path, required=True, help="role episodes from python -m agents.episodes")
    parser.add_argument("--out", type=Path, required=True, help="directory of the new checkpoint")
    parser.add_argument("--set", type=json.loads, default={}, help='recipe fields as JSON, e.g. {"steps": 100}')
    args = parser.parse_args(argv)
    try:
        recipe = Recipe.model_validate(args.set)
        if not args.episodes.is_file():
            msg = f"--episodes {args.episodes}: no such file; write it with python -m agents.episodes"
            raise ValueError(msg)
        facts = build(registry.get("lake"), args.episodes, args.out, recipe, _log)
    except (ValidationError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps({k: v for k, v in facts.items() if k != "recipe"}))
    return 0


def _log(figures: dict[str, float]) -> None:
    print(" ".join(f"{name} {value:.3f}" for name, value in figures.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
