"""The runs below a directory, each in a few figures: read from their files alone, whatever their environment."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from envsim.documents import DocumentError
from graph import layout, words
from graph.lock import STUDIO, Holder, holder_of
from graph.report_state import begun, last_word
from graph.rundir import RUN_FILE, RunDir, stored_identity
from graph.settings import Frozen, SettingsError
from graph.summary import evaluation, final_result, time_table, token_table
from graph.training import stage_result
from trainer.stage import StageError

State = Literal["done", "running", "waiting", "drained", "failed", "crashed", "new"]
RUNS = Path("runs")
"""Where runs lie that are begun without a directory."""
DEEPEST = 4
"""Levels of directories in which runs are looked for."""


class Change(Frozen):
    """A macro validity before and after, as shares in [0, 1]; the interval is of the paired change."""

    before: float
    after: float
    low: float | None = None
    high: float | None = None


class StageLine(Frozen):
    """One decided stage."""

    stage: int
    source: str
    accepted: bool
    reason: str
    valid: Change
    optimal: Change
    steps: int
    tokens: int


class Found(Frozen):
    """One run. ``path`` is where it lies; times are seconds, ``began`` since 1970."""

    name: str
    path: str
    state: State
    why: str
    holder: Holder | None
    """Who has it open at this moment; a server has also what nothing works on."""
    designer: str
    seed: int
    environment: str
    profile: str
    planned: int
    """Stages that the run is to have, stage 000 included."""
    stages: list[StageLine]
    anchor: Change | None
    """Of the starting checkpoint and of the one that the run goes on from."""
    test: Change | None
    champion: int | None
    """The stage that made it, -1 = the starting checkpoint."""
    current: int | None
    tokens: int
    seconds: float
    began: float | None


def run_directories(roots: Sequence[Path]) -> list[Path]:
    """Every directory at or below the roots that holds a run, in order of names.

    Raises SettingsError naming a root that is no directory.
    """
    found: list[Path] = []
    for root in roots:
        if not root.is_dir():
            raise SettingsError(f"{str(root)!r} is no directory; name one that holds runs with --directory")
        found += _below(root, DEEPEST)
    return list(dict.fromkeys(found))


def named_run(given: Path, directory: Path) -> Path:
    """The run that a person means: a directory, or the name of one run below ``directory`` as it is listed.

    Raises SettingsError that says what there is in its place.
    """
    if (given / RUN_FILE).is_file():
        return given
    listed = run_directories([directory]) if directory.is_dir() else []
    found = [root for root in listed if root.absolute().name == str(given)]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"{str(given)!r} is the name of {', '.join(map(str, found))}; give one of these paths")
    if given.exists():
        stored_identity(given)
    names = [root.absolute().name for root in listed]
    near = difflib.get_close_matches(str(given), names, n=1)
    known = f"did you mean {near[0]!r}?" if near else f"known there: {', '.join(sorted(set(names))) or 'none'}"
    raise SettingsError(
        f"no run {str(given)!r}: neither a run directory nor the name of a run below {str(directory)!r}; {known}"
    )


def _below(root: Path, levels: int) -> Iterator[Path]:
    if (root / RUN_FILE).is_file():
        yield root
    elif levels:
        for path in sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink()):
            yield from _below(path, levels - 1)


def read_run(root: Path) -> Found:
    """A run's figures. Raises SettingsError if its ``run.yaml`` is missing or damaged."""
    settings = stored_identity(root)["settings"]
    run = RunDir(root)
    events = run.events()
    final, stages = final_result(run), stage_lines(run)
    known, last, holder = begun(events), last_word(events), holder_of(root)
    decided = run.read_if_whole(layout.in_stage(len(stages) - 1, "decision.json")) if stages else None
    return Found(
        name=root.absolute().name,
        path=str(root),
        state=state_of(events, holder),
        why="" if last is None else last.why,
        holder=holder,
        designer=words.designer(settings.get("designer")),
        seed=int(settings.get("seed", 0)),
        environment=str(settings.get("environment")),
        profile=str(settings.get("profile")),
        planned=int(settings.get("stages", 0)) + 1,
        stages=stages,
        anchor=anchor_of(run, decided),
        test=None if final is None else change_of(final["sets"]["test"], "valid"),
        champion=None if decided is None else int(decided["champion"]["stage"]),
        current=None if decided is None else int(decided["current"]["stage"]),
        tokens=tokens_of(run, len(stages)),
        seconds=round(sum(time_table(events).values()), 1),
        began=next((one.started for one in known if one.worked), None),
    )


def state_of(events: Sequence[dict[str, Any]], holder: Holder | None) -> State:
    """By the log, and where its last process noted no end by the lock: held that is at work, free it was killed.

    A lock alone does not make a run one at work: a server holds it as long as it has the run open.
    """
    known, last = begun(events), last_word(events)
    if holder is not None and (known[-1].how == "running" if known else holder.what != STUDIO):
        return "running"
    if last is None:
        return "new"
    return "crashed" if last.how == "running" else last.how


def stage_lines(run: RunDir) -> list[StageLine]:
    """The decided stages in order, up to the first with a missing or damaged file."""
    found: list[StageLine] = []
    while (one := _stage_line(run, len(found))) is not None:
        found.append(one)
    return found


def _stage_line(run: RunDir, stage: int) -> StageLine | None:
    try:
        decision = run.read_if_there(layout.in_stage(stage, "decision.json"))
        plan = run.read_if_there(layout.in_stage(stage, "plan.json"))
        if decision is None or plan is None:
            return None
        result = stage_result(run, stage)
    except (DocumentError, StageError):
        return None
    return StageLine(
        stage=stage,
        source=plan["source"],
        accepted=decision["accepted"],
        reason=decision["reason"],
        valid=change_of(decision, "valid"),
        optimal=change_of(decision, "optimal"),
        steps=result.steps,
        tokens=result.generated_tokens,
    )


def change_of(comparison: dict[str, Any], score: str) -> Change:
    """The change that a decision or a result holds."""
    interval = comparison.get(score) or {}
    return Change(
        before=comparison["before"][f"macro_{score}"],
        after=comparison["after"][f"macro_{score}"],
        low=interval.get("low"),
        high=interval.get("high"),
    )


def anchor_of(run: RunDir, decided: dict[str, Any] | None) -> Change | None:
    start = evaluation(run, layout.eval_dir(-1), "anchor")
    if start is None:
        return None
    before = start["macro_valid"]
    return Change(before=before, after=before if decided is None else decided["current"]["anchor"])


def tokens_of(run: RunDir, decided: int) -> int:
    """All tokens that the run generated, of its decided stages and its evaluations."""
    trained = (stage_result(run, stage).generated_tokens for stage in range(decided))
    stages = [{"training": {"generated_tokens": tokens}} for tokens in trained]
    return sum(token_table(run, stages).values())
