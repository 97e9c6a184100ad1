"""Anybody's answers to a set, graded into the paper's table: acc. and opt. by map size and Sum, by number of agents.

An answer is text as a model wrote it; the verifier grades it. acc. is the percentage of valid plans, opt. that of valid
plans of optimal makespan, Sum is over all instances of a table together (with as many instances in each size, as in the
benchmark, that is the mean over sizes, as in the paper). A missing answer counts as wrong unless asked otherwise.

``paper.json`` holds the rows of "From Trainee to Trainer" (arXiv 2606.17682). They were measured on the paper's own
instances: the benchmark here is drawn by the same recipe, as far as that is known, and is not the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import StrictStr

from envsim.api import EnvsimError, Frozen, Message, Style, Verdict
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance
from envsim.lake.rows import shown
from envsim.tables import columns

COLUMN = len("100.00/100.00") + 2
SHOWN = 5
"""Ids that an error names."""
PAPER_FILE = Path(__file__).with_name("paper.json")


class AnswerRow(Frozen):
    """An answer as a model wrote it, to the instance of this id."""

    id: StrictStr
    answer: StrictStr


class PromptRow(Frozen):
    """The messages that pose an instance."""

    id: str
    messages: list[Message]


class Figures(Frozen):
    """Percentages; None where a source does not give one."""

    acc: float
    opt: float | None = None


class TableRow(Frozen):
    """One line of a table: percentages by cell, and of all; ``sum`` is None where it would be of other instances."""

    name: str
    acc: dict[str, float]
    opt: dict[str, float]
    sum: Figures | None


class ScoreTable(Frozen):
    """The table of one number of agents. ``n`` counts by cell the instances that the first row is about."""

    agents: int
    cells: list[str]
    n: dict[str, int]
    rows: list[TableRow]


class Paper(Frozen):
    """The paper's figures; number of agents -> rows."""

    source: str
    note: str
    tables: dict[int, list[TableRow]]


class Score(Frozen):
    """What ``benchmark --score`` found. ``outcomes`` counts the verdicts of the answers given."""

    set: str
    answers: int
    missing: int
    partial: bool
    outcomes: dict[str, int]
    tables: list[ScoreTable]
    paper: str | None


class _Graded(Frozen):
    agents: int
    cell: str
    valid: bool
    optimal: bool


@cache
def paper() -> Paper:
    """The committed figures."""
    return Paper.model_validate_json(PAPER_FILE.read_text(encoding="utf-8"))


def prompts(instances: Iterable[LakeInstance], style: Style) -> Iterable[PromptRow]:
    """What to ask a model about each instance; its text goes into an ``AnswerRow`` of the same id.

    That is the instance's own name, if it has one, else its id.
    """
    lake = Lake()
    return (PromptRow(id=instance.label(), messages=lake.prompt(instance, style)) for instance in instances)


def grade(instances: Sequence[LakeInstance], answers: Iterable[tuple[str, AnswerRow]]) -> dict[str, Verdict]:
    """The verdict on each answer by the instance's label; answers come with where they stand.

    An answer's id is an instance's name or id. Raises EnvsimError if it is unknown or answered twice, or if an instance
    is not certified or occurs twice.
    """
    lake = Lake()
    by_label: dict[str, LakeInstance] = {}
    for instance in instances:
        if instance.label() in by_label:
            raise EnvsimError(f"instance {instance.label()} is in the set twice; expected every id once")
        certified_optimum(instance)
        by_label[instance.label()] = instance
    known = _once(instance.id for instance in instances)
    label_of = {i.id: i.label() for i in instances if i.id in known} | {label: label for label in by_label}
    found: dict[str, Verdict] = {}
    where_of: dict[str, str] = {}
    for where, row in answers:
        label = label_of.get(row.id)
        if label is None:
            some = ", ".join(map(shown, [*by_label][:SHOWN])) + (", ..." if len(by_label) > SHOWN else "")
            raise EnvsimError(
                f"{where}: id {row.id[:60]!r} is not in the set of {len(by_label)} instances; expected one of {some}"
            )
        if label in found:
            raise EnvsimError(f"{where}: id {row.id!r} has an answer in {where_of[label]} already; expected one each")
        where_of[label] = where
        try:
            found[label] = lake.score(by_label[label], row.answer)
        except EnvsimError as error:
            raise EnvsimError(f"{where}: the answer to {row.id}: {error}") from error
    return found


