"""``python -m agents.bench``: how models do in the roles, on planted episodes that none of them saw.

Prints a table, with ``--json`` one JSON object. A schema alone makes anything parse, so ``--random`` asks the first
model's architecture at random weights as well. ``--run`` asks a run's checkpoints as the run did: its starting model,
style and length of an answer. A flag that cannot apply is refused. Exit codes: 0 done, 1 a model behind a URL failed,
2 bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from langchain_core.language_models import BaseChatModel
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from agents.bench.agreement import direction, role_scores
from agents.bench.planted import Player, bench_planted, draw_cases
from agents.chat import CheckpointChatModel, chat_model
from agents.rolespec import ExternalModel
from envsim import registry
from envsim.api import Style
from envsim.documents import DocumentError, read_yaml
from trainer.checkpoint import CheckpointError, resolve
from trainer.policy import PolicyError, TransformersPolicy
from trainer.seedling.baseline import randomised
from trainer.serving.settings import Constraint

AIMS = {"cause": 0.80, "direction": 0.80, "gates": 0.90, "precision": 0.80, "recall": 0.90}
MOST_FALLBACK = 0.02
MOST_TOKENS = 1024
ENVIRONMENT = "lake"
"""The weaknesses that are planted are of its policies."""


class FlagError(ValueError):
    """Flags that do not go together, or a run that cannot be asked."""


@dataclass(frozen=True)
class Source:
    """A checkpoint and how it is asked."""

    name: str
    style: Style
    most_tokens: int


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="python -m agents.bench", description="How models do in the roles.")
    flags.add_argument("--model", nargs="+", help="seedling (the default), smollm2, a checkpoint directory or a hub id")
    flags.add_argument(
        "--run",
        type=Path,
        help="in place of --model a run directory: its starting model and that of every stage, asked as the run does",
    )
    flags.add_argument("--url", help="an OpenAI-compatible URL, in place of --model")
    flags.add_argument("--name", help="the model's name at --url (default: default)")
    flags.add_argument("--key-file", help="a file with the key for --url")
    flags.add_argument(
        "--constraint",
        choices=get_args(Constraint),
        help="how schemas go to --url (default: json_schema); grammar, which vLLM alone knows, gives answers the "
        "layout that a tiny model learnt",
    )
    flags.add_argument(
        "--style", choices=["compact", "full"], help="of the prompts; none = compact for the seedling, or the run's"
    )
    flags.add_argument("--n", type=int, default=40, help="planted episodes a role")
    flags.add_argument(
        "--drawn",
        type=int,
        default=0,
        help="invented episodes for agreement with the teacher's rule, in the compact style alone",
    )
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--max-tokens", type=int, help=f"of an answer (default: {MOST_TOKENS}, or what the run allows)")
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--random", action="store_true", help="the architecture at random weights as well")
    flags.add_argument("--json", action="store_true", help="one JSON object in place of a table")
    return flags


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    for name, least in (("n", 2), ("drawn", 0), ("seed", 0), ("threads", 1), ("max_tokens", 16)):
        if (given := getattr(args, name)) is not None and given < least:
            flag = name.replace("_", "-")
            return _refused(f"--{flag} {given}, expected at least {least}")
    environment = registry.get(ENVIRONMENT)
    found: dict[str, Any] = {}
    try:
        _check_flags(args)
        with ExitStack() as stack:
            models = list(_models(args, stack))
            cases = draw_cases(environment, args.n, args.seed)
            for asked, model in models:
                player = Player(model, environment, asked.style, asked.most_tokens)
                found[asked.name] = {"planted": bench_planted(player, cases)}
                if args.drawn and isinstance(model, CheckpointChatModel):
                    found[asked.name] |= _agreement(model.policy, args.drawn, args.seed)
    except (CheckpointError, DocumentError, FlagError, ValidationError, OSError) as error:
        return _refused(" ".join(str(error).split()))
    except PolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)
    return 0


def _check_flags(args: argparse.Namespace) -> None:
    """Raises FlagError for a flag that would change nothing."""
    for name, instead in (("url", ("model", "run", "random", "drawn")), ("run", ("model",))):
        for other in instead:
            if getattr(args, name) is not None and getattr(args, other):
                raise FlagError(f"--{other} does not go with --{name}; give one of them")
    for name in ("name", "key_file", "constraint"):
        if getattr(args, name) is not None and args.url is None:
            raise FlagError(f"--{name.replace('_', '-')} is of a model behind a URL; give --url too")


def _models(args: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[Source, BaseChatModel]]:
    """Everything to be asked. Raises CheckpointError, DocumentError, FlagError, ValidationError or OSError."""
    if args.url is not None:
        name = args.name or "default"
        external = ExternalModel(
            base_url=args.url, name=name, api_key_file=args.key_file, constraint=args.constraint or "json_schema"
        )
        yield Source(name, args.style or "full", args.max_tokens or MOST_TOKENS), chat_model(external, {})
        return
    sources = _of_run(args) if args.run is not None else _of_models(args)
    for source in sources:
        if args.drawn and source.style != "compact":
            raise FlagError(
                f"--drawn: {source.name} is asked in the {source.style} style; expected compact, see --style"
            )
    for source in sources:
        policy = TransformersPolicy(resolve(source.name), threads=args.threads, batch_size=32)
        yield source, CheckpointChatModel(policy=policy, model_name=source.name)
    if args.random:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        first = sources[0]
        policy = TransformersPolicy(
            randomised(resolve(first.name), Path(folder) / "random", args.seed), threads=args.threads, batch_size=32
        )
        yield Source("random weights", first.style, first.most_tokens), CheckpointChatModel(policy=policy)


def _of_models(args: argparse.Namespace) -> list[Source]:
    names = args.model or ["seedling"]
    return [Source(name, args.style or _style(name), args.max_tokens or MOST_TOKENS) for name in names]


def _of_run(args: argparse.Namespace) -> list[Source]:
    """The checkpoints of a run, asked by the shipped roles in its style, with answers as long as it allows."""
    identity = read_yaml(args.run / "run.yaml")
    try:
        profile, start = identity["profile"], identity["start_sha256"]
        environment = identity["settings"]["environment"]
        style, most, model = profile["style"], int(profile["roles"]["max_new_tokens"]), str(profile["model"])
    except (KeyError, TypeError, ValueError) as error:
        raise FlagError(f"--run {args.run}: run.yaml is of no run: {type(error).__name__}: {error}") from error
    if environment != ENVIRONMENT:
        raise FlagError(f"--run {args.run} is of the environment {environment!r}, expected {ENVIRONMENT!r}")
    if (found := resolve(model).sha256) != start:
        raise FlagError(f"--run {args.run} began with another checkpoint: {model} was {start[:12]}, is {found[:12]}")
    names = [model, *(str(path) for path in sorted((args.run / "stages").glob("[0-9]*/model")))]
    return [Source(name, args.style or style, args.max_tokens or most) for name in names]


def _style(source: str) -> Style:
    """Instruct models read prose; the seedling and what was trained from it read tables alone."""
    return "full" if source == "smollm2" or ("/" in source and not Path(source).exists()) else "compact"


def _agreement(policy: Any, n: int, seed: int) -> dict[str, Any]:
    environment = registry.get(ENVIRONMENT)
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
