"""Ask a person who sits at the terminal; where nobody does, a run that waits ends with exit code 3 instead."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from graph.approval import gates_let_through, read_proposal
from graph.rundir import RunDir, dump
from graph.settings import SettingsError

EDITOR = "nano"
"""If neither VISUAL nor EDITOR names one."""
ASKS = "train on it? [y]es, [n]o, [e]dit, [l]ater: "
ASKS_FAILED = "it failed a gate, which no word lifts. [n]o, [e]dit, [l]ater: "


def attended() -> bool:
    """Whether questions can be asked: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_person(question: dict[str, Any], run: RunDir) -> bool | dict[str, Any] | None:
    """A person's word; None leaves the question open (answered later, by Ctrl-C or at the end of the input)."""
    print(f"\nstage {question['stage']:03d}, proposal by {question['by']}: {run.path(question['file'])}")
    for change in question.get("changes", ()):
        print(f"  {change}")
    if idle := question.get("no_effect"):
        print(f"  without effect (a knob at its bound, or shares of a whole moved alike): {', '.join(idle)}")
    print(f"  gates: {question['gates']}")
    if question["critic"] is not None:
        print(f"  critic: {question['critic']}")
    passed = gates_let_through(question)
    if not passed:
        print(f"  answer: {question['answer']}")
    while True:
        try:
            said = input(ASKS if passed else ASKS_FAILED).strip().lower()
        except (EOFError, KeyboardInterrupt):
            print()
            return None
        if said in ("l", "later"):
            return None
        if said in ("n", "no") or (passed and said in ("y", "yes")):
            return said.startswith("y")
        if said in ("e", "edit"):
            try:
                return edited(question["proposal"])
            except SettingsError as error:
                print(f"error: {error}")


def edited(proposal: dict[str, Any]) -> dict[str, Any]:
    """The proposal as it is when the person's editor was closed. Raises SettingsError if it is none."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proposal.json"
        file.write_text(dump(proposal), encoding="utf-8")
        try:
            subprocess.run([*shlex.split(command), str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SettingsError(f"the editor {command!r} failed: {error}; name another in EDITOR") from error
        return read_proposal(file)
