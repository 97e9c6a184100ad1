"""The command render: what it draws, and one line with exit code 2 where it cannot."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from envsim.__main__ import main
from envsim.api import EnvsimError
from envsim.commands import render
from envsim.documents import DocumentError
from envsim.lake.environment import Lake
from envsim.lake.film import film
from envsim.lake.instance import make_instance, write_instances
from envsim.lake.solver import analyse
from envsim.lake.svg import svg

ROWS = ["...", ".@.", "..."]
LAKE = Lake()


@pytest.fixture
def lakes(tmp_path: Path) -> Path:
    path = tmp_path / "lakes.jsonl"
    ends = ([(0, 0), (0, 2)], [(0, 2), (0, 0)]), ([(0, 0), (2, 2)], [(2, 0), (0, 2)])
    write_instances(path, [make_instance(ROWS, *one, analyse(ROWS, *one).certificate()) for one in ends])
    return path


def _run(*arguments: object) -> None:
    parser = argparse.ArgumentParser()
    render.add(parser.add_subparsers())
    options = parser.parse_args(["render", *map(str, arguments)])
    options.command(options)


def _second(lakes: Path) -> object:
    return LAKE.instance_model.model_validate_json(lakes.read_text().splitlines()[1])


def test_formats(lakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = _second(lakes)
    _run(lakes, "--index", 1, "--format", "svg")
    assert capsys.readouterr().out == svg(instance)  # type: ignore[arg-type]
    out = tmp_path / "plan.svg"
    _run(lakes, "--id", instance.id, "--plan", "--format", "film", "--out", out)  # type: ignore[attr-defined]
    best = LAKE.reference_answer(instance, "compact")  # type: ignore[arg-type]
    assert out.read_text(encoding="utf-8") == film(instance, LAKE.replay(instance, best))  # type: ignore[arg-type]
    assert str(out) in capsys.readouterr().out
    _run(lakes, "--plan")
    plain = capsys.readouterr().out
    assert "step 0\n" in plain
    assert plain.rstrip().endswith("steps")
    _run(lakes, "--colour")
    assert "\x1b[" in capsys.readouterr().out


def test_what_is_drawn_of_a_bare_layout_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bay.map").write_text("type octile\nheight 2\nwidth 5\nmap\n.....\n@.@@@\n")
    lines = "0\tbay.map\t5\t2\t0\t0\t4\t0\t4\n0\tbay.map\t5\t2\t4\t0\t0\t0\t4\n"
    (tmp_path / "bay.scen").write_text(f"version 1\n{lines}")
    _run(tmp_path / "bay.scen", "--plan")
    shown = capsys.readouterr().out
    assert "makespan: 7\n" in shown
    assert shown.endswith("optimal: 7 steps\n")
    _run(tmp_path / "bay.scen", "--plan", "--format", "film")
    assert ">optimal<" in capsys.readouterr().out
    _run(tmp_path / "bay.scen")
    assert "not certified" not in capsys.readouterr().out


def test_an_answer_is_shown_to_its_first_fault(lakes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = tmp_path / "answers.jsonl"
    one, two = (json.loads(line)["id"] for line in lakes.read_text().splitlines())
    rows = [{"id": two, "answer": "(0,0)(2,2)(1,0)(1,2)(1,1)(0,2)"}, {"id": two, "answer": "later"}]
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _run(lakes, "--index", 1, "--answers", answers)
    assert capsys.readouterr().out.endswith("hole: agent a at (1,1), t = 2\n")
    _run(lakes, "--index", 1, "--answers", answers, "--format", "film")
    assert "hole: agent a at (1,1), t = 2" in capsys.readouterr().out
    with pytest.raises(EnvsimError, match=f"no answer to instance {one}; it answers 2 others"):
        _run(lakes, "--answers", answers)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "svg", "--optimal"], "leave out --optimal"),
        (["--format", "svg", "--plan"], "leave out --plan"),
        (["--format", "svg", "--answers", "x"], "leave out --answers"),
        (["--format", "svg", "--colour"], "--colour goes with --format ansi, not with svg"),
        (["--index", "7"], "no instance of index 7; it has 2"),
        (["--index", "-1"], "no instance of index -1; it has 2"),
        (["--id", "x"], "no instance of id 'x'; it has 2: '3x3-2-"),
        (["--answers", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
        (["--out", "nowhere/lake.svg"], "nowhere is no directory"),
        (["--out", "."], "exists; remove it"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(lakes: Path, arguments: list[str], said: str) -> None:
    with pytest.raises((EnvsimError, DocumentError)) as caught:
        _run(lakes, *arguments)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_answers_and_instances_cannot_share_stdin() -> None:
    with pytest.raises(EnvsimError, match="both come from stdin"):
        _run("-", "--answers", "-")


def test_an_unsolvable_lake_has_no_plan_to_draw(tmp_path: Path) -> None:
    path = tmp_path / "lake.json"
    path.write_text(json.dumps({"rows": [".@."], "starts": [[0, 0]], "goals": [[0, 2]]}))
    with pytest.raises(EnvsimError, match="unsolvable"):
        _run(path, "--plan")


@pytest.mark.parametrize(
    ("size", "agents", "says"),
    [(150, 2, "the map has 22500 cells"), (12, 40, "40 agents"), (1000, 1, "the map has 1000000 cells")],
)
def test_a_plan_that_would_take_too_long_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int, agents: int, says: str
) -> None:
    cells = [[v // size, v % size] for v in range(agents)]
    row = {"rows": ["." * size] * size, "starts": cells, "goals": cells[::-1]}
    if agents == 1:
        row["goals"] = [[size - 1, size - 1]]
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(row))
    assert main(["render", str(path), "--plan"]) == 2
    printed = capsys.readouterr().err
    assert says in printed
    assert printed.count("\n") == 1
