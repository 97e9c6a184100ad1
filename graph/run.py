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
from typing import Any, NoReturn

from rich.console import Console

from graph.birth import BIRTH
from graph.exits import Exit
from graph.settings import RunSettings, SettingsError, load_settings, parse_settings, read_settings


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; see --help")


def parser() -> argparse.ArgumentParser:
    flags = Parser(prog="python -m graph.run", description="Train a model that designs its own next environment.")
    flags.add_argument("--config", type=Path, metavar="FILE", help="the run's settings, YAML; flags win over it")
    flags.add_argument("--run-dir", type=Path, metavar="DIR", help="where the run lies (default: runs/<time>-...)")
    flags.add_argument("--stages", type=int, metavar="N", help="designed stages after stage 000")
    flags.add_argument("--seed", type=int, metavar="N")
    flags.add_argument(
        "--designer",
        metavar="NAME",
        help="a name such as self, teacher or sfl, or FILE.py:Class; see docs/designers.md",
    )
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
    flags.add_argument(
        "--approve",
        nargs="?",
        const="yes",
        metavar="yes|no|FILE",
        help="with --resume: the word on the proposal that waits; yes if none is given; FILE holds the proposal "
        "edited, which passes the gates as any other",
    )
    flags.add_argument("--reject", action="store_true", help="with --resume: as --approve no")
    flags.add_argument(
        "--checkpoints",
        metavar="URL",
        help="a Postgres server for the checkpointer (default: SQLite in the run directory)",
    )
    flags.add_argument(
        "--fork-from",
        type=Path,
        metavar="RUN",
        help="a new run in --run-dir that takes over the stages of RUN before K",
    )
    flags.add_argument(
        "--at-stage", type=int, metavar="K", help="with --fork-from: the first stage of its own, 1 or more"
    )
    flags.add_argument("--dry-run", action="store_true", help="print settings, plan and estimate; train nothing")
    return flags


OVERRIDES = ("stages", "seed", "designer", "profile", "benchmark", "checkpoints", "trace")


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
    if options.fork_from is not None or options.at_stage is not None:
        return forked_settings(options, overrides)
    if not options.resume:
        return load_settings(options.config, overrides)
    if options.run_dir is None:
        raise SettingsError("--resume needs --run-dir, the run to continue")
    if options.config is not None:
        return load_settings(options.config, overrides)
    from graph.rundir import TO_RESUME, stored_identity  # noqa: PLC0415

    stored = stored_identity(options.run_dir, otherwise=TO_RESUME)
    return parse_settings({**stored["settings"], **overrides}, f"{options.run_dir}/run.yaml")


def forked_settings(options: argparse.Namespace, overrides: dict[str, Any]) -> RunSettings:
    """The parent's settings, with what the fork changes. Raises SettingsError."""
    if options.fork_from is None or options.at_stage is None or options.run_dir is None:
        raise SettingsError("--fork-from RUN, --at-stage K and --run-dir NEW go together; give all three")
    if options.resume:
        raise SettingsError("--fork-from begins a new run; continue one that was forked with --resume --run-dir alone")
    from graph.rundir import stored_identity  # noqa: PLC0415

    stored = stored_identity(options.fork_from)["settings"]
    changes = {} if options.config is None else read_settings(options.config)
    return parse_settings({**stored, **changes, **overrides}, f"{options.fork_from}/run.yaml and the fork's changes")


def execute(options: argparse.Namespace, settings: RunSettings, console: Console) -> int:
    """Prepare, then run, resume or only describe."""
    from graph.describe import describe  # noqa: PLC0415  imports torch, which takes seconds
    from graph.prepare import default_run_dir, plan, prepare  # noqa: PLC0415

    if options.dry_run:
        describe(plan(settings), console)
        return Exit.DONE
    prepared = prepare(settings)
    root = options.run_dir or default_run_dir(settings, datetime.now().astimezone())
    from graph.approval import read_word  # noqa: PLC0415
    from graph.session import run_session  # noqa: PLC0415

    said = "no" if options.reject else options.approve
    word = None if said is None else read_word(said)
    if options.fork_from is not None:
        from graph.fork import fork  # noqa: PLC0415

        fork(options.fork_from, options.at_stage, root, prepared.identity)
    resume = options.resume or options.fork_from is not None
    return run_session(prepared, root, console, resume=resume, word=word, started=BIRTH)


if __name__ == "__main__":
    sys.exit(main())
