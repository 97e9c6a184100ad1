"""What the pages on training say can be typed: every command exists, and takes the options that it is given there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_COMMAND = re.compile(r"python -m ((?:graph|trainer)[\w.]*)((?: [^`#\n|]*)?)")
_OF_TRAINER = ("evaluate", "stage", "completions", "schema")


def written() -> dict[tuple[str, ...], set[str]]:
    """Options by command, as the pages have them; what follows `--` is another command's."""
    found: dict[tuple[str, ...], set[str]] = {}
    for page in ("training.md", "tracking.md"):
        for module, rest in _COMMAND.findall((DOCS / page).read_text(encoding="utf-8")):
            words = rest.partition(" -- ")[0].split()
            sub = words[:1] if module == "trainer" and words and words[0] in _OF_TRAINER else []
            options = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
            found.setdefault((module, *sub), set()).update(options)
    return found


def test_the_pages_name_the_commands_that_an_engineer_needs() -> None:
    commands = set(written())
    needed = {("graph.run",), ("graph.remote",), ("trainer", "stage"), ("trainer", "evaluate"), ("trainer.soak",)}
    assert needed | {("trainer.warm_start",), ("trainer.bench",), ("trainer.sizing",)} <= commands


@pytest.mark.loop
@pytest.mark.parametrize("command", sorted(written()), ids=" ".join)
def test_a_command_takes_what_the_pages_give_it(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command, "--help"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    missing = {option for option in written()[command] if not re.search(rf"{option}\b", done.stdout)}
    assert not missing, f"{' '.join(command)} --help knows no {sorted(missing)}"


def test_every_link_leads_somewhere() -> None:
    text = (DOCS / "training.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:docs|trainer)/[\w./-]+\.(?:md|yaml|py))`", text))
    assert named
    assert not {name for name in named if not (DOCS.parent / name).exists()}
