"""An evaluation on the validation set -> what the roles may know: statistics by cell and a few failures.

Failures are clustered by (cell, outcome). Of a cluster two are shown: a typical one, whose first fault comes at the
median step, and an odd one, whose fault lies where the fewest lie. Cells speak in the order of how much can be learnt
there, p (1 - p). Everything is a function of the files, so a resumed run writes the same evidence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agents.changes import mixtures
from agents.evidence.clusters import clusters
from agents.evidence.statistics import cell_statistics
from agents.schemas import CellEvidence, Evidence, FailureExample, HistoryEntry, TrainingEvidence
from envsim.api import Environment, Instance, Knob, Measurement
from trainer.evaluate import Failure, Rollout, read_rollouts
from trainer.files import read_lines
from trainer.spec import EvalReport

NO_SIGNAL_BELOW = 0.05
"""If no cell is solved this often, failures say that nothing works, not what to change."""
EXAMPLES = 8
ANSWER_CHARACTERS = 600


def build_evidence(
    environment: Environment,
    *,
    stage: int,
    config: Any,
    report: EvalReport,
    rollouts: Path,
    failures: Path,
    previous: EvalReport | None,
    anchor: EvalReport,
    history: Sequence[HistoryEntry],
    zero_variance_share: float | None,
    training: TrainingEvidence | None = None,
    silent: Mapping[tuple[str, int], float] = MappingProxyType({}),
    stopped: str | None = None,
    instances: Sequence[Instance] | None = None,
    examples: int = EXAMPLES,
) -> Evidence:
    """Evidence for designing ``stage`` from the checkpoint that ``report`` evaluated.

    ``config`` is what that checkpoint was trained on last, ``previous`` the report before that stage, ``anchor`` gives
    its aggregates only, ``training`` says what the last stage trained on, ``silent`` which of its groups gave no signal
    (``silent_shares``), ``stopped`` which tripwire ended it, if one did. ``instances`` are those of the report's set;
    None reads the environment's frozen set.
    Raises ValueError if a cell of the environment was not evaluated.
    """
    return assemble(
        environment,
        stage=stage,
        config=config,
        report=report,
        rows=read_rollouts(rollouts),
        replays=read_failures(failures),
        previous=previous,
        anchor=anchor,
        history=history,
        zero_variance_share=zero_variance_share,
        training=training,
        silent=silent,
        stopped=stopped,
        instances=environment.frozen_set(report.set) if instances is None else instances,
        examples=examples,
    )


def assemble(
    environment: Environment,
    *,
    stage: int,
    config: Any,
    report: EvalReport,
    rows: Sequence[Rollout],
    replays: Sequence[Failure],
    previous: EvalReport | None,
    anchor: EvalReport,
    history: Sequence[HistoryEntry],
    zero_variance_share: float | None,
    instances: Sequence[Instance],
    training: TrainingEvidence | None = None,
    silent: Mapping[tuple[str, int], float] = MappingProxyType({}),
    stopped: str | None = None,
    examples: int = EXAMPLES,
    statistics: bool = True,
) -> Evidence:
    """``build_evidence`` of rows and replays that are at hand; ``statistics`` replay every answer, which takes time."""
    missing = [cell for cell in environment.cells() if cell not in report.cells]
    if missing:
        raise ValueError(
            f"the set {report.set!r} has no instance of {', '.join(missing)}; evaluate a set with all cells"
        )
    knobs = environment.knobs(config)
    cells = []
    for cell in environment.cells():
        stats = report.cells[cell]
        failed = [row for row in rows if row.cell == cell and not row.valid]
        steps = [row.fault.step for row in failed if row.fault is not None and row.fault.step is not None]
        before = previous.cells.get(cell) if previous else None
        cells.append(
            CellEvidence(
                cell=cell,
                n=stats.n,
                valid=stats.valid,
                optimal=stats.optimal,
                change=stats.valid - before.valid if before else None,
                top_fault=_most_common((row.outcome for row in failed), environment.outcomes),
                knobs={_knob(path): knob.value for path, knob in knobs.items() if path.rpartition(".")[0] == cell},
                outcomes=stats.outcomes,
                mean_first_fault_step=sum(steps) / len(steps) if steps else None,
            )
        )
    tasks = {instance.id: instance for instance in instances}
    played = {(failure.id, failure.sample): failure for failure in replays}
    chosen = choose_failures(rows, cells, environment.outcomes, examples)

    def example(name: str, row: Rollout, kind: str) -> FailureExample:
        return _example(environment, name, row, kind, tasks, played)

    return Evidence(
        stage=stage,
        model_sha256=report.model_sha256,
        macro_valid=report.macro_valid,
        macro_optimal=report.macro_optimal,
        zero_variance_share=zero_variance_share,
        no_signal=max(cell.valid for cell in cells) < NO_SIGNAL_BELOW,
        cells=cells,
        outcomes=report.outcomes,
        failures=[example(f"e{number}", row, kind) for number, (row, kind) in enumerate(chosen, start=1)],
        anchor={cell: stats.valid for cell, stats in anchor.cells.items()},
        history=list(history),
        open_knobs=shared_knobs(environment, knobs),
        training=training,
        stopped=stopped,
        statistics=cell_statistics(environment, rows, tasks, silent) if statistics else [],
        clusters=clusters(rows, environment.cells(), example),
    )


def shared_knobs(environment: Environment, knobs: Mapping[str, Knob]) -> dict[str, float]:
    """The values of the knobs that are no cell's, by path."""
    cells = set(environment.cells())
    return {path: knob.value for path, knob in knobs.items() if path.rpartition(".")[0] not in cells}


