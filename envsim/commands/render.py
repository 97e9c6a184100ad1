"""``render``: an instance, or what becomes of a plan for it, as text, picture or film."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from envsim.api import EnvsimError, Replay
from envsim.commands import Commands, described
from envsim.commands.plans import own, planned, plans
from envsim.commands.questions import certified
from envsim.commands.reading import SOURCE, Found, add_agents, each_instance, layout_of, one_of
from envsim.commands.writing import STDOUT, out_or_stdout, refuse_existing
from envsim.lake import text
from envsim.lake.draw import draw_instance, draw_replay
from envsim.lake.environment import Lake
from envsim.lake.film import film
from envsim.lake.instance import LakeInstance
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
    parser.add_argument("file", metavar="FILE", help=SOURCE)
    add_agents(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--index", type=int, default=0, metavar="I", help="which instance, from 0 on (default: 0)")
    which.add_argument("--id", help="which instance, by its id or name")
    plan = parser.add_mutually_exclusive_group()
    plan.add_argument(
        "--plan",
        action="store_true",
        help="draw the plan that the row holds ('plan', 'paths'), else an optimal one: that of the certificate, or a "
        "new one (default with film)",
    )
    plan.add_argument("--optimal", action="store_true", help="draw an optimal plan, whatever the row holds")
    plan.add_argument(
        "--answers",
        metavar="FILE",
        help='draw the first answer to the instance in a file of {"id": ..., "answer": "..."} a line, or of plans as '
        "verify --plan reads them ('-': stdin); one without id or name is taken for the instance",
    )
    parser.add_argument("--format", choices=FORMATS, default="ansi", help="what to draw (default: ansi)")
    parser.add_argument("--colour", action="store_true", help="with ansi: use the colours of the terminal")
    parser.add_argument(
        "--out", type=out_or_stdout, metavar="FILE", help="file to write, not there yet (default, and '-': stdout)"
    )


def run(options: argparse.Namespace) -> None:
    """Draw it."""
    _check(options)
    found = _chosen(options)
    if options.format == "film" and options.answers is None and not options.optimal:
        options.plan = True
    if options.plan and own(found.row or {}) is None:
        options.optimal = True
    if options.format != "svg":
        found = found._replace(instance=_certified(found.instance, needed=options.optimal))
    drawn = _drawn(options, found)
    if options.out in (None, STDOUT):
        sys.stdout.write(drawn)
    else:
        write_whole(options.out, drawn.encode())
        print(f"{len(drawn.encode())} bytes in {options.out}")


def _check(options: argparse.Namespace) -> None:
    """Refuse what does not go together before anything is read."""
    given = next((f"--{name}" for name in ("plan", "optimal", "answers") if getattr(options, name)), None)
    if options.format == "svg" and given is not None:
        raise EnvsimError(f"--format svg draws an instance alone, not its plan; leave out {given} or use --format film")
    if options.colour and options.format != "ansi":
        raise EnvsimError(f"--colour goes with --format ansi, not with {options.format}")
    if options.file == "-" and options.answers == "-":
        raise EnvsimError("answers and instances cannot both come from stdin; give one of them as a file")
    if options.out not in (None, STDOUT):
        refuse_existing(options.out)


def _chosen(options: argparse.Namespace) -> Found:
    found = list(each_instance(options.file, options.agents))
    for index, one in enumerate(found):
        if index == options.index if options.id is None else options.id in (one.instance.label(), one.instance.id):
            return one
    wanted = f"index {options.index}" if options.id is None else f"id {options.id!r}"
    names = [one.instance.label() for one in found]
    raise EnvsimError(f"{options.file} has no instance of {wanted}; it has {len(found)}: {one_of(names)}")


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


def _drawn(options: argparse.Namespace, found: Found) -> str:
    instance = found.instance
    if options.format == "svg":
        return svg(instance)
    replay = _replay(options, found)
    if options.format == "film" and replay is not None:
        return film(instance, replay)
    parts = [draw_instance(instance, colour=options.colour)]
    parts += [draw_replay(instance, replay, colour=options.colour)] if replay is not None else []
    return "\n\n".join(parts) + "\n"


def _replay(options: argparse.Namespace, found: Found) -> Replay | None:
    lake, instance = Lake(), found.instance
    if options.optimal:
        known = instance if instance.certificate is not None else certified(instance, None)
        return lake.replay(instance, lake.reference_answer(known, "compact"))
    if options.plan:
        return lake.replay(instance, _answer(instance, own(found.row or {}), found.where))
    return None if options.answers is None else lake.replay(instance, _answered(options.answers, instance))


def _answered(source: str, instance: LakeInstance) -> str:
    """The first answer to an instance in a file of answers or plans."""
    count = 0
    for plan in plans(source, answers=True):
        if plan.name in (None, instance.label(), instance.id):
            return _answer(instance, plan.paths, plan.where)
        count += 1
    raise EnvsimError(f"{source} has no answer to instance {instance.label()}; it answers {count} others")


def _answer(instance: LakeInstance, paths: Any, where: str) -> str:
    """A plan as the text of an answer. Raises EnvsimError if it is none."""
    if isinstance(paths, AnswerRow):
        return paths.answer
    if paths is None:
        raise EnvsimError(f"{where}: has no plan for instance {instance.label()}: the solver found none")
    return text.render(planned(layout_of(instance), paths, where).plan, "full")
