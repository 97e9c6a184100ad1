"""``render``: an instance, or what becomes of a plan for it, as text, picture or film."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from envsim.api import EnvsimError, Replay
from envsim.commands import Commands, described
from envsim.commands.questions import certified
from envsim.commands.reading import SOURCE, add_agents, documents, instances
from envsim.commands.writing import refuse_existing
from envsim.lake.draw import draw_instance, draw_replay
from envsim.lake.environment import Lake
from envsim.lake.film import film
from envsim.lake.instance import LakeInstance
from envsim.lake.rows import validated
from envsim.lake.scoring import AnswerRow
from envsim.lake.svg import svg
from envsim.whole import write_whole

FORMATS = ("ansi", "svg", "film")

DESCRIPTION = """Draw one instance, or play a plan for it. Agents are a, b, c, ..., z, a2, b2, ...; A is the goal of
a, A2 that of a2, A1 the first goal of a where it has two; @ is a hole.

Formats: ansi is text for a terminal, step by step where there is a plan; svg is a picture of the instance; film is an
animated SVG of a plan, which stops at the first fault, rings and names it. SVGs fetch nothing and hold no script: open
them in a browser, or put them into any page or README with an <img>."""

EXAMPLE = """python -m envsim render anchor --index 3 --plan --colour
python -m envsim render anchor --index 3 --format svg --out lake.svg
python -m envsim render anchor --index 3 --plan --format film --out plan.svg
python -m envsim render validation --id ID --answers answers.jsonl --format film --out answer.svg"""


def add(commands: Commands) -> None:
    """Put the command together."""
    parser = described(commands, "render", DESCRIPTION, EXAMPLE, run)
    parser.add_argument("file", metavar="FILE", help=f"{SOURCE}, or a MovingAI .scen")
    add_agents(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--index", type=int, default=0, metavar="I", help="which instance, from 0 on (default: 0)")
    which.add_argument("--id", help="which instance, by its id")
    plan = parser.add_mutually_exclusive_group()
    plan.add_argument(
        "--plan", action="store_true", help="draw an optimal plan: that of the certificate, else a new one"
    )
    plan.add_argument(
        "--answers",
        metavar="FILE",
        help='draw the first answer to the instance in a JSONL file of {"id": ..., "answer": "..."}, or "-" for stdin',
    )
    parser.add_argument("--format", choices=FORMATS, default="ansi", help="what to draw (default: ansi)")
    parser.add_argument("--colour", action="store_true", help="with ansi: use the colours of the terminal")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write, not there yet (default: stdout)")


def run(options: argparse.Namespace) -> None:
    """Draw it."""
    _check(options)
    instance = _chosen(options)
    if options.format != "svg":
        instance = _certified(instance, needed=options.plan)
    text = _drawn(options, instance)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_whole(options.out, text.encode())
        print(f"{len(text.encode())} bytes in {options.out}")


def _check(options: argparse.Namespace) -> None:
    """Refuse what does not go together before anything is read."""
    planned = options.plan or options.answers is not None
    if options.format == "film" and not planned:
        raise EnvsimError("--format film has no plan to play; give --plan or --answers FILE")
    if options.format == "svg" and planned:
        given = "--plan" if options.plan else "--answers"
        raise EnvsimError(f"--format svg draws an instance alone, not its plan; leave out {given} or use --format film")
    if options.colour and options.format != "ansi":
        raise EnvsimError(f"--colour goes with --format ansi, not with {options.format}")
    if options.file == "-" and options.answers == "-":
        raise EnvsimError("answers and instances cannot both come from stdin; give one of them as a file")
    if options.out is not None:
        refuse_existing(options.out)


def _chosen(options: argparse.Namespace) -> LakeInstance:
    found = instances(options.file, options.agents)
    for index, instance in enumerate(found):
        if index == options.index if options.id is None else instance.id == options.id:
            return instance
    wanted = f"index {options.index}" if options.id is None else f"id {options.id!r}"
    raise EnvsimError(f"{options.file} has no instance of {wanted}; it has {len(found)}")


def _certified(instance: LakeInstance, *, needed: bool) -> LakeInstance:
    """What is drawn says what is proved of it. Raises EnvsimError if a plan is needed and none is within bounds."""
    if instance.certificate is not None:
        return instance
    try:
        return certified(instance, None)
    except EnvsimError:
        if needed:
            raise
        return instance


def _drawn(options: argparse.Namespace, instance: LakeInstance) -> str:
    if options.format == "svg":
        return svg(instance)
    replay = _replay(options, instance)
    if options.format == "film" and replay is not None:
        return film(instance, replay)
    parts = [draw_instance(instance, colour=options.colour)]
    parts += [draw_replay(instance, replay, colour=options.colour)] if replay is not None else []
    return "\n\n".join(parts) + "\n"


def _replay(options: argparse.Namespace, instance: LakeInstance) -> Replay | None:
    lake = Lake()
    if options.plan:
        known = instance if instance.certificate is not None else certified(instance, None)
        return lake.replay(instance, lake.reference_answer(known, "compact"))
    if options.answers is None:
        return None
    count = 0
    for where, data in documents(options.answers):
        row = validated(AnswerRow, data, where)
        if row.id == instance.id:
            return lake.replay(instance, row.answer)
        count += 1
    raise EnvsimError(f"{options.answers} has no answer to instance {instance.id}; it answers {count} others")
