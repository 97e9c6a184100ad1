"""``python -m agents.bench``: how models do in the roles, on planted episodes that none of them saw.

Prints a table, with ``--json`` one JSON object. A schema alone makes anything parse, so ``--random`` asks the first
model's architecture at random weights as well. Exit codes: 0 done, 1 a model behind a URL failed, 2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from agents.bench.agreement import direction, role_scores
from agents.bench.planted import Player, bench_planted, draw_cases
from agents.chat import CheckpointChatModel, chat_model
from agents.rolespec import ExternalModel
from envsim import registry
from trainer.checkpoint import CheckpointError, resolve
from trainer.policy import PolicyError, TransformersPolicy
from trainer.seedling.baseline import randomised

AIMS = {"cause": 0.80, "direction": 0.80, "gates": 0.90, "precision": 0.80, "recall": 0.90}
MOST_FALLBACK = 0.02


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="python -m agents.bench", description="How models do in the roles.")
    flags.add_argument(
        "--model", nargs="+", default=["seedling"], help="seedling, smollm2, a checkpoint directory or a hub id"
    )
    flags.add_argument("--run", type=Path, help="a run directory: its starting model and the model of every stage")
    flags.add_argument("--url", help="an OpenAI-compatible URL, in place of --model")
    flags.add_argument("--name", default="default", help="the model's name at --url")
    flags.add_argument("--key-file", help="a file with the key for --url")
    flags.add_argument("--style", choices=["compact", "full"], help="of the prompts; none = compact for the seedling")
    flags.add_argument("--n", type=int, default=40, help="planted episodes a role")
    flags.add_argument("--drawn", type=int, default=0, help="invented episodes for agreement with the teacher's rule")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--max-tokens", type=int, default=1024, help="of an answer")
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--random", action="store_true", help="the architecture at random weights as well")
    flags.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for name, least in (("n", 2), ("drawn", 0), ("seed", 0), ("threads", 1), ("max_tokens", 16)):
        if getattr(args, name) < least:
            flag = name.replace("_", "-")
            return _refused(f"--{flag} {getattr(args, name)}, expected at least {least}")
    environment = registry.get("lake")
    found: dict[str, Any] = {}
    try:
        with ExitStack() as stack:
            models = list(_models(args, stack))
            cases = draw_cases(environment, args.n, args.seed)
            for name, style, model in models:
                player = Player(model, environment, style, args.max_tokens)
                found[name] = {"planted": bench_planted(player, cases)}
                if args.drawn and isinstance(model, CheckpointChatModel) and style == "compact":
                    found[name] |= _agreement(model.policy, args.drawn, args.seed)
    except (CheckpointError, ValidationError, OSError) as error:
        return _refused(" ".join(str(error).split()))
    except PolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)
    return 0


def _models(args: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[str, Any, BaseChatModel]]:
    """Name, style and chat model of everything to be asked. Raises CheckpointError, ValidationError or OSError."""
    if args.url is not None:
        external = ExternalModel(base_url=args.url, name=args.name, api_key_file=args.key_file)
        yield args.name, args.style or "full", chat_model(external, {})
        return
    sources = list(args.model)
    if args.run is not None:
        stages = sorted((args.run / "stages").glob("[0-9]*/model"))
        if not stages:
            raise CheckpointError(f"--run {args.run} holds no stages/NNN/model; expected a run directory")
        sources += [str(path) for path in stages]
    for source in sources:
        policy = TransformersPolicy(resolve(source), threads=args.threads, batch_size=32)
        yield source, args.style or _style(source), CheckpointChatModel(policy=policy, model_name=source)
    if args.random:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        policy = TransformersPolicy(
            randomised(resolve(sources[0]), Path(folder) / "random", args.seed), threads=args.threads, batch_size=32
        )
        yield "random weights", args.style or _style(sources[0]), CheckpointChatModel(policy=policy)


def _style(source: str) -> str:
    """Instruct models read prose; the seedling and what was trained from it read tables alone."""
    return "full" if source == "smollm2" or ("/" in source and not Path(source).exists()) else "compact"


def _agreement(policy: Any, n: int, seed: int) -> dict[str, Any]:
    environment = registry.get("lake")
    return {
        "constrained": role_scores(policy, environment, n, seed, constrained=True),
        "unconstrained": role_scores(policy, environment, n, seed, constrained=False),
        "direction": direction(policy, environment, n, seed),
    }


def _show(found: dict[str, Any]) -> None:
    table = Table(title="roles on planted episodes", title_justify="left")
    for title in ("model", "role", "n", "scores", "repaired", "fallback", "seconds", "tokens in / out"):
        table.add_column(title)
    plain = {"n", "repaired", "fallback", "seconds", "input_tokens", "output_tokens"}
    for model, scores in found.items():
        for role, one in scores["planted"].items():
            words = ", ".join(f"{name} {_mark(name, value)}" for name, value in one.items() if name not in plain)
            over = "" if one["fallback"] <= MOST_FALLBACK else " (aim missed)"
            table.add_row(
                model,
                role,
                str(one["n"]),
                words,
                f"{one['repaired']:.0%}",
                f"{one['fallback']:.0%}{over}",
                f"{one['seconds']:.2f}",
                f"{one['input_tokens']:.0f} / {one['output_tokens']:.0f}",
            )
    Console(width=180).print(table)


def _mark(name: str, value: float) -> str:
    missed = name in AIMS and value < AIMS[name]
    return f"{value:.0%}" + (" (aim missed)" if missed else "")


def _refused(line: str) -> int:
    print(f"error: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
