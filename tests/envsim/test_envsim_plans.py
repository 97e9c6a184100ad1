"""Plans beside their layouts, rows found by their own names, and what cannot be graded: the command line."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from envsim_cases import DATA

from envsim.__main__ import main
from envsim.formats.movingai import write_scenario
from envsim.lake.environment import Lake
from envsim.lake.film import film
from envsim.lake.instance import make_instance

BAY: dict[str, Any] = {"rows": [".....", "@.@@@"], "starts": [[0, 0], [0, 4]], "goals": [[0, 4], [0, 0]]}
MEET = [[[0, 0], [0, 1], [0, 2], [0, 3], [0, 4]], [[0, 4], [0, 3], [0, 2], [0, 1], [0, 0]]]
BEST = ["SRDURRR", "LLLLSSS"]
WALL: dict[str, Any] = {"rows": ["...."], "starts": [[0, 0], [0, 3]], "goals": [[0, 3], [0, 0]]}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "bay.scen"
    write_scenario(make_instance(BAY["rows"], [(0, 0), (0, 4)], [(0, 4), (0, 0)]), path)
    return path


def _out(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def _refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("envsim: ")
    assert said.count("\n") == 1
    return said


def _judged(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in _out(capsys, "verify", *arguments).splitlines()]
    return [(row["name"], row["verdict"]) for row in rows]


def _stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def _jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("plan", "verdict"),
    [
        (MEET, "vertex_conflict"),
        ({"plan": MEET}, "vertex_conflict"),
        (BEST, "optimal"),
        ({"paths": BEST}, "optimal"),
        ([BEST[0], MEET[1]], "optimal"),
        ([{"name": "bay.scen", "plan": BEST}], "optimal"),
        (["L", ""], "out_of_bounds"),
        ([MEET[0]], "wrong_agent_count"),
        ([], "wrong_agent_count"),
        ({"name": "bay.scen", "status": "limit", "paths": None}, "no_plan"),
    ],
)
def test_a_plan_beside_a_scenario(
    scenario: Path, tmp_path: Path, plan: object, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan, indent=1) if plan else json.dumps({"plan": plan}))
    assert _judged(capsys, scenario, "--plan", tmp_path / "plan.json") == [("bay.scen", verdict)]


@pytest.mark.parametrize(
    ("plans", "says"),
    [
        ([], "plans is empty"),
        ([BEST, BEST], "plans:2: is a plan more than the 1 layouts"),
        (
            [{"name": "other", "plan": BEST}],
            "plans:1: is the plan of 'other', but the layout in its place is 'bay.scen'",
        ),
        ([{"id": "x", "answer": "(0,0)"}], "plans:1: is the answer of a model; 'benchmark --score' grades it"),
        ([{"rows": 1}], "plans:1: has no plan; expected a list of paths"),
        ([["RX", ""]], "'X' is no move; expected letters of LDRUS"),
        ([["R", "L", "S"]], "the plan has moves for agent 2, but there are 2 starts"),
        ([[[[0, 0], [0]], []]], "plans:1: plan.0.1.1: expected a cell [row, column]"),
        ([["R", 3]], "plan.1: Input should be a valid list (got 3)"),
    ],
)
def test_plans_that_fit_no_layout(
    scenario: Path, tmp_path: Path, plans: list[object], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _jsonl(tmp_path / "plans", *plans)
    assert says in _refused(capsys, "verify", scenario, "--plan", path)


def test_fewer_plans_than_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layouts, plans = _jsonl(tmp_path / "layouts", BAY, BAY), _jsonl(tmp_path / "plans", BEST)
    assert main(["verify", str(layouts), "--plan", str(plans)]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verdict"] == "optimal"
    assert f"{layouts}:2: has no plan in {plans}, which holds 1" in printed.err
    assert "'-' is given twice" in _refused(capsys, "verify", "-", "--plan", "-")


def test_what_solve_prints_can_be_verified(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a scenario, of rows with and without names, of layouts without a plan; plain, and with certificates."""
    layouts = _jsonl(tmp_path / "in.jsonl", BAY | {"name": "a"}, WALL, BAY)
    where = f"{layouts}:3"
    _stdin(monkeypatch, _out(capsys, "solve", layouts, scenario))
    judged = _judged(capsys, layouts, scenario, "--plan", "-")
    assert judged == [("a", "optimal"), (f"{layouts}:2", "no_plan"), (where, "optimal"), ("bay.scen", "optimal")]
    certified = _out(capsys, "solve", "--certified", layouts, scenario)
    _stdin(monkeypatch, certified)
    assert [verdict for _, verdict in _judged(capsys, "-")] == ["optimal", "no_plan", "optimal", "optimal"]
    _stdin(monkeypatch, certified)
    assert [name for name, _ in _judged(capsys, "-")][::3] == ["a", "bay.scen"]
    _stdin(monkeypatch, _out(capsys, "solve", scenario))
    assert "solve FILE | verify FILE --plan -" in _refused(capsys, "verify", "-")


