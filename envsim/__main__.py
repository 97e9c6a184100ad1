"""``python -m envsim``: schemas, sets, generation, drawing, solving, verification and benchmark of the lake.

Exit codes: 0 done, 2 bad input (one line on stderr says what, its value, what was expected and what to do).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from envsim.api import SPLITS, EnvsimError, Measurement, Verdict
from envsim.commands import bench
from envsim.documents import DocumentError, parse_json, read_yaml
from envsim.lake import sets
from envsim.lake.config import EnvConfig, nearest, parse_config
from envsim.lake.draw import draw_instance, draw_map
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, layout_from_json, make_instance, read_instances, write_instances
from envsim.lake.reference import reference_plan
from envsim.lake.solver import LIMIT, Limits, analyse
from envsim.lake.text import padded

SCHEMAS: dict[str, type[BaseModel]] = {
    "EnvConfig": EnvConfig,
    "LakeInstance": LakeInstance,
    "Measurement": Measurement,
    "Verdict": Verdict,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        command(options)
    except (EnvsimError, DocumentError, OSError) as error:
        print(f"envsim: {error}", file=sys.stderr)
        return 2
    return 0


def schema(options: argparse.Namespace) -> None:
    """Print JSON Schemas."""
    names = options.names or list(SCHEMAS)
    for name in names:
        if name not in SCHEMAS:
            raise EnvsimError(f"unknown schema {name!r}; {nearest(name, list(SCHEMAS))}")
    print(json.dumps({name: SCHEMAS[name].model_json_schema() for name in names}, indent=2))


def sets_command(options: argparse.Namespace) -> None:
    """Make and check frozen sets, or write their checksums."""
    if options.write_checksums:
        made = sets.write_checksums(_progress)
        names = list(made.sets)
    else:
        names = options.names or list(sets.STRATIFIED)
        for name in names:
            sets.frozen_set(name, _progress)
    for name in names:
        record = sets.sets_file().sets[name]
        print(f"{name:<11}{record.n:>6} instances, {record.distinct} up to symmetry, sha256 {record.sha256[:16]}")
    if not options.write_checksums:
        print(f"in {sets.cache_directory()}")


def generate(options: argparse.Namespace) -> None:
    """Generate instances of a configuration."""
    lake = Lake()
    config = lake.default_config() if options.config is None else parse_config(read_yaml(options.config))
    made = lake.generate(config, options.n, options.seed, split=options.split, progress=_progress)
    if options.out is not None:
        if options.out.exists():
            raise EnvsimError(f"{options.out} exists; remove it or choose another file")
        write_instances(options.out, made.instances)
    print(_table(made.measurement))


def show(options: argparse.Namespace) -> None:
    """Draw one instance, and its reference plan step by step."""
    instances = _instances(options.file)
    chosen = [
        instance
        for index, instance in enumerate(instances)
        if (index == options.index if options.id is None else instance.id == options.id)
    ]
    if not chosen:
        wanted = f"id {options.id!r}" if options.id else f"index {options.index}"
        raise EnvsimError(f"{options.file} has no instance of {wanted}; it has {len(instances)}")
    instance = chosen[0]
    print(draw_instance(instance))
    if options.plan:
        for t, cells in enumerate(zip(*padded(reference_plan(instance)), strict=True)):
            print(f"\nstep {t}\n{draw_map(instance.rows, cells, instance.goals)}")


def solve(options: argparse.Namespace) -> None:
    """Certify instances; prints them as JSONL."""
    if options.limit < 1:
        raise EnvsimError(f"--limit is {options.limit}, expected at least 1")
    limits = Limits(options.limit, options.limit)
    for instance in _instances(options.file):
        ends = (instance.rows, instance.starts, instance.goals)
        print(make_instance(*ends, analyse(*ends, limits).certificate()).model_dump_json())


def verify(options: argparse.Namespace) -> None:
    """Grade ``{"id", "answer"}`` rows against instances; prints a verdict a row, and the counts on stderr."""
    lake = Lake()
    by_id = {instance.id: instance for instance in _instances(options.instances)}
    counts: Counter[str] = Counter()
    for number, row in _rows(options.answers):
        if set(row) != {"id", "answer"} or not isinstance(row["answer"], str):
            raise EnvsimError(f'{options.answers}:{number}: has keys {sorted(row)}; expected {{"id", "answer"}}, text')
        if not isinstance(row["id"], str) or row["id"] not in by_id:
            raise EnvsimError(f"{options.answers}:{number}: id {row['id']!r} is not in {options.instances}")
        verdict = lake.score(by_id[row["id"]], row["answer"])
        counts[verdict.outcome] += 1
        print(json.dumps({"id": row["id"]} | verdict.model_dump()))
    if not counts:
        raise EnvsimError(f'{options.answers} is empty; expected a row {{"id", "answer"}} a line')
    print(", ".join(f"{outcome} {counts[outcome]}" for outcome in lake.outcomes if counts[outcome]), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envsim", description="The lake: generate, solve, verify, draw.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.set_defaults(command=run)
        return command

    command = add("schema", schema)
    command.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCHEMAS))
    command = add("sets", sets_command)
    command.add_argument("names", nargs="*", metavar="SET", help=", ".join(sets.NAMES))
    command.add_argument("--write-checksums", action="store_true", help="make all sets and write sets.json")
    command = add("generate", generate)
    command.add_argument("--config", type=Path, help="EnvConfig as JSON or YAML (default: the default configuration)")
    command.add_argument("--n", type=int, default=100)
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--split", choices=SPLITS, default="training")
    command.add_argument("--out", type=Path, help="JSONL file to write")
    command = add("show", show)
    command.add_argument("file", help="JSONL or JSON file of instances, or the name of a set")
    command.add_argument("--index", type=int, default=0)
    command.add_argument("--id")
    command.add_argument("--plan", action="store_true", help="draw the reference plan too")
    command = add("solve", solve)
    command.add_argument("file", help="JSONL or JSON with rows, starts, goals, or the name of a set")
    command.add_argument("--limit", type=int, default=LIMIT, help="most states to expand for one question")
    command = add("verify", verify)
    command.add_argument("instances", help="JSONL file of instances, or the name of a set")
    command.add_argument("answers", type=Path, help='JSONL file of {"id", "answer"}')
    bench.add(commands)
    return parser


def _instances(source: str) -> list[LakeInstance]:
    """The instances of a set or file. A row may also be a bare layout: rows, starts, goals."""
    if source in sets.NAMES:
        return sets.frozen_set(source)
    path = Path(source)
    rows = list(_rows(path))
    if not rows:
        raise EnvsimError(f"{path} is empty; expected an instance a line")
    if all("hash" in row for _, row in rows):
        return list(read_instances(path))
    return [layout_from_json(json.dumps(row), f"{path}:{number}") for number, row in rows]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects with their line: one for the whole file, or one a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EnvsimError(f"{path} is no UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}") from error
    try:
        whole = parse_json(text, str(path))
    except DocumentError:
        whole = None
    if isinstance(whole, dict):
        yield 1, whole
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            row = parse_json(line, f"{path}:{number}")
            if not isinstance(row, dict):
                raise EnvsimError(f"{path}:{number}: is {line[:40]!r}; expected a JSON object a line")
            yield number, row


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _table(measured: Measurement) -> str:
    names = list(next(iter(measured.quantities.values())))
    lines = [f"{'':<8}{'share':>8}{'draws':>8}{'solvable':>10}" + "".join(f"{name:>19}" for name in names)]
    for cell, values in measured.quantities.items():
        figures = "".join(f"{values[name]:>19.3f}" for name in names)
        lines.append(
            f"{cell:<8}{measured.share[cell]:>8.3f}{measured.draws[cell]:>8}{measured.solvable_share[cell]:>10.3f}"
            + figures
        )
    lines.append(f"difficulty {measured.difficulty:.3f}, coordination {measured.coordination:.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
