"""One process working on one run, under its lock, from the first node to the closing tables and the exit code."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from pathlib import Path

from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from agents.structured import RoleFailure
from envsim.api import EnvsimError
from graph import layout, tables, words
from graph.drive import Waiting, drive
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
from trainer.policy import PolicyError
from trainer.stage import StageError, StageInputError


def run_session(
    prepared: Prepared, root: Path, console: Console, *, resume: bool, word: bool | None, started: float
) -> int:
    """Run or resume and return the exit code. Raises SettingsError for a directory that cannot be used."""
    disable_progress_bar()  # type: ignore[no-untyped-call]
    with open_run(root, prepared.identity, resume=resume) as run:
        clock = Clock(started)
        clock.move(time.monotonic() - started, "other", "start-up")
        work = new_work(prepared, run, console, clock)
        reporter = work.reporter
        reporter.line(f"run directory {root}; stop with Ctrl-C, continue with --resume --run-dir {root}")
        reporter.event("session", session=work.session, pid=os.getpid(), resumed=resume)
        try:
            asyncio.run(drive(work, word))
        except Stopped:
            reporter.line(f"drained; continue with --resume --run-dir {root}", style="yellow")
            return Exit.DRAINED
        except Waiting as waiting:
            stage = waiting.question["stage"]
            reporter.line(f"stage {stage:03d} waits for approval: {words.answer(waiting.question['proposal'])}")
            reporter.line(f"answer with --resume --run-dir {root} --approve (or --reject)", style="yellow")
            return Exit.WAITING
        except RoleFailure as failure:
            reporter.line(f"error: {failure}", style="red")
            return Exit.ROLE_FAILED
        except (EnvsimError, CheckpointError, StageInputError) as error:
            raise SettingsError(" ".join(str(error).split())) from error
        except (StageError, PolicyError, EvaluationError) as error:
            reporter.line(f"error: {error}", style="red")
            return Exit.FAILED
        close(work, root)
        return Exit.DONE


def new_work(prepared: Prepared, run: RunDir, console: Console, clock: Clock) -> Work:
    stop = threading.Event()
    return Work(
        run=run,
        settings=prepared.settings,
        profile=prepared.profile,
        environment=prepared.environment,
        roles=prepared.roles,
        start=prepared.start,
        identity=prepared.identity,
        reporter=Reporter(run, console, stopped=stop.is_set),
        clock=clock,
        session=f"{time.time():.0f}-{os.getpid()}",
        stop=stop,
    )


def close(work: Work, root: Path) -> None:
    """The closing tables, and where the report is."""
    work.reporter.event("time", session=work.session, seconds=work.clock.seconds())
    summary = summarise(work.run, work.environment, work.identity)
    work.reporter.show(tables.stage_table(summary["stages"]))
    for note in tables.stage_notes(summary["stages"]):
        work.reporter.line(note)
    work.reporter.show(tables.result_table(summary["final"]))
    work.reporter.show(tables.time_table(summary["time"], summary["tokens"]))
    work.reporter.line(
        f"peak memory: {peak_gib(resource.RUSAGE_SELF):.2f} GiB here, "
        f"{peak_gib(resource.RUSAGE_CHILDREN):.2f} GiB in the largest process that it started"
    )
    work.reporter.line(f"report: {root / layout.REPORT}", style="bold")
    work.reporter.event("done", report=layout.REPORT)


def peak_gib(who: int) -> float:
    """Largest resident size; the kernel counts it in KiB, on macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit / 2**30
