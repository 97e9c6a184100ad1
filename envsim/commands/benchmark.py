"""``benchmark``: anybody's model on a set: prompts out, answers in, the paper's table back."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from envsim.api import EnvsimError, Style
from envsim.commands import Commands, described
from envsim.commands.questions import certified
from envsim.commands.reading import SOURCE, add_agents, documents, instances
from envsim.commands.writing import STDOUT, out_or_stdout, out_path, refuse_existing
from envsim.lake.instance import LakeInstance
from envsim.lake.rows import shown, validated
from envsim.lake.scoring import AnswerRow, as_text, certified_optimum, grade, prompts, score
from envsim.registry import get
from envsim.whole import write_whole

DESCRIPTION = """Pose a set to any model, and grade what it answered. First write the prompts: a line
{"id": ..., "messages": [...]} an instance. Have the model answer them, and write its text, whole and as it is, a line
{"id": ..., "answer": "..."} each. Then score that file: the table has acc. (valid plans, %) and opt. (valid plans of
optimal makespan, %) by map size and over all (Sum), a table for each number of agents; on the set benchmark with the
rows of "From Trainee to Trainer" (arXiv 2606.17682) beside yours. The style compact lists cells and wants cells, for
small models; full has a map, rules in words, and wants JSON."""

EXAMPLE = """python -m envsim benchmark --prompts prompts.jsonl --style full
python -m envsim benchmark --score answers.jsonl
python -m envsim benchmark --score answers.jsonl --set validation --partial --json"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "benchmark", DESCRIPTION, EXAMPLE, run)
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--score", metavar="FILE", help="answers to grade: JSONL, or '-' for stdin")
    task.add_argument(
        "--prompts",
        type=out_or_stdout,
        metavar="OUT",
        help="JSONL file of prompts to write, not there yet; '-' for stdout",
    )
    task.add_argument(
        "--baseline",
        type=out_or_stdout,
        metavar="OUT",
        help="JSONL file of answers to write that need no model, every agent on its own shortest path; not there yet; "
        "'-' for stdout",
    )
    parser.add_argument("--set", default="benchmark", metavar="SET", help=f"{SOURCE} (default: benchmark)")
    add_agents(parser)
    parser.add_argument(
        "--style", choices=get_args(Style), default="full", help="how prompts are written (default: full)"
    )
    parser.add_argument("--partial", action="store_true", help="score only instances that have an answer")
    parser.add_argument("--name", help="of your row in the table (default: the name of the file)")
    parser.add_argument("--json", action="store_true", help="print the tables as one JSON object")
    parser.add_argument(
        "--verdicts",
        type=out_path,
        metavar="OUT",
        help="also write a verdict for each answer, as JSONL; not there yet. A line is an id and a Verdict ('schema "
        "Verdict'): its outcome is what verify calls verdict, its cost the makespan",
    )


def run(options: argparse.Namespace) -> None:
    """Write prompts or a baseline, or print the tables."""
    for out in (options.prompts, options.baseline, options.verdicts):
        if out not in (None, STDOUT):
            refuse_existing(out)
    if options.score is None and options.verdicts is not None:
        raise EnvsimError("--verdicts goes with --score")
    if options.score == "-" and options.set == "-":
        raise EnvsimError("answers and instances cannot both come from stdin; give one of them as a file")
    # Answers first: making a set can take a minute, and a mistake in the answers should not.
    answers = [] if options.score is None else list(_answers(options.score))
    found = [_gradable(instance) for instance in instances(options.set, options.agents)]
    if options.prompts is not None:
        _write(options.prompts, prompts(found, options.style), f"{len(found)} prompts")
    elif options.baseline is not None:
        lake = get("lake")
        alone = (lake.null_answers(instance, options.style, 0)["each_alone"] for instance in found)
        answered = (AnswerRow(id=i.label(), answer=a) for i, a in zip(found, alone, strict=True))
        _write(options.baseline, answered, f"{len(found)} answers")
    else:
        verdicts = grade(found, answers)
        if options.verdicts is not None:
            lines = (f'{{"id":{json.dumps(id_)},{one.model_dump_json()[1:]}\n' for id_, one in verdicts.items())
            write_whole(options.verdicts, "".join(lines).encode())
        name = options.name or ("stdin" if options.score == "-" else Path(options.score).stem)
        result = score(options.set, found, verdicts, name, partial=options.partial)
        print(json.dumps(result.model_dump(mode="json"), indent=1) if options.json else as_text(result))


def _answers(source: str) -> Iterator[tuple[str, AnswerRow]]:
    return ((where, validated(AnswerRow, data, where)) for where, data in documents(source))


def _gradable(instance: LakeInstance) -> LakeInstance:
    """With a certified optimum. Raises EnvsimError if there is none: better before a model was asked than after it."""
    try:
        found = instance if instance.certificate is not None else certified(instance, None)
    except EnvsimError as error:
        raise EnvsimError(f"instance {shown(instance.label())}: {error}; leave it out of the set") from error
    certified_optimum(found)
    return found


def _write(path: Path, rows: Iterable[BaseModel], what: str) -> None:
    text = "".join(f"{row.model_dump_json()}\n" for row in rows)
    if path == STDOUT:
        sys.stdout.write(text)
        return
    write_whole(path, text.encode())
    print(f"{what} in {path}")