def training_evidence(
    environment: Environment, *, stage: int, measured: Measurement, success: float | None, progress: float | None
) -> TrainingEvidence | None:
    """What a stage trained on; None if no shared knob is open and none is measured.

    Of knobs that are not open only the groups that were measured are told.
    """
    whole = environment.editing(environment.knob_groups)
    default = shared_knobs(whole, whole.knobs(environment.default_config()))
    opened = shared_knobs(environment, environment.knobs(environment.default_config()))
    found = {path: _overall(measured, path) for path in default if _is_measured(measured, path)}
    groups = {_group(path) for path in (*opened, *found)}
    if not groups:
        return None
    knobs = {path: found.get(path, value) for path, value in default.items() if _group(path) in groups}
    for paths in mixtures(knobs, environment.cells()).values():
        rest = 1 - sum(found.get(path, 0.0) for path in paths)
        knobs |= {path: default[path] * rest for path in paths if path not in found}
    return TrainingEvidence(stage=stage, n=measured.n, knobs=knobs, success=success, progress=progress)


def _group(path: str) -> str:
    return path.partition(".")[0]


def _is_measured(measured: Measurement, quantity: str) -> bool:
    return any(quantity in values for values in measured.quantities.values())


def _overall(measured: Measurement, quantity: str) -> float:
    """The mean of a quantity over all instances; a cell without it has none of it."""
    parts = [(share, measured.quantities.get(cell, {})) for cell, share in measured.share.items()]
    return sum(share * values.get(quantity, 0.0) for share, values in parts)


def read_failures(path: Path) -> list[Failure]:
    """The replayed failures beside a rollouts file."""
    return [Failure.model_validate_json(line) for line in read_lines(path)]


def choose_failures(
    rows: Sequence[Rollout], cells: Sequence[CellEvidence], outcomes: Sequence[str], n: int
) -> list[tuple[Rollout, str]]:
    """At most n failures with their kind (typical, odd), in the order of the cells.

    Round by round every cell gives the typical and the odd failure of its next largest cluster, the cell from which
    most can be learnt first. A cluster of one has no odd failure.
    """
    clusters: dict[str, list[list[Rollout]]] = {}
    for cell in cells:
        by_outcome: dict[str, list[Rollout]] = defaultdict(list)
        for row in rows:
            if row.cell == cell.cell and not row.valid:
                by_outcome[row.outcome].append(row)
        ranked = sorted(by_outcome, key=lambda outcome: (-len(by_outcome[outcome]), outcomes.index(outcome)))
        clusters[cell.cell] = [by_outcome[outcome] for outcome in ranked]
    order = sorted(cells, key=lambda cell: -cell.valid * (1 - cell.valid))
    chosen: list[tuple[Rollout, str]] = []
    for turn in range(max((len(ranked) for ranked in clusters.values()), default=0)):
        for cell in order:
            if turn < len(clusters[cell.cell]):
                chosen.extend(_pair(clusters[cell.cell][turn]))
    place = {cell.cell: index for index, cell in enumerate(cells)}
    return sorted(chosen[:n], key=lambda item: place[item[0].cell])


def _pair(cluster: Sequence[Rollout]) -> list[tuple[Rollout, str]]:
    by_step = sorted(cluster, key=lambda row: (_step(row), row.id, row.sample))
    typical = by_step[(len(by_step) - 1) // 2]
    frequency = Counter(_position(row) for row in cluster)
    rest = [row for row in by_step if row is not typical]
    odd = min(rest, key=lambda row: (frequency[_position(row)], row.id, row.sample), default=None)
    return [(typical, "typical")] + ([(odd, "odd")] if odd is not None else [])


def _example(  # noqa: PLR0917
    environment: Environment,
    name: str,
    row: Rollout,
    kind: str,
    tasks: Mapping[str, Instance],
    replays: Mapping[tuple[str, int], Failure],
) -> FailureExample:
    return FailureExample.model_validate(
        {
            "id": name,
            "instance": environment.prompt(tasks[row.id], "compact")[-1]["content"],
            "cell": row.cell,
            "outcome": row.outcome,
            "kind": kind,
            "where": _where(row, replays.get((row.id, row.sample))),
            "answer": row.answer[:ANSWER_CHARACTERS],
        }
    )


def _where(row: Rollout, replay: Failure | None) -> str:
    """The first fault in words, with what the agents did there."""
    parts = []
    if row.fault is not None:
        known: Mapping[str, Any] = {"step": row.fault.step, "agent": row.fault.agent, "at": row.fault.location}
        parts = [f"{name} {value}" for name, value in known.items() if value is not None]
    if replay is not None and replay.actions:
        parts.append(f"last action {replay.actions[-1]}")
    return ", ".join(parts) or "in the answer's form"


def _step(row: Rollout) -> int:
    return -1 if row.fault is None or row.fault.step is None else row.fault.step


def _position(row: Rollout) -> tuple[int, str]:
    return _step(row), (row.fault.location or "") if row.fault else ""


def _most_common(outcomes: Iterable[str], order: Sequence[str]) -> str | None:
    counts = Counter(outcomes)
    return min(counts, key=lambda outcome: (-counts[outcome], order.index(outcome)), default=None)


def _knob(path: str) -> str:
    return path.rpartition(".")[2]
