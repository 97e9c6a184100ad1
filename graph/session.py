"""One process working on one run, under its lock, from the first node to the closing tables and the exit code."""

from __future__ import annotations

import asyncio
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from agents.structured import RoleFailure
from envsim.api import EnvsimError
from envsim.documents import DocumentError
from graph import layout, tables, words
from graph.approval import gates_let_through
from graph.asking import ask_person, attended
from graph.build import tell_time
from graph.checkpoints import DatabaseUnreachable
from graph.drive import Said, Waiting, drive
from graph.exits import Exit
from graph.prepare import Prepared
from graph.progress import Reporter, Stopped
from graph.rundir import RunDir, open_run
from graph.settings import SettingsError
from graph.summary import summarise
from graph.timing import Clock
from graph.work import Work
from trainer.checkpoint import CheckpointError
from trainer.evaluate import EvaluationError
from trainer.launch.contract import Launcher, LaunchError
from trainer.launch.follow import LaunchStopped
from trainer.policy import PolicyError
from trainer.stage import StageError, StageInputError
from trainer.usage import largest_peak_gib, own_peak_gib


def run_session(
    prepared: Prepared,
    root: Path,
    console: Console,
    *,
    resume: bool,
    word: Said | None,
    started: float,
    **means: Any,
) -> int:
    """Run or resume and return the exit code; ``means`` are those of `new_work`.

    Raises SettingsError for a directory that cannot be used.
    """
    disable_progress_bar()  # type: ignore[no-untyped-call]
    with open_run(root, prepared.identity, resume=resume) as run:
        clock = Clock(started)
        clock.move(time.monotonic() - started, "other", "start-up")
        work = new_work(prepared, run, console, clock, **means)
        try:
            return run_to_end(work, root, resume=resume, word=word)
        except DocumentError as damage:
            work.reporter.failure(f"{damage}; remove {run.path(layout.DATABASE)} and resume to make it again")
        except OSError as error:
            name = "" if error.filename is None else f"{error.filename}: "
            work.reporter.failure(f"{name}{error.strerror or error}; resume the run once that is put right")
        except sqlite3.Error as error:
            work.reporter.failure(f"{run.path(layout.DATABASE)}: {error}; resume the run once that is put right")
        except DatabaseUnreachable as error:
            work.reporter.failure(f"{error}; resume the run once that is put right")
        finally:
            work.release()
        return Exit.FAILED


def run_to_end(work: Work, root: Path, *, resume: bool, word: Said | None) -> int:
    """The exit code of whatever ends the run in an orderly way."""
    reporter, again = work.reporter, f"--resume --run-dir {shlex.quote(str(root))}"

    began = False

    def begin() -> None:
        nonlocal began
        if began:
            return
        began = True
        reporter.line(f"run directory {root}; stop with Ctrl-C, continue with {again}")
        reporter.event("session", session=work.session, pid=os.getpid(), resumed=resume)

    try:
        while True:
            try:
                asyncio.run(drive(work, word, begin))
                break
            except Waiting as waiting:
                # Asked for here, where no loop runs, so that Ctrl-C ends the question as it ends any other.
                word = ask_person(waiting.question, work.run) if attended() else None
                if word is None:
                    raise
    except (Stopped, LaunchStopped):
        reporter.line(f"drained; continue with {again}", style="yellow")
        return Exit.DRAINED
    except Waiting as waiting:
        stage = waiting.question["stage"]
        reporter.line(f"stage {stage:03d} waits for approval: {words.answer(waiting.question['proposal'])}")
        proposal = shlex.quote(str(root / waiting.question["file"]))
        passed = gates_let_through(waiting.question)
        if not passed:
            reporter.line(f"{waiting.question['gates']}; no word lifts a gate", style="yellow")
        yes = "--approve (or --reject)" if passed else "--reject"
        reporter.line(f"answer with {again} {yes}; to change it, copy and edit", style="yellow")
        reporter.line(f"{proposal} and answer with --approve FILE", style="yellow")
        return Exit.WAITING
    except RoleFailure as failure:
        reporter.failure(str(failure))
        reporter.hint(f"to ask it again, continue with {again}")
        return Exit.ROLE_FAILED
    except (EnvsimError, CheckpointError, StageInputError) as error:
        raise SettingsError(" ".join(str(error).split())) from error
    except (StageError, LaunchError, PolicyError, EvaluationError) as error:
        reporter.failure(str(error))
        reporter.hint(f"once that is put right, continue with {again}")
        return Exit.FAILED
    close(work, root)
    return Exit.DONE


def new_work(
    prepared: Prepared,
    run: RunDir,
    console: Console,
    clock: Clock,
    *,
    reporter: Callable[..., Reporter] = Reporter,
    launcher: Launcher | None = None,
) -> Work:
    """What the nodes share. ``launcher`` starts the workers, None = as the profile says."""
    stop = threading.Event()
    return Work(
        run=run,
        settings=prepared.settings,
        profile=prepared.profile,
        environment=prepared.environment,
        roles=prepared.roles,
        start=prepared.start,
        identity=prepared.identity,
        reporter=reporter(run, console, stopped=stop.is_set),
        clock=clock,
        session=f"{time.time():.0f}-{os.getpid()}",
        stop=stop,
        _launcher=launcher,
    )


def close(work: Work, root: Path) -> None:
    """The closing tables, and where the report is."""
    tell_time(work)
    summary = summarise(work.run, work.environment, work.identity)
    done = len(summary["stages"])
    begun = len(list(work.run.root.glob("stages/[0-9][0-9][0-9]")))
    if done < (begun if work.settings.token_budget else work.settings.stages + 1):
        work.reporter.line(
            f"files of {layout.stage_dir(done)} are missing or damaged, and the tables end before it; "
            f"to make them again, remove {work.run.path(layout.DATABASE)} and resume",
            style="yellow",
        )
    work.reporter.show(tables.stage_table(summary["stages"]))
    for note in tables.stage_notes(summary["stages"]):
        work.reporter.line(note)
    work.reporter.show(tables.result_table(summary["final"]))
    work.reporter.show(tables.time_table(summary["time"], summary["tokens"], summary["read"]))
    work.reporter.line(
        f"peak memory: {own_peak_gib():.2f} GiB here, "
        f"{largest_peak_gib():.2f} GiB in the largest process that it started"
    )
    if summary["final"] is not None:
        work.reporter.line(champion_line(summary["final"], root))
    work.reporter.line(f"report: {root / layout.REPORT}", style="bold")
    work.reporter.event("done", report=layout.REPORT)


def champion_line(final: dict[str, Any], root: Path) -> str:
    """Which checkpoint the run recommends, and where it lies."""
    champion = final["champion"]
    if champion["stage"] < 0:
        return "champion: the starting checkpoint; no stage that was kept scored higher on the anchor set"
    return f"champion: the checkpoint of stage {champion['stage']:03d}, {root / champion['path']}"
