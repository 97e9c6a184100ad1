"""A checkpoint on a frozen set: rollouts stream to a JSONL, the report is written last and atomically.

An evaluation that was cut off goes on where it stopped and gives the rows that it would have given in one go: each
instance has its own seed or stands in a chunk of fixed size and order that has one. A policy that hands out answers as
they come loses those under way; of any other a chunk that is not wholly on disk is owed again.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from envsim.api import Environment, Fault, Instance, Message, Progress, Style
from trainer.files import lock, read_lines, write_atomic
from trainer.metrics import mean_known
from trainer.policy import Completion, Policy, StreamingPolicy
from trainer.spec import CellStats, EvalReport, Frozen, GenerationSettings, absent, canonical_hash, explain

CHUNK = 128
"""Instances between two flushes of a policy that answers many at a time; seeds and resumption depend on it."""


class EvaluationError(ValueError):
    """The set is empty, files of another evaluation are in the way, or a row does not parse."""


class Rollout(Frozen):
    """One answer and what the verifier said of it."""

    id: str
    cell: str
    sample: int
    answer: str
    tokens: int
    outcome: str
    valid: bool
    optimal: bool
    regret: float
    fault: Fault | None
    success: float | None = Field(None, exclude_if=absent)
    """Probability of success of a valid answer to a noisy task."""
    success_interval: tuple[float, float] | None = Field(None, exclude_if=absent)


class Failure(Frozen):
    """An invalid answer, executed up to its first fault."""

    id: str
    cell: str
    sample: int
    outcome: str
    answer: str
    states: list[Any]
    actions: list[Any]
    rewards: list[float]
    fault: Fault | None


class Header(Frozen):
    """First line of a rollouts file: what the rows belong to."""

    set: str
    instances: str
    """Hash over the ids and hashes of the instances, in order."""
    model_sha256: str
    style: Style
    generation: GenerationSettings
    samples: int
    seed: int
    backend: dict[str, Any] | None = Field(None, exclude_if=absent)
    """What of it decides answers; None = transformers in process. Two engines round in another way."""


def rollouts_path(directory: Path, set_name: str) -> Path:
    return directory / f"{set_name}.rollouts.jsonl"


def report_path(directory: Path, set_name: str) -> Path:
    return directory / f"{set_name}.eval.json"


def failures_path(directory: Path, set_name: str) -> Path:
    return directory / f"{set_name}.failures.jsonl"


def evaluate(
    policy: Policy,
    environment: Environment,
    instances: Sequence[Instance],
    *,
    set_name: str,
    model_sha256: str,
    style: Style,
    generation: GenerationSettings,
    directory: Path,
    samples: int = 1,
    seed: int = 0,
    first: int = 0,
    backend: dict[str, Any] | None = None,
    keep_failures: bool = False,
    progress: Progress | None = None,
) -> EvalReport:
    """Answer every instance ``samples`` times, verify, and report by cell.

    Args:
        policy: whose answers count.
        environment: gives prompts and verdicts.
        instances: the set; it is worked through from short prompts to long ones.
        set_name: names the files in ``directory``.
        model_sha256: identity of the policy's checkpoint.
        style: prompt style.
        generation: answer length and temperature; 0 = greedy.
        directory: gets ``<set>.rollouts.jsonl``, ``<set>.eval.json`` and, if asked, ``<set>.failures.jsonl``.
        samples: answers an instance.
        seed: of the sampling.
        first: the place of the first instance in the set that these are a part of; seeds go by it.
        backend: what the policy answers with, by `content` of its settings; None = transformers in process.
        keep_failures: replay the failures into ``<set>.failures.jsonl``.
        progress: called with (answered, all) instances.

    Returns:
        The report; ``seconds`` are those of this call alone.

    Raises:
        EvaluationError: the set is empty, files of another evaluation are in the way, or another writes them now.
    """
    if not instances:
        raise EvaluationError(f"the set {set_name!r} is empty; expected at least one instance")
    started = time.monotonic()
    instances = in_order(environment, instances, style)
    directory.mkdir(parents=True, exist_ok=True)
    header = Header(
        set=set_name,
        instances=canonical_hash([[instance.id, instance.hash] for instance in instances]),
        model_sha256=model_sha256,
        style=style,
        generation=generation,
        samples=samples,
        seed=seed,
        backend=backend,
    )
    with _alone(directory, set_name):
        path = rollouts_path(directory, set_name)
        streams = isinstance(policy, StreamingPolicy)
        owed = _resume(path, header, instances, in_chunks=not streams)
        if not owed and (finished := _finished(directory, header, len(instances), keep_failures)) is not None:
            return finished
        prompts = [environment.prompt(instances[index], style) for index in owed]
        # Far apart, so that the seeds of two evaluations do not meet.
        seeds = [seed * 1_000_003 + first + index for index in owed]
        answered = len(instances) - len(owed)
        # Closed whatever happens here, so that a server is asked nothing more.
        with (
            path.open("a", encoding="utf-8") as file,
            closing(_answers(policy, prompts, seeds, generation, samples)) as batches,
        ):
            for batch in batches:
                rows = [row for place, given in batch for row in _rows(environment, instances[owed[place]], given)]
                file.write("".join(row.model_dump_json() + "\n" for row in rows))
                file.flush()
                os.fsync(file.fileno())
                answered += len(batch)
                if progress is not None:
                    progress(answered, len(instances))
        if streams:
            _resume(path, header, instances, in_chunks=False)
        rollouts = read_rollouts(path)
        if keep_failures:
            _write_failures(environment, instances, rollouts, failures_path(directory, set_name))
        seconds = time.monotonic() - started
        report = summarise(header, environment.cells(), rollouts, file_name=path.name, seconds=seconds)
        write_atomic(report_path(directory, set_name), report.model_dump_json(indent=1))
        return report


def in_order(environment: Environment, instances: Sequence[Instance], style: Style) -> list[Instance]:
    """The instances as an evaluation works through them, from short prompts to long ones.

    Answers grow with prompts, so that neighbours end together and a batch is not held up by a few.
    """
    return sorted(instances, key=lambda instance: _length(environment.prompt(instance, style)))


def read_rollouts(path: Path) -> list[Rollout]:
    """The rows of a finished rollouts file.

    Raises:
        EvaluationError: a line is no rollout.
    """
    return _read(path, _lines(path))


def summarise(
    header: Header, order: Sequence[str], rollouts: Sequence[Rollout], *, file_name: str, seconds: float
) -> EvalReport:
    """Means by cell, in the given order of cells; the macro scores are means over the cells that there are."""
    by_cell: dict[str, list[Rollout]] = defaultdict(list)
    for row in rollouts:
        by_cell[row.cell].append(row)
    place = {cell: position for position, cell in enumerate(order)}
    cells = {
        cell: _cell_stats(by_cell[cell]) for cell in sorted(by_cell, key=lambda cell: (place.get(cell, 1e9), cell))
    }
    return EvalReport(
        set=header.set,
        model_sha256=header.model_sha256,
        temperature=header.generation.temperature,
        samples=header.samples,
        seed=header.seed,
        n=len(rollouts) // header.samples,
        macro_valid=sum(cell.valid for cell in cells.values()) / len(cells),
        macro_optimal=sum(cell.optimal for cell in cells.values()) / len(cells),
        cells=cells,
        outcomes=dict(sorted(Counter(row.outcome for row in rollouts).items())),
        generated_tokens=sum(row.tokens for row in rollouts),
        seconds=seconds,
        rollouts=file_name,
    )


def _length(prompt: Sequence[Message]) -> int:
    return sum(len(message["content"]) for message in prompt)


def _cell_stats(rows: Sequence[Rollout]) -> CellStats:
    return CellStats(
        n=len({row.id for row in rows}),
        valid=sum(row.valid for row in rows) / len(rows),
        optimal=sum(row.optimal for row in rows) / len(rows),
        outcomes=dict(sorted(Counter(row.outcome for row in rows).items())),
        mean_tokens=sum(row.tokens for row in rows) / len(rows),
        success=mean_known(row.success for row in rows),
    )


def _answers(
    policy: Policy, prompts: Sequence[list[Message]], seeds: Sequence[int], generation: GenerationSettings, samples: int
) -> Generator[list[tuple[int, list[Completion]]], None, None]:
    """Batches of (index of the prompt, its completions): one prompt each where the policy streams, else a chunk."""
    shape: dict[str, Any] = {
        "max_new_tokens": generation.max_new_tokens,
        "temperature": generation.temperature,
        "samples": samples,
    }
    if isinstance(policy, StreamingPolicy):
        with closing(policy.stream(prompts, seeds, **shape)) as given:
            for answer in given:
                yield [answer]
        return
    for start in range(0, len(prompts), CHUNK):
        chunk = prompts[start : start + CHUNK]
        yield list(enumerate(policy.generate(chunk, seed=seeds[start], **shape), start=start))


def _rows(environment: Environment, instance: Instance, completions: Sequence[Completion]) -> Iterator[Rollout]:
    for sample, completion in enumerate(completions):
        verdict = environment.score(instance, completion.text)
        yield Rollout(
            id=instance.id,
            cell=environment.cell(instance),
            sample=sample,
            answer=completion.text,
            tokens=completion.tokens,
            outcome=verdict.outcome,
            valid=verdict.valid,
            optimal=verdict.optimal,
            regret=verdict.regret,
            fault=verdict.fault,
            success=verdict.success,
            success_interval=verdict.success_interval,
        )


@contextmanager
def _alone(directory: Path, set_name: str) -> Iterator[None]:
    """Nobody else writes the set's files meanwhile: two at once would add every row twice."""
    path = directory / f"{set_name}.lock"
    try:
        held = lock(path)
    except BlockingIOError as error:
        raise EvaluationError(
            f"another evaluation holds {path}; wait for its end, or evaluate into another directory"
        ) from error
    with held:
        yield


