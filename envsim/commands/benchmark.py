"""``benchmark``: anybody's model on a set: prompts out, answers in, the paper's table back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from envsim.api import EnvsimError, Style
from envsim.commands import Commands, described
from envsim.commands.questions import certified
from envsim.commands.reading import SOURCE, add_agents, documents, instances
from envsim.commands.writing import refuse_existing
from envsim.lake.rows import validated
from envsim.lake.scoring import AnswerRow, as_text, grade, prompts, score
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
    task.add_argument("--prompts", type=Path, metavar="OUT", help="JSONL file of prompts to write")
    task.add_argument(
        "--baseline",
        type=Path,
        metavar="OUT",
        help="JSONL file of answers to write that need no model: every agent on its own shortest path",
    )
    parser.add_argument(
        "--set", default="benchmark", metavar="SET", help=f"{SOURCE}, or a MovingAI .scen (default: benchmark)"
    )
    add_agents(parser)
    parser.add_argument(
        "--style", choices=get_args(Style), default="full", help="how prompts are written (default: full)"
    )
    parser.add_argument("--partial", action="store_true", help="score only instances that have an answer")
    parser.add_argument("--name", help="of your row in the table (default: the name of the file)")
    parser.add_argument("--json", action="store_true", help="print the tables as one JSON object")
    parser.add_argument("--verdicts", type=Path, metavar="OUT", help="also write a verdict for each answer, as JSONL")


def run(options: argparse.Namespace) -> None:
    """Write prompts or a baseline, or print the tables."""
    for out in (options.prompts, options.baseline, options.verdicts):
        if out is not None:
            refuse_existing(out)
    if options.score is None and options.verdicts is not None:
        raise EnvsimError("--verdicts goes with --score")
    if options.score == "-" and options.set == "-":
        raise EnvsimError("answers and instances cannot both come from stdin; give one of them as a file")
    # Answers first: making a set can take a minute, and a mistake in the answers should not.
    answers = [] if options.score is None else list(_answers(options.score))
    found = instances(options.set, options.agents)
    if options.prompts is not None:
        _write(options.prompts, prompts(found, options.style))
        print(f"{len(found)} prompts in {options.prompts}")
    elif options.baseline is not None:
        lake = get("lake")
        alone = (lake.null_answers(instance, options.style, 0)["each_alone"] for instance in found)
        _write(options.baseline, (AnswerRow(id=i.id, answer=a) for i, a in zip(found, alone, strict=True)))
        print(f"{len(found)} answers in {options.baseline}")
    else:
        found = [i if i.certificate is not None else certified(i, None) for i in found]
        verdicts = grade(found, answers)
        if options.verdicts is not None:
            lines = (f'{{"id":"{id_}",{verdict.model_dump_json()[1:]}\n' for id_, verdict in verdicts.items())
            write_whole(options.verdicts, "".join(lines).encode())
        name = options.name or ("stdin" if options.score == "-" else Path(options.score).stem)
        result = score(options.set, found, verdicts, name, partial=options.partial)
        print(json.dumps(result.model_dump(mode="json"), indent=1) if options.json else as_text(result))


def _answers(source: str) -> Iterator[tuple[str, AnswerRow]]:
    return ((where, validated(AnswerRow, data, where)) for where, data in documents(source))


def _write(path: Path, rows: Iterable[BaseModel]) -> None:
    write_whole(path, "".join(f"{row.model_dump_json()}\n" for row in rows).encode())
