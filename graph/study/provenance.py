"""Which code and which plan a row comes from, and the rule for confirming seeds: a committed plan, run once."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graph.settings import Frozen, SettingsError
from graph.study.plan import Loaded
from trainer.files import write_atomic

ROOMS = ("graph", "agents", "tools", "trainer", "envsim")
SOURCES = (".py", ".yaml", ".j2", ".json")
LEFT_OUT = ("graph/study/", "trainer/assets/")
"""The study itself only looks at runs; the weights have a hash of their own in every row."""


class Confirmation(Frozen):
    """Beside the plan, from the first confirming run on: what it was made with."""

    plan: str
    code: str
    commit: str


def code_version() -> str:
    """sha256 over the sources of all rooms, which decide what a run computes; the first 16 digits."""
    digest = hashlib.sha256()
    for room in ROOMS:
        root = Path(str(files(room)))
        for path in sorted(root.rglob("*")):
            name = f"{room}/{path.relative_to(root).as_posix()}"
            if path.suffix in SOURCES and not name.startswith(LEFT_OUT):
                digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def confirm(loaded: Loaded, code: str) -> None:
    """Allow the confirming seeds of a plan, or refuse them.

    Raises
    ------
    SettingsError
        A file of the plan is not committed in git or was changed since, or confirming runs of the plan were made with
        another plan or other code.
    """
    commit = committed(loaded.files)
    place = loaded.path.with_suffix(".confirmed.json")
    now = Confirmation(plan=loaded.hash, code=code, commit=commit)
    if not place.exists():
        write_atomic(place, now.model_dump_json(indent=1) + "\n")
        return
    try:
        then = Confirmation.model_validate_json(place.read_bytes())
    except ValidationError as error:
        raise SettingsError(f"{place} is damaged: {error.errors()[0]['msg']}; restore it from git") from error
    for what, old, new in (("plan", then.plan, now.plan), ("code", then.code, now.code)):
        if old != new:
            raise SettingsError(
                f"the confirming runs of {loaded.path} were begun with {what} {old[:16]}, and this is {new[:16]}; they "
                "are made once: go back to that, or write a new plan with other confirming seeds"
            )


def committed(paths: Sequence[Path]) -> str:
    """The commit that holds these files as they are. Raises SettingsError naming one that it does not."""
    folder = paths[0].resolve().parent
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        raise SettingsError(
            f"{paths[0]} lies in no git repository with a commit; confirming seeds need a plan that is committed"
        )
    for path in paths:
        own = path.resolve()
        if _git(own.parent, "ls-files", "--error-unmatch", own.name) is None:
            raise SettingsError(f"{path} is not in git; commit the plan before its confirming seeds are run")
        if _git(own.parent, "diff", "--quiet", "HEAD", "--", own.name) is None:
            raise SettingsError(f"{path} differs from its commit; commit the plan before its confirming seeds are run")
    return commit


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails."""
    try:
        done: subprocess.CompletedProcess[Any] = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return str(done.stdout).strip() if done.returncode == 0 else None