def _resume(path: Path, header: Header, instances: Sequence[Instance], *, in_chunks: bool) -> list[int]:
    """Put the file's whole instances in the order of the set, cut off the rest, and say which are owed.

    In chunks only those count that are all there, from the first on. A missing file is begun.
    """
    first = header.model_dump_json() + "\n"
    if not path.exists():
        write_atomic(path, first)
        return list(range(len(instances)))
    lines = _lines(path)
    if not lines or lines[0] != first.rstrip("\n"):
        raise EvaluationError(
            f"{path} belongs to another evaluation: it begins {(lines or [''])[0][:300]!r}, expected "
            f"{first.strip()!r}; evaluate into another directory or remove the file"
        )
    found: dict[str, dict[int, str]] = defaultdict(dict)
    # A set may hold a task twice.
    room = Counter((instance.id, sample) for instance in instances for sample in range(header.samples))
    for number, (row, line) in enumerate(zip(_read(path, lines), lines[1:], strict=True), start=2):
        if not room[row.id, row.sample]:
            raise EvaluationError(
                f"{path}, line {number} is sample {row.sample} of {row.id!r}: no task of this set, or one that is "
                "answered above; expected each once; remove the file to evaluate anew"
            )
        room[row.id, row.sample] -= 1
        found[row.id][row.sample] = line + "\n"
    whole = [index for index, instance in enumerate(instances) if len(found[instance.id]) == header.samples]
    if in_chunks and len(whole) < len(instances):
        leading = next((index for index, place in enumerate(whole) if index != place), len(whole))
        whole = whole[: leading // CHUNK * CHUNK]
    rows = (found[instances[index].id] for index in whole)
    kept = "".join([first, *(own[sample] for own in rows for sample in range(header.samples))])
    if kept.encode("utf-8") != path.read_bytes():
        write_atomic(path, kept)
    return sorted(set(range(len(instances))).difference(whole))


def _finished(directory: Path, header: Header, n: int, keep_failures: bool) -> EvalReport | None:
    """The report of the n tasks whose rows are all there; None if it is missing or tells of other rows."""
    path = report_path(directory, header.set)
    if not path.exists() or (keep_failures and not failures_path(directory, header.set).exists()):
        return None
    try:
        report = EvalReport.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise EvaluationError(
            f"{path} is no report: {explain(error)}; remove it, and it is written again from the rollouts beside it"
        ) from error
    told = (report.model_sha256, report.n, report.samples, report.seed, report.temperature)
    expected = (header.model_sha256, n, header.samples, header.seed, header.generation.temperature)
    return report if told == expected else None


def _read(path: Path, lines: Sequence[str]) -> list[Rollout]:
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            rows.append(Rollout.model_validate_json(line))
        except ValidationError as error:
            raise EvaluationError(f"{path}, line {number} is no rollout: {explain(error)}") from error
    return rows


def _lines(path: Path) -> list[str]:
    try:
        return read_lines(path)
    except UnicodeDecodeError as error:
        raise EvaluationError(
            f"{path} is damaged: byte {error.object[error.start]:#04x} is no UTF-8; restore it, or remove it to "
            "evaluate anew"
        ) from error


def _write_failures(
    environment: Environment, instances: Sequence[Instance], rollouts: Sequence[Rollout], path: Path
) -> None:
    by_id = {instance.id: instance for instance in instances}
    lines = []
    for row in rollouts:
        if row.valid:
            continue
        replay = environment.replay(by_id[row.id], row.answer)
        failure = Failure(
            id=row.id,
            cell=row.cell,
            sample=row.sample,
            outcome=row.outcome,
            answer=row.answer,
            states=replay.states,
            actions=replay.actions,
            rewards=replay.rewards,
            fault=row.fault,
        )
        lines.append(json.dumps(failure.model_dump(mode="json")) + "\n")
    write_atomic(path, "".join(lines))
