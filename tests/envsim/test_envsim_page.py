"""docs/envsim.md: the tour runs as it stands in an empty directory, and what it shows is what is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from envsim_cases import DATA

from envsim.__main__ import COMMANDS, main
from envsim.lake.verifier import OUTCOMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "envsim.md").read_text(encoding="utf-8")
TOUR = PAGE.partition("## Five minutes")[2].partition("## What is what")[0]
BLOCK = re.compile(r"```bash\n(.*?)```\n(?:```json\n(.*?)```)?", re.DOTALL)


def _run(script: str, directory: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": path}
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, (script, done.stderr)
    assert done.stderr == "", script
    return done.stdout


def test_the_tour(tmp_path: Path) -> None:
    blocks = BLOCK.findall(TOUR)
    assert len(blocks) == TOUR.count("```bash") >= 6
    assert len([shown for _, shown in blocks if shown]) == TOUR.count("```json") == 2
    printed = []
    for script, shown in blocks:
        out = _run(script, tmp_path)
        printed.append(out)
        if shown:
            assert out == shown
    used = set(re.findall(r"python -m envsim (\w+)", TOUR))
    assert {"solve", "render", "verify", "generate", "export", "benchmark"} == used
    assert (tmp_path / "bay.svg").read_text().startswith("<svg")
    assert len((tmp_path / "mine-test.jsonl").read_text().splitlines()) == 60
    assert "3 agents, acc./opt." in printed[-1]
    assert "each alone" in printed[-1]


def test_the_page_names_what_there_is() -> None:
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        assert re.search(rf"^\| `{name}[ `]", PAGE, re.MULTILINE), name
    for outcome in OUTCOMES:
        assert f"`{outcome}`" in PAGE or outcome == "parse_error"


@pytest.mark.parametrize("command", ["solve", "verify"])
def test_both_commands_read_the_oracle_files(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = re.findall(rf"python -m envsim {command} tests/envsim/data/(\w+\.json)", PAGE)
    assert main([command, str(DATA / name)]) == 0
    rows = json.loads((DATA / name).read_text())
    assert len(capsys.readouterr().out.splitlines()) == len(rows.get("instances", rows.get("cases")))
