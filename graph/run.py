"""``python -m graph.run``: one run from a starting checkpoint to a report.

Exit codes: 0 done, 1 an unexpected failure (a worker or a model back end that fails; the cause is printed), 2 bad input
or configuration, 3 waiting for approval, 4 a role failed under ``on_failure: stop``, 75 drained (continue with
--resume). Bad input gives one line and changes nothing of the run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from graph.birth import BIRTH
from graph.exits import Exit
from graph.settings import RunSettings, SettingsError, load_settings, parse_settings


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; see --help")


def parser() -> argparse.ArgumentParser:
    flags = Parser(prog="python -m graph.run", description="Train a model that designs its own next environment.")
    flags.add_argument("--config", type=Path, metavar="FILE", help="the run's settings, YAML; flags win over it")
    flags.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run lies (default: runs/<time>-...)")
    flags.add_argument("--stages", type=int, metavar="N", help="designed stages after stage 000")
    flags.add_argument("--seed", type=int, metavar="N")
    flags.add_argument("--designer", metavar="NAME", help="self, base, teacher, fixed, random or an adversary")
    flags.add_argument("--profile", metavar="NAME", help="model, GRPO numbers and sizes; a shipped name or a YAML file")
    flags.add_argument("--benchmark", action="store_true", default=None, help="also the out-of-distribution sets")
    flags.add_argument(
        "--trace",
        nargs="?",
        const="full",
        choices=["full", "outline"],
        help="write trace.jsonl: every node, model call and tool call; outline leaves prompts and answers out",
    )
    flags.add_argument("--resume", action="store_true", help="continue the run in --run-dir")
    flags.add_argument("--approve", action="store_true", help="with --resume: approve the proposal that waits")
    flags.add_argument("--reject", action="store_true", help="with --resume: reject the proposal that waits")
    flags.add_argument("--dry-run", action="store_true", help="print settings, plan and estimate; train nothing")
    return flags


OVERRIDES = ("stages", "seed", "designer", "profile", "benchmark", "trace")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    console = Console()
    try:
        options = parser().parse_args(arguments)
        settings = settings_of(options)
        return execute(options, settings, console)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT


def settings_of(options: argparse.Namespace) -> RunSettings:
    """Settings from file and flags; a resumed run's own settings are the base. Raises SettingsError."""
    overrides = {name: value for name in OVERRIDES if (value := getattr(options, name)) is not None}
    if (options.approve or options.reject) and not options.resume:
        raise SettingsError("--approve and --reject answer a run that waits; add --resume")
    if options.approve and options.reject:
        raise SettingsError("--approve and --reject exclude each other; give one of them")
    if not options.resume:
        return load_settings(options.config, overrides)
    if options.run_dir is None:
        raise SettingsError("--resume needs --run-dir, the run to continue")
    if options.config is not None:
        return load_settings(options.config, overrides)
    from graph.rundir import stored_identity  # noqa: PLC0415

    stored = stored_identity(options.run_dir)
    return parse_settings({**stored["settings"], **overrides}, f"{options.run_dir}/run.yaml")


def execute(options: argparse.Namespace, settings: RunSettings, console: Console) -> int:
    """Prepare, then run, resume or only describe."""
    from graph.prepare import default_run_dir, describe, prepare  # noqa: PLC0415  imports torch, which takes seconds

    prepared = prepare(settings)
    if options.dry_run:
        describe(prepared, console)
        return Exit.DONE
    root = options.run_dir or default_run_dir(settings, datetime.now().astimezone())
    from graph.session import run_session  # noqa: PLC0415

    word = True if options.approve else False if options.reject else None
    return run_session(prepared, root, console, resume=options.resume, word=word, started=BIRTH)


if __name__ == "__main__":
    sys.exit(main())
