"""``python -m trainer.seedling --episodes FILE --out DIR``: rebuild the embedded model from its recipe."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from envsim import registry
from trainer.seedling.build import build
from trainer.seedling.command import log, taught
from trainer.seedling.recipe import Recipe


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.seedling", description=__doc__)

    def made(args: argparse.Namespace, recipe: Recipe) -> dict[str, Any]:
        return build(registry.get("lake"), args.episodes, args.out, recipe, log)

    return taught(parser, argv, Recipe, made)


if __name__ == "__main__":
    sys.exit(main())
