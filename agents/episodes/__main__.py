"""``python -m agents.episodes --n N --seed S --out FILE``: JSONL rows ``{"role", "messages", "answer"}``.

The file is all that ``trainer/`` sees of the roles.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from agents.episodes.stream import PLANTED, episodes
from envsim import registry


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m agents.episodes", description="Role episodes for a warm start.")
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--environment", default="lake")
    parser.add_argument(
        "--planted", type=float, default=PLANTED, help="share of real rollouts of policies with a planted weakness"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    if not 0 <= args.planted <= 1:
        print(f"error: --planted {args.planted:g}, expected 0 to 1", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", encoding="utf-8") as file:
        for row in episodes(registry.get(args.environment), args.n, args.seed, args.planted):
            file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