def certified_optimum(instance: LakeInstance) -> int:
    """The optimal makespan. Raises EnvsimError if there is none to grade against, and says why."""
    certificate = instance.certificate
    if certificate is not None and not certificate.solvable:
        raise EnvsimError(
            f"instance {instance.label()} is proved unsolvable, so that no answer to it could be right; "
            "leave it out of the set"
        )
    if certificate is None or certificate.makespan is None:
        raise EnvsimError(
            f"instance {instance.label()} has no certified optimum; certify the set first (solve --certified)"
        )
    return certificate.makespan


def _once(names: Iterable[str]) -> set[str]:
    """Those that do not occur twice."""
    return {name for name, n in Counter(names).items() if n == 1}


def score(
    set_name: str, instances: Sequence[LakeInstance], verdicts: Mapping[str, Verdict], name: str, *, partial: bool
) -> Score:
    """The tables, one for each number of agents. ``partial`` leaves out instances without an answer.

    The paper's rows stand beside the answers to the set ``benchmark``.
    """
    lake = Lake()
    graded: list[_Graded] = []
    for instance in instances:
        verdict = verdicts.get(instance.label())
        if verdict is not None or not partial:
            valid, optimal = (False, False) if verdict is None else (verdict.valid, verdict.optimal)
            graded.append(_Graded(agents=instance.agents, cell=lake.cell(instance), valid=valid, optimal=optimal))
    beside = paper() if set_name == "benchmark" else None
    tables = [
        _table(agents, [row for row in graded if row.agents == agents], name, beside)
        for agents in sorted({row.agents for row in graded})
    ]
    return Score(
        set=set_name,
        answers=len(verdicts),
        missing=len(instances) - len(verdicts),
        partial=partial,
        outcomes=dict(Counter(verdict.outcome for verdict in verdicts.values())),
        tables=tables,
        paper=None if beside is None else beside.source,
    )


def _table(agents: int, rows: Sequence[_Graded], name: str, beside: Paper | None) -> ScoreTable:
    n = Counter(row.cell for row in rows)
    cells = sorted(n, key=lambda cell: tuple(map(int, cell.split("x"))))
    *by_cell, whole = columns(rows, cells)
    mine = TableRow(
        name=name,
        acc={cell: round(found.acc, 2) for cell, found in zip(cells, by_cell, strict=True)},
        opt={cell: round(found.opt, 2) for cell, found in zip(cells, by_cell, strict=True)},
        sum=Figures(acc=round(whole.acc, 2), opt=round(whole.opt, 2)),
    )
    others = [] if beside is None else beside.tables.get(agents, [])
    if len(set(n.values())) > 1 or any(row.acc and list(row.acc) != cells for row in others):
        # The paper's is the mean over all of its sizes; this one is not, so that nobody should compare them.
        others = [row.model_copy(update={"sum": None}) for row in others]
    return ScoreTable(agents=agents, cells=cells, n={cell: n[cell] for cell in cells}, rows=[mine, *others])


def as_text(found: Score) -> str:
    """The tables for people: a line a model, ``acc/opt`` in each column, ``-`` where a figure is not known."""
    lines = []
    for table in found.tables:
        width = max(len(row.name) for row in table.rows) + 2
        heads = [*table.cells, "Sum"]
        title = f"{table.agents} agents, acc./opt. (%)"
        width = max(width, len(title) + 2)
        lines.append(_line(title, width, heads))
        lines.append(_line("instances", width, [str(n) for n in (*table.n.values(), sum(table.n.values()))]))
        for row in table.rows:
            shown = [_shown(row.acc.get(cell), row.opt.get(cell)) for cell in table.cells]
            whole = "-" if row.sum is None else _shown(row.sum.acc, row.sum.opt)
            lines.append(_line(row.name, width, [*shown, whole]))
        lines.append("")
    total = found.answers + found.missing
    if found.missing:
        counted = "left out" if found.partial else "counted as wrong"
        lines.append(f"{found.missing} of {total} instances have no answer: {counted}")
    lines.append(f"answers: {', '.join(f'{outcome} {n}' for outcome, n in sorted(found.outcomes.items()))}")
    if found.paper is not None:
        lines.append(f"all rows but the first of each table: {found.paper}. {paper().note}")
        if any(row.sum is None for table in found.tables for row in table.rows):
            lines.append("Sum of the paper is left out (-) where yours is not over all map sizes in equal parts")
    return "\n".join(lines)


def _line(name: str, width: int, figures: Sequence[str]) -> str:
    """``100.00/100.00`` has a space before it."""
    return name.ljust(width) + "".join(f"{figure:>{COLUMN}}" for figure in figures)


def _shown(acc: float | None, opt: float | None) -> str:
    return "/".join("-" if value is None else f"{value:.2f}" for value in (acc, opt))
