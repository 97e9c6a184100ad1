"""docs/envsim.md: the tour runs as it stands in an empty directory, and what it shows is what is printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from envsim_cases import DATA

from envsim.__main__ import COMMANDS, main
from envsim.commands.lines import Layout
from envsim.commands.questions import MAX_AGENTS, MAX_CELLS, MAX_COLLIDING, most_cells, solution
from envsim.lake.config import MIXTURES, EnvConfig, SizeConfig
from envsim.lake.environment import Lake
from envsim.lake.solver import LIMIT, PAIR_LIMIT
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
        assert f"`{outcome}`" in PAGE
    for column in Lake().generate(EnvConfig(), 8, 0).measurement.quantities["3x3"]:
        assert f"`{column}`" in PAGE


def test_the_limits_on_the_page_are_those_of_the_commands() -> None:
    said = " ".join(PAGE.split())
    bounds = {agents: f"{most_cells(agents):,}" for agents in (2, 3, 4, 5, 8)}
    assert f"4,000,000 for two agents on maps of up to {bounds[2]} cells (47x47)" in said
    assert PAIR_LIMIT == 4_000_000
    assert f"Its default is {LIMIT:,}" in said
    assert f"three on more than {bounds[3]} cells, four {bounds[4]}, five {bounds[5]}, eight {bounds[8]})" in said
    assert (MAX_CELLS, MAX_AGENTS, MAX_COLLIDING) == (128 * 128, 200, 8)
    solver = " ".join((ROOT / "docs" / "solver.md").read_text(encoding="utf-8").split())
    assert f"{bounds[2]} cells for two agents that collide, {bounds[3]} for three, {bounds[4]} for four" in solver
    for agents, side in ((2, 48), (2, 47)):
        layout = Layout(rows=["." * side] * side, starts=[(0, 0), (0, 2)], goals=[(0, 2), (0, 0)])
        found = solution("x", layout, 1)
        assert ("plain joint search" in (found.reason or "")) == (side**2 > most_cells(agents))


def test_the_configuration_on_the_page_has_every_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It generates, and nothing that a configuration can say is missing."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    data = yaml.safe_load(block)
    assert set(data) == set(EnvConfig.model_fields)
    assert all(set(entry) == set(SizeConfig.model_fields) for entry in data["sizes"].values())
    for name, parts in MIXTURES.items():
        (line,) = re.findall(rf"^{name}: .*$", block, re.MULTILINE)
        assert name in ("agents", "goals") or all(str(part) in line for part in parts)
    (tmp_path / "config.yaml").write_text(block)
    assert main(["generate", "--config", str(tmp_path / "config.yaml"), "--n", "8"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:3]] == ["5x5", "6x6"]


def test_links_lead_somewhere() -> None:
    assert "`docs/" not in PAGE
    targets = re.findall(r"\]\(([\w#.]+)\)", PAGE)
    assert targets
    for target in targets:
        file, _, part = target.partition("#")
        assert (ROOT / "docs" / file).exists()
        assert not part or re.search(rf"^##+ {part}$", PAGE, re.MULTILINE | re.IGNORECASE)


@pytest.mark.parametrize("command", ["solve", "verify"])
def test_both_commands_read_the_oracle_files(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    (name,) = re.findall(rf"python -m envsim {command} tests/envsim/data/(\w+\.json)", PAGE)
    assert main([command, str(DATA / name)]) == 0
    rows = json.loads((DATA / name).read_text())
    assert len(capsys.readouterr().out.splitlines()) == len(rows.get("instances", rows.get("cases")))
