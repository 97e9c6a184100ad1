"""Directories of roles for tests: what a person would write, no more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from agents.rolespec import PACKAGE

HISTORIAN: dict[str, Any] = {
    "name": "curriculum_historian",
    "description": "Says what the stages so far did to the score.",
    "prompt": "curriculum_historian.j2",
    "inputs": ["evidence"],
    "writes": "curriculum_history",
    "output": {
        "trend": {"type": "choice", "choices": ["rising", "flat", "falling"]},
        "advice": {"type": "choice", "choices": ["go on", "go back", "move on"]},
    },
    "place": {"before": ["config_designer"]},
    "on_failure": "skip",
}
HISTORIAN_PROMPT = """\
stages {{ evidence.history | length }}
{% for h in evidence.history -%}
{{ h.stage }} {{ "kept" if h.accepted else "rolled back" }} {{ h.anchor_after | percent }}
{% endfor %}
"""
READS_THE_NOTE = """
{%- if curriculum_history %}
history {{ curriculum_history.trend }} {{ curriculum_history.advice }}
{%- endif %}
"""
STYLES = ("compact", "full")


def write_role(folder: Path, file: str, text: str | None = None, **data: Any) -> None:
    """One role file and, if given, the one prompt file that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    if text is not None:
        (folder / "prompts").mkdir(exist_ok=True)
        (folder / "prompts" / data["prompt"]).write_text(text)


def with_historian(folder: Path, **changes: Any) -> Path:
    """The historian, and a designer that reads what it writes at the end of the shipped prompts."""
    write_role(folder, "curriculum_historian", HISTORIAN_PROMPT, **HISTORIAN | changes)
    shipped = yaml.safe_load((PACKAGE / "roles" / "config_designer.yaml").read_text())["inputs"]
    write_role(folder, "config_designer", inputs=[*shipped, "curriculum_history"])
    for style in STYLES:
        target = folder / "prompts" / style / "config_designer.user.j2"
        target.parent.mkdir(parents=True)
        shutil.copy(PACKAGE / "prompts" / style / "config_designer.user.j2", target)
        with target.open("a") as file:
            file.write(READS_THE_NOTE)
    return folder


def note_by_code(inputs: dict[str, Any]) -> dict[str, Any]:
    """A role of kind python."""
    n = len(inputs["evidence"]["history"])
    return {"trend": "flat" if n == 0 else "rising", "advice": "go on"}


def raises(inputs: dict[str, Any]) -> dict[str, Any]:
    """A role of kind python that fails."""
    raise RuntimeError(f"nothing to say of {sorted(inputs)}")


def talks(inputs: dict[str, Any]) -> dict[str, Any]:
    """A role of kind python that gives something else than it promised."""
    return {"trend": "sideways", "advice": "go on", "more": len(inputs)}