def test_certificates_that_stay_open_do_not_stop_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = 7
    crowd = [[r, c] for r in range(side) for c in range(side)]
    hard = {"name": "hard", "rows": ["." * side] * side, "starts": crowd, "goals": crowd[::-1]}
    path = _jsonl(tmp_path / "in.jsonl", BAY, hard, WALL)
    for more in ([], ["--processes", "2"]):
        assert main(["solve", "--certified", str(path), *more]) == 0
        printed = capsys.readouterr()
        rows = [json.loads(line) for line in printed.out.splitlines()]
        assert [row["certificate"] and row["certificate"]["solvable"] for row in rows] == [True, None, False]
        assert printed.err == (
            f"envsim: {path}:2: no certificate: there are {side**2} agents whose shortest paths collide; the solver "
            "takes at most 8 such\n"
        )
    _stdin(monkeypatch, printed.out)
    assert [verdict for _, verdict in _judged(capsys, "-")] == ["optimal", "no_plan", "no_plan"]


def test_render_plays_the_plan_of_the_row(
    tmp_path: Path, scenario: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = _jsonl(tmp_path / "mine.json", BAY | {"name": "mine", "plan": MEET})
    shown = _out(capsys, "render", mine, "--plan")
    assert shown.startswith("mine  (id 2x5-2-")
    assert shown.endswith("vertex conflict: agents a and b at (0,2), t = 2\n")
    assert ">vertex conflict<" in _out(capsys, "render", mine, "--format", "film")
    assert _out(capsys, "render", mine, "--optimal").endswith("optimal: 7 steps\n")
    plans = _jsonl(tmp_path / "plans", {"name": "other", "plan": MEET}, BEST)
    moved = _out(capsys, "render", scenario, "--answers", plans)
    assert moved.startswith("bay.scen  (id 2x5-2-")
    assert "step 1: a stay, b left" in moved
    _stdin(monkeypatch, _out(capsys, "solve", scenario))
    assert _out(capsys, "render", scenario, "--answers", "-").endswith("optimal: 7 steps\n")
    instance = make_instance(BAY["rows"], [(0, 0), (0, 4)], [(0, 4), (0, 0)])
    expected = film(instance, Lake().replay(instance, json.dumps({"plan": MEET})))
    assert _out(capsys, "render", mine, "--format", "film", "--out", "-") == expected
    assert "plan.0: Input should be a valid list" in _refused(
        capsys, "render", _jsonl(tmp_path / "bad", BAY | {"plan": [3]}), "--plan"
    )


def test_rows_are_found_by_their_own_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the same layout, so that the id alone would not do."""
    path = _jsonl(tmp_path / "in.jsonl", BAY | {"id": "one"}, BAY | {"name": 't"wo'})
    assert _out(capsys, "render", path, "--id", "one").startswith("one  (id ")
    assert "it has 2: 'one', 't\"wo'" in _refused(capsys, "render", path, "--id", "mymap")
    prompts = [json.loads(line) for line in _out(capsys, "benchmark", "--prompts", "-", "--set", path).splitlines()]
    assert [row["id"] for row in prompts] == ["one", 't"wo']
    answers = _jsonl(
        tmp_path / "a.jsonl", *[{"id": row["id"], "answer": json.dumps({"plan": MEET})} for row in prompts]
    )
    verdicts = tmp_path / "verdicts"
    _out(capsys, "benchmark", "--score", answers, "--set", path, "--verdicts", verdicts)
    assert [json.loads(line)["id"] for line in verdicts.read_text().splitlines()] == ["one", 't"wo']
    stray = _jsonl(tmp_path / "stray", {"id": "three", "answer": ""})
    assert "'three' is not in the set of 2 instances; expected one of 'one', " in _refused(
        capsys, "benchmark", "--score", stray, "--set", path
    )
    _out(capsys, "export", path, "--out", tmp_path / "kept.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [row["name"] for row in kept] == ["one", 't"wo']
    assert kept[0]["id"] == kept[1]["id"]
    by_id = _jsonl(tmp_path / "by_id", {"id": kept[0]["id"], "answer": ""})
    one = _jsonl(tmp_path / "one.jsonl", BAY | {"id": "one"})
    assert "answers: parse_error 1" in _out(capsys, "benchmark", "--score", by_id, "--set", one)
    assert "is not in the set" in _refused(capsys, "benchmark", "--score", by_id, "--set", path)


@pytest.mark.parametrize("task", ["--prompts", "--baseline", "--score"])
@pytest.mark.parametrize("certified", [False, True])
def test_what_is_unsolvable_is_no_set_to_grade(
    task: str, certified: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _jsonl(tmp_path / "in.jsonl", BAY, WALL | {"name": "wall"})
    if certified:
        path.write_text(_out(capsys, "solve", "--certified", path))
    file = tmp_path / "file"
    if task == "--score":
        _jsonl(file, {"id": "wall", "answer": ""})
    assert "instance wall is proved unsolvable" in _refused(capsys, "benchmark", task, file, "--set", path)


def test_a_false_certificate_needs_no_hash_to_be_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = json.loads(_out(capsys, "solve", "--certified", _jsonl(tmp_path / "in.jsonl", BAY)))
    true = BAY | {"certificate": row["certificate"], "plan": BEST}
    path = _jsonl(tmp_path / "true.jsonl", true)
    assert json.loads(_out(capsys, "solve", path))["makespan"] == 7
    assert json.loads(_out(capsys, "solve", path, "--certified"))["certificate"] == row["certificate"]
    path = _jsonl(tmp_path / "false.jsonl", true | {"certificate": row["certificate"] | {"makespan": 6}})
    for command in (["solve"], ["solve", "--certified"], ["verify"], ["render"], ["export", "--out", tmp_path / "o"]):
        name, *more = command
        assert f"{path}:1: the certificate's plan is makespan 7, not of makespan 6" in _refused(
            capsys, name, path, *more
        )
    path = _jsonl(tmp_path / "odd.jsonl", BAY | {"certificate": 3})
    assert f"{path}:1: certificate: " in _refused(capsys, "solve", path)
    gone = _jsonl(tmp_path / "gone.jsonl", true | {"variant": "disappear_at_goal"})
    assert json.loads(_out(capsys, "solve", gone))["makespan"] is not None


def test_labels_that_a_scenario_cannot_hold_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _jsonl(tmp_path / "in.jsonl", BAY | {"success_rate": 0.97}, BAY | {"placement": "far"}, BAY)
    assert main(["export", str(path), "--format", "movingai", "--out", str(tmp_path / "out")]) == 0
    assert "place for it: success_rate of 1, placement of 1 instances" in capsys.readouterr().err
    _out(capsys, "export", _jsonl(tmp_path / "b", BAY | {"name": "x"}), "--format", "movingai", "--out", tmp_path / "o")


def test_a_row_that_a_dataset_lost_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _out(capsys, "export", _jsonl(tmp_path / "in", BAY, WALL), "--format", "datasets", "--out", tmp_path / "ds")
    assert len(_out(capsys, "solve", tmp_path / "ds").splitlines()) == 2
    file = next((tmp_path / "ds" / "jsonl").iterdir())
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[1:]) + " ")
    for command in (["solve"], ["render"], ["verify"], ["export", "--out", tmp_path / "again"]):
        name, *more = command
        assert f"{file} is missing or not what" in _refused(capsys, name, tmp_path / "ds", *more)
    (tmp_path / "ds" / "README.md").write_text("mine\n")
    assert main(["solve", str(tmp_path / "ds")]) == 0


@pytest.mark.parametrize("name", ["BAY.SCEN", "foo.txt", "bay"])
def test_a_scenario_is_known_by_its_first_line(
    name: str, scenario: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scenario.rename(scenario.with_name(name))
    assert json.loads(_out(capsys, "solve", path))["makespan"] == 7
    assert _out(capsys, "render", path).startswith(f"{name}  (id ")
    _stdin(monkeypatch, path.read_text())
    assert "stdin:1: is the first line of a MovingAI scenario" in _refused(capsys, "solve", "-")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["solve", ""], "the name of a file is empty"),
        (["generate", "--n", "1", "--out", ""], "argument --out: is empty"),
        (["generate", "--n", "1", "--out", "-"], "argument --out: is '-'"),
        (["export", "anchor", "--out", "-"], "argument --out: is '-'"),
        (["bench", "--json", "-"], "argument --json: is '-'"),
        (["benchmark", "--score", "x", "--verdicts", "-"], "argument --verdicts: is '-'"),
        (["benchmark", "--prompts", ""], "argument --prompts: is empty"),
        (["render", "anchor", "--out", ""], "argument --out: is empty"),
        (["generate", "--n", "1", "--out", "/proc/x"], "cannot use /proc/x: No such file or directory"),
    ],
)
def test_names_of_no_file(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in _refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


class _Broken(io.BytesIO):
    def readline(self, *_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_streams_that_fail_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "envsim", "solve", str(DATA / "instances.json")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "envsim: cannot write to stdout: No space left on device\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(_Broken()))
    assert _refused(capsys, "solve", "-") == "envsim: cannot read stdin: Input/output error\n"


def test_certificates_of_a_set_can_be_verified(
    sets_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envsim.lake.sets.cache_directory", lambda: sets_directory)
    judged = _judged(capsys, "anchor")
    assert {verdict for _, verdict in judged} == {"optimal"}
