"""Make the gallery from ``pictures.yaml``: its page, its pictures, and the configurations and answers behind them.

``python docs/gallery/make.py`` writes them in place; ``--out DIR`` writes ``DIR/gallery.md`` and ``DIR/gallery/``
instead. Every picture is made by the commands that the page prints beside it. Same sources, same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from envsim.__main__ import main
from envsim.lake.config import SIZES
from envsim.lake.environment import Lake
from envsim.lake.instance import read_instances

HERE = Path(__file__).resolve().parent
PAGE = Path("gallery.md")
WIDTH = 320
ANSWERS_TRIED = 2000
CARELESS = 0.7


class Lakes(BaseModel):
    """Square lakes of one size. ``knobs`` are further fields of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int
    hole_ratio: float
    wait_ratio: float = 0.0
    knobs: dict[str, Any] = {}

    def as_yaml(self) -> str:
        """The whole configuration, as ``python -m envsim generate`` reads it."""
        lines = [yaml.safe_dump(self.knobs, sort_keys=False)] if self.knobs else []
        lines.append("sizes:\n")
        for size in SIZES:
            share = int(size == self.size)
            lines.append(
                f"  {size}: {{data_ratio: {share}, hole_ratio: {self.hole_ratio}, wait_ratio: {self.wait_ratio}}}\n"
            )
        return "".join(lines)


class Picture(BaseModel):
    """One picture: an instance of a configuration alone, or with a plan.

    ``shows`` is ``instance``, ``plan`` (optimal), or the outcome of the answer to be found: answers are those of
    demonstrators that overlook holes or each other now and then, tried by seed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    text: str
    lakes: str
    seed: int
    of: int = 1
    index: int = 0
    shows: str = "instance"


class Section(BaseModel):
    """Pictures under one heading."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    text: str
    pictures: list[Picture]


class Gallery(BaseModel):
    """What ``pictures.yaml`` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    introduction: str
    lakes: dict[str, Lakes]
    sections: list[Section]


def make(out: Path) -> list[Path]:
    """Write ``gallery.md`` and ``gallery/`` into a directory, and return the files."""
    gallery = Gallery.model_validate(yaml.safe_load((HERE / "pictures.yaml").read_text(encoding="utf-8")))
    made = {Path(name): text for name, text in _configurations(gallery).items()}
    blocks = ["# Gallery", gallery.introduction.strip()]
    for section in gallery.sections:
        blocks += [f"## {section.title}", section.text.strip()]
        for picture in section.pictures:
            commands, files = _draw(picture, made)
            made |= files
            blocks += _block(picture, commands)
    made[PAGE] = "\n\n".join(blocks) + "\n"
    for path, text in made.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_text(text, encoding="utf-8")
    return [out / path for path in made]


def _configurations(gallery: Gallery) -> dict[str, str]:
    return {f"gallery/configs/{name}.yaml": lakes.as_yaml() for name, lakes in gallery.lakes.items()}


def _draw(picture: Picture, made: Mapping[Path, str]) -> tuple[list[str], dict[Path, str]]:
    """Run the commands of a picture as a reader would, in a directory with the files made so far."""
    lakes, drawn = f"{picture.name}.jsonl", f"{picture.name}.svg"
    which = f" --index {picture.index}" if picture.index else ""
    generate = (
        f"python -m envsim generate --config docs/gallery/configs/{picture.lakes}.yaml "
        f"--n {picture.of} --seed {picture.seed} --out {lakes}"
    )
    new: dict[Path, str] = {}
    with _workshop(made):
        _run(generate)
        if picture.shows == "instance":
            shown = "--format svg"
        elif picture.shows == "plan":
            shown = "--plan --format film"
        else:
            answers = Path("gallery") / "answers" / f"{picture.name}.jsonl"
            new[answers] = _answer(picture, Path(lakes))
            _put(new)
            shown = f"--answers docs/{answers} --format film"
        render = f"python -m envsim render {lakes}{which} {shown} --out {drawn}"
        _run(render)
        new[Path("gallery") / drawn] = Path(drawn).read_text(encoding="utf-8")
    return [generate, render], new


@contextlib.contextmanager
def _workshop(made: Mapping[Path, str]) -> Iterator[None]:
    """Work in a fresh directory where the files lie as in the repository."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        _put(made)
        yield


def _put(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        (Path("docs") / path).parent.mkdir(parents=True, exist_ok=True)
        (Path("docs") / path).write_text(text, encoding="utf-8")


def _run(command: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(shlex.split(command.removeprefix("python -m envsim ")))
    if code:
        raise SystemExit(f"exit code {code}: {command}")


def _answer(picture: Picture, path: Path) -> str:
    """A row with the first answer of a careless demonstrator that ends as the picture wants."""
    lake = Lake()
    instance = next(islice(read_instances(path), picture.index, None))
    for seed in islice(count(), ANSWERS_TRIED):
        answer = lake.demonstration(instance, "compact", seed, CARELESS)
        if lake.score(instance, answer).outcome == picture.shows:
            return json.dumps({"id": instance.id, "answer": answer}) + "\n"
    raise SystemExit(
        f"{picture.name}: no careless answer to {instance.id} ends as {picture.shows!r}; take another seed"
    )


def _block(picture: Picture, commands: list[str]) -> list[str]:
    return [
        f"### {picture.title}",
        f'<img src="gallery/{picture.name}.svg" width="{WIDTH}" alt="{picture.title}">',
        picture.text.strip(),
        "```bash\n" + "\n".join(commands) + "\n```",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE.parent, metavar="DIR", help="where to write (default: docs)")
    files = make(parser.parse_args().out.resolve())
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files):,} bytes")
