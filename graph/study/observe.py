"""A finished run directory as a row: what every comparison needs, read from the run's files alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from envsim import registry
from envsim.api import Environment
from envsim.documents import DocumentError
from graph import layout
from graph.prepare import opened
from graph.rundir import RunDir, stored_identity
from graph.settings import RunSettings, SettingsError
from graph.spending import charged
from graph.study.rows import Answers, CellCounts, Row, StageRow
from graph.summary import answers, evaluation, final_result, stage_summary, time_table, token_table
from trainer.evaluate import EvaluationError, Rollout, read_rollouts, rollouts_path
from trainer.spec import canonical_hash
from trainer.stage import StageError


class UnfinishedRun(Exception):
    """The directory holds no finished run, or files of it are missing or damaged."""


def finished(root: Path) -> Path | None:
    """The champion's directory of a finished run, None if it is the start. Raises UnfinishedRun."""
    final = final_result(RunDir(root.absolute()))
    if final is None:
        raise UnfinishedRun(f"{root / layout.RESULT} is missing or damaged")
    champion = final["champion"]
    return None if champion["stage"] < 0 else root.absolute() / champion["path"]


def observe(root: Path, *, plan: str, code: str, arm: str, beside: tuple[Path, Path] | None = None) -> Row:
    """The row of a finished run. ``beside`` are directories with more answers of its start and of its champion.

    Raises UnfinishedRun, or SettingsError if the directory cannot be one of graph.run's.
    """
    finished(root)
    run = RunDir(root.absolute())
    identity = stored_identity(root)
    settings = RunSettings.model_validate(identity["settings"])
    environment = opened(registry.get(settings.environment), settings.editable)
    try:
        summaries = _stages(run, environment)
        champion = int(run.read(layout.RESULT)["champion"]["stage"])
        start_dir, champion_dir = beside or (None, None)
        return Row(
            plan=plan,
            code=code,
            arm=arm,
            seed=settings.seed,
            start=identity["start_sha256"],
            tokens=token_table(run, summaries),
            seconds=round(sum(time_table(run.events()).values()), 1),
            cpu_seconds=round(processor_seconds(run.events()), 1),
            role_fallbacks=sum(said["fallback"] for stage in summaries for said in answers(stage)),
            champion=champion,
            start_anchor=_answers(rollouts(run, -1, "anchor")),
            stages=[_stage_row(run, one) for one in summaries],
            before=_sealed(run, environment, -1, start_dir),
            after=_sealed(run, environment, champion, champion_dir),
        )
    except (DocumentError, FileNotFoundError, StageError, EvaluationError, KeyError) as error:
        raise UnfinishedRun(f"{root}: {error}") from error


def processor_seconds(events: Iterable[dict[str, Any]]) -> float:
    """Processor time of all processes of a run: the last word of each session counts."""
    sessions = {
        event["session"]: event["cpu"]
        for event in events
        if event.get("event") == "time" and isinstance(event.get("cpu"), int | float)
    }
    return float(sum(sessions.values()))


def rollouts(run: RunDir, origin: int, set_name: str) -> list[Rollout]:
    return read_rollouts(rollouts_path(run.path(layout.eval_dir(origin)), set_name))


def _stages(run: RunDir, environment: Environment) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    while (one := stage_summary(run, environment, len(done))) is not None:
        done.append(one)
    begun = len(list(run.root.glob("stages/[0-9][0-9][0-9]")))
    if not done or len(done) < begun:
        raise UnfinishedRun(f"files of {run.path(layout.stage_dir(len(done)))} are missing or damaged")
    return done


def _stage_row(run: RunDir, summary: dict[str, Any]) -> StageRow:
    number, decision = summary["stage"], summary["decision"]
    kept = evaluation(run, layout.eval_dir(decision["current"]["stage"]), "anchor")
    if kept is None:
        raise UnfinishedRun(f"the anchor evaluation of stage {decision['current']['stage']} is missing")
    return StageRow(
        stage=number,
        origin=decision["trained_from"]["stage"],
        tokens=charged(run, trained=number + 1, designed=number + 1),
        steps=summary["training"]["steps"],
        source=summary["plan"]["source"],
        own=summary["plan"]["own"],
        accepted=decision["accepted"],
        shares=summary["shares"],
        knobs={path: knob["value"] for path, knob in summary["knobs"].items()},
        kept_valid=kept["macro_valid"],
        kept_optimal=kept["macro_optimal"],
        anchor=_answers(rollouts(run, number, "anchor")),
    )


def _sealed(run: RunDir, environment: Environment, origin: int, beside: Path | None) -> dict[str, Answers]:
    found = {"test": _answers(rollouts(run, origin, "test"))}
    if beside is not None and (path := rollouts_path(beside, "test")).is_file():
        found["test_sampled"] = _answers(read_rollouts(path))
    if beside is not None and (path := rollouts_path(beside, "benchmark")).is_file():
        agents = {instance.id: environment.agents(instance) for instance in environment.frozen_set("benchmark")}
        rows = read_rollouts(path)
        for n in sorted(set(agents.values())):
            found[f"benchmark_{n}"] = _answers([row for row in rows if agents[row.id] == n])
    return found


def _answers(rows: list[Rollout]) -> Answers:
    cells: dict[str, dict[str, list[Rollout]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: row.id):
        cells[row.cell][row.id].append(row)
    if not cells:
        raise SettingsError("an evaluation has no answers; a study needs every set to have some")
    samples = {len(takes) for instances in cells.values() for takes in instances.values()}
    if len(samples) > 1:
        raise SettingsError(f"instances of one evaluation have {sorted(samples)} answers, expected the same of each")
    return Answers(
        instances=canonical_hash([name for instances in cells.values() for name in instances]),
        samples=samples.pop(),
        cells={
            cell: CellCounts(
                valid=_counts(instances.values(), lambda row: row.valid),
                optimal=_counts(instances.values(), lambda row: row.optimal),
            )
            for cell, instances in sorted(cells.items())
        },
    )


def _counts(instances: Iterable[list[Rollout]], asked: Callable[[Rollout], bool]) -> str:
    return "".join(str(sum(map(asked, takes))) for takes in instances)
