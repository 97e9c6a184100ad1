"""The command line: what it reads and prints, and one line with exit code 2 on bad input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from envsim_cases import DATA, oracle

from envsim.__main__ import COMMANDS, main
from envsim.commands import questions
from envsim.formats.hub import load
from envsim.formats.movingai import read_scenario, write_map, write_scenario
from envsim.lake import sets
from envsim.lake.config import EnvConfig
from envsim.lake.instance import make_instance, read_instances
from envsim.lake.verifier import costs, verify

LAYOUT: dict[str, Any] = {"rows": ["...", "..."], "starts": [[0, 0], [0, 2]], "goals": [[0, 2], [0, 0]]}
KEYS = ["name", "status", "makespan", "sum_of_costs", "needs_wait_makespan", "needs_wait_soc", "paths"]


def _refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("envsim: ")
    assert printed.count("\n") == 1
    return printed


def _lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return [json.loads(line) for line in printed.out.splitlines()]


def _stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def _jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def _cells(cells: list[list[int]]) -> list[tuple[int, int]]:
    return [(r, c) for r, c in cells]


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schemas = json.loads(capsys.readouterr().out)
    assert {"EnvConfig", "LakeInstance", "Solution", "Judgement", "AnswerRow"} <= set(schemas)
    assert schemas["EnvConfig"]["properties"]["schema_version"]["default"] == 1
    assert list(schemas["Solution"]["properties"])[: len(KEYS)] == KEYS
    assert "did you mean 'EnvConfig'" in _refused(capsys, "schema", "EnvConfg")


@pytest.mark.parametrize("command", [module.__name__.rpartition(".")[2] for module in COMMANDS])
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert caught.value.code == 0
    assert f"python -m envsim {command}" in printed.partition("example:")[2]
    assert max(map(len, printed.splitlines())) <= 120


def test_solve_answers_the_oracle_file(capsys: pytest.CaptureFixture[str]) -> None:
    solved = _lines(capsys, "solve", DATA / "instances.json")
    cases = oracle("instances")
    assert [line["name"] for line in solved] == [case["name"] for case in cases]
    for line, case in zip(solved, cases, strict=True):
        assert list(line) == KEYS
        assert line["status"] == ("solved" if case["solvable"] else "unsolvable")
        assert line["sum_of_costs"] == case["sum_of_costs"]
        if "makespan" in case:
            assert line["makespan"] == case["makespan"]
        if "needs_wait_soc" in case:
            assert line["needs_wait_soc"] == case["needs_wait_soc"]
        if line["paths"] is not None and "variant" not in case:
            goals, plan = _cells(case["goals"]), [_cells(path) for path in line["paths"]]
            assert verify(case["rows"], _cells(case["starts"]), goals, plan, line["makespan"]).optimal
            assert sum(costs(goals, plan)) >= line["sum_of_costs"]


def test_verify_answers_the_validator_cases(capsys: pytest.CaptureFixture[str]) -> None:
    judged = _lines(capsys, "verify", DATA / "validator_cases.json")
    for line, case in zip(judged, oracle("validator_cases"), strict=True):
        assert list(line) == ["name", "verdict", "agent", "time", "cell", "makespan", "sum_of_costs"]
        assert line["name"] == case["name"]
        expected = {"missing_agents": {"wrong_agent_count"}, None: {"optimal", "valid_suboptimal"}}
        assert line["verdict"] in expected.get(case["error"], {case["error"]})
        assert (line["makespan"], line["sum_of_costs"]) == (case["makespan"], case["sum_of_costs"])
    swap = next(line for line in judged if line["name"] == "lacam_swap")
    assert (swap["agent"], swap["time"], swap["cell"]) == (0, 1, [1, 0])


def test_verify_tells_optimal_from_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = {"plan": [[[0, 0], [0, 1], [0, 2]], [[0, 2], [1, 2], [1, 1], [1, 0], [0, 0]]]}
    long = {"plan": [[[0, 0], [0, 0], *short["plan"][0]], short["plan"][1]]}
    path = _jsonl(tmp_path / "plans.jsonl", LAYOUT | short, LAYOUT | {"name": "long"} | long)
    assert [line["verdict"] for line in _lines(capsys, "verify", path)] == ["optimal", "optimal"]
    later = [[*cells, cells[-1]] for cells in long["plan"]]
    later[1] = [later[1][0], *later[1]]
    path = _jsonl(path, LAYOUT | {"plan": later})
    judged, left_open = (_lines(capsys, "verify", path, *more)[0] for more in ([], ["--node-limit", 0]))
    assert (judged["verdict"], left_open["verdict"]) == ("valid_suboptimal", "valid")
    assert judged | {"verdict": "valid"} == left_open


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (json.dumps(LAYOUT), ["stdin:1"]),
        (json.dumps(LAYOUT, indent=1), ["stdin:1"]),
        (json.dumps([LAYOUT, LAYOUT | {"name": "b"}]), ["stdin:1[0]", "b"]),
        (json.dumps({"note": "x", "instances": [LAYOUT]}, indent=2), ["stdin:1 instances[0]"]),
        ("\n\n" + json.dumps(LAYOUT) + "\r\n\n" + json.dumps(LAYOUT | {"id": "i"}), ["stdin:3", "i"]),
        ("\ufeff" + json.dumps(LAYOUT | {"name": "ü"}), ["ü"]),
    ],
)
def test_shapes_of_input(
    text: str, names: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _stdin(monkeypatch, text.encode())
    solved = _lines(capsys, "solve", "-")
    assert [line["name"] for line in solved] == names
    assert all((line["makespan"], line["sum_of_costs"]) == (4, 6) for line in solved)


def test_good_rows_before_a_bad_one_are_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _jsonl(tmp_path / "in.jsonl", LAYOUT, LAYOUT, LAYOUT | {"goals": [[0, 2], [5, 0]]}, LAYOUT)
    assert main(["solve", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 2
    assert f"{path}:3: goal of agent 1 is (5,0), outside the 2x3 map" in printed.err


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"rows": ["...", ".."]}, ":1: row 1 has 2 cells, expected 3"),
        ({"rows": ["...", ".S."]}, ":1: row 1 is '.S.'"),
        ({"starts": [[0, 0], [0, 0]]}, ":1: two agents share a start"),
        ({"starts": [[0, 0]]}, ":1: 1 starts and 2 goals"),
        ({"starts": [[0, 0], [0, 2.0]]}, ":1: starts.1.1: Input should be a valid integer (got 2.0)"),
        ({"starts": [[0, 0], 3]}, ":1: starts.1: expected a cell [row, column] (got 3)"),
        ({"starts": "00"}, ":1: starts: Input should be a valid list (got '00')"),
        ({"via": [[0, 0]]}, ":1: 1 via cells for 2 agents"),
        ({"variant": "fly"}, ":1: variant: Input should be 'disappear_at_goal' (got 'fly')"),
    ],
)
def test_layouts_that_are_none(
    tmp_path: Path, row: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in _refused(capsys, "solve", _jsonl(tmp_path / "in.jsonl", LAYOUT | row))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "in.json is empty"),
        ("[]", "in.json is empty"),
        ("[1]", "in.json:1[0]: is 1; expected a JSON object"),
        ("[" * 100_000, "in.json:1 is no valid JSON: nested"),
        ('{"a":' * 100_000, "in.json:1 is no valid JSON: nested"),
        ('{\n"rows": ["."],\n"starts": [}', "in.json:3 is no valid JSON"),
        ('{"rows": ["."], "rows": ["."]}', "the key 'rows' is written twice"),
        ('{"rows": NaN}', "NaN is no JSON number"),
        ('{"rows": ' + "9" * 5000 + "}", "in.json:1 is no valid JSON: a number has more than 4300 digits"),
        ('{"instances": 3}', "in.json:1 instances: is 3; expected a list of layouts"),
        ('{"instances": []}', "in.json is empty"),
        ("type octile\nheight 1\n", "in.json:1: is the first line of a MovingAI map"),
        ('{"name": "x", "status": "solved", "paths": []}', "in.json:1: is a line of 'solve', which has no layout"),
        ("{}", "in.json:1: rows: Field required"),
    ],
)
@pytest.mark.parametrize("command", ["render", "solve", "verify"])
def test_files_without_layouts(
    tmp_path: Path, command: str, content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.json"
    path.write_text(content)
    assert says in _refused(capsys, command, path)


def test_a_limit_says_what_is_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _jsonl(tmp_path / "in.jsonl", LAYOUT)
    (line,) = _lines(capsys, "solve", path, "--node-limit", 1)
    assert list(line) == [*KEYS, "open", "reason"]
    assert line["status"] == "limit"
    assert all(line[key] is None for key in line["open"])
    assert all(line[key] is not None for key in set(KEYS) - set(line["open"]))
    assert "makespan at least 2" in line["reason"]
    assert "expected at least 1" in _refused(capsys, "solve", path, "--node-limit", 0)


def test_large_maps_are_read_and_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    side = 512
    rows = ["." * side] * side
    write_map(rows, tmp_path / "big.map")
    head = f"0\tbig.map\t{side}\t{side}\t"
    (tmp_path / "big.scen").write_text(f"version 1\n{head}0\t0\t{side - 1}\t{side - 1}\t1\n{head}1\t0\t0\t1\t1\n")
    (line,) = _lines(capsys, "solve", tmp_path / "big.scen")
    assert line["status"] == "limit"
    assert "262144 cells" in line["reason"]
    assert main(["render", str(tmp_path / "big.scen"), "--agents", "1", "--out", str(tmp_path / "big.txt")]) == 0


@pytest.mark.parametrize(
    ("side", "agents", "status"), [(40, 3, "solved"), (64, 2, "solved"), (100, 2, "solved"), (9, 9, "limit")]
)
def test_solve_stays_inside_its_bounds(
    side: int, agents: int, status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents that meet head on in the middle of an open map, so that there is something to search."""
    ends = [[[i, 0], [i, side - 1]] for i in range(agents)]
    ends[1] = ends[0][::-1]
    layout = {"rows": ["." * side] * side, "starts": [a for a, _ in ends], "goals": [b for _, b in ends]}
    (line,) = _lines(capsys, "solve", _jsonl(tmp_path / "in.jsonl", layout), "--node-limit", 4_000_000)
    assert line["status"] == status
    if status == "solved":
        assert (line["makespan"], line["needs_wait_soc"]) == (side + 1, False)
        plan = [_cells(path) for path in line["paths"]]
        assert verify(layout["rows"], _cells(layout["starts"]), _cells(layout["goals"]), plan, side + 1).optimal


def test_movingai_scenarios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A map that is not square, so that x and y cannot be mixed up."""
    instance = make_instance(["....", "@@.@"], [(0, 0), (0, 3), (1, 2)], [(0, 2), (0, 0), (0, 3)])
    write_scenario(instance, tmp_path / "three.scen")
    (line,) = _lines(capsys, "solve", tmp_path / "three.scen", "--agents", 2)
    assert (line["name"], line["status"], len(line["paths"])) == ("three.scen", "solved", 2)
    assert line["paths"][1][0] == [0, 3]
    assert "does not go with" in _refused(capsys, "solve", "anchor", "--agents", 2)
    assert "a map has no agents; give a .scen" in _refused(capsys, "solve", tmp_path / "three.map")
    assert "three.scen: plan is missing; write it into the row, or give --plan" in _refused(
        capsys, "verify", tmp_path / "three.scen"
    )
    assert "can only be read as a layout" in _refused(
        capsys, "verify", tmp_path / "three.scen", "--plan", tmp_path / "three.scen"
    )
    (tmp_path / "config.yaml").write_text("agents: {2: 1}\n")
    for command in ("solve", "render"):
        assert "generate --config" in _refused(capsys, command, tmp_path / "config.yaml")
    assert "or one of its .scen files" in _refused(capsys, "solve", tmp_path)
    assert "three.scen" in _refused(capsys, "solve", tmp_path / "three.scen", "--agents", 4)


def test_generate_certify_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = tmp_path / "config.yaml", tmp_path / "made.jsonl"
    config.write_text(yaml.safe_dump(json.loads(EnvConfig().model_dump_json())))
    assert main(["generate", "--config", str(config), "--n", "16", "--seed", "3", "--out", str(out)]) == 0
    assert "10x10" in capsys.readouterr().out
    instances = list(read_instances(out))
    assert len(instances) == 16
    assert "remove it" in _refused(capsys, "generate", "--n", 16, "--out", out)
    assert _lines(capsys, "solve", out, "--certified") == [json.loads(line) for line in out.read_text().splitlines()]

    assert main(["export", str(out), "--format", "datasets", "--out", str(tmp_path / "hub")]) == 0
    assert load(tmp_path / "hub") == instances
    assert main(["export", str(out), "--format", "movingai", "--out", str(tmp_path / "scen")]) == 0
    scenarios = sorted((tmp_path / "scen").glob("*.scen"))
    assert [read_scenario(path).id for path in scenarios] == [instance.id for instance in instances]
    assert main(["export", str(out), "--out", str(tmp_path / "again.jsonl")]) == 0
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()
    capsys.readouterr()
    made = ("generate", "--n", 3, "--format", "datasets", "--out", tmp_path / "made")
    assert main([str(part) for part in made]) == 0
    assert len(load(tmp_path / "made")) == 3
    assert "needs --out" in _refused(capsys, "generate", "--n", 1, "--format", "movingai")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hash": "0" * 64}, "hash is '000"),
        ({"id": "mine"}, "id is 'mine'"),
        ({"agents": 3}, "agents is 3 but there are 2 starts"),
        ({"certificate": {"plan": ["R", "X"]}}, "no string of L, D, R, U, S"),
        ({"certificate": {"plan": ["", ""]}}, "plan is goal_not_reached"),
        ({"certificate": {"makespan": 99}}, "of makespan 99"),
        ({"certificate": {"distances": []}}, "0 distances for 2 agents"),
        ({"certificate": {"distances": [2, 3]}}, "distances are [2, 3]; expected [2, 2]"),
        ({"certificate": {"paths_collide": False}}, "paths_collide is False; expected True"),
        ({"certificate": {"solvable": False}}, "solvable is False; expected solvable iff with a plan"),
        ({"certificate": {"sum_of_costs": 7}}, "sum_of_costs is 7; expected from 4 to 6"),
        ({"certificate": {"sum_of_costs": 5}}, "coordination_cost is 2; expected"),
        ({"certificate": {"sum_of_costs_at_makespan": 9}}, "sum_of_costs_at_makespan is 9; expected 6"),
        ({"certificate": {"distances": [-2, 2]}}, "distances are [-2, 2]; expected [2, 2]"),
        ({"certificate": {"reference_has_wait": True}}, "reference_has_wait is True; expected False"),
        ({"certificate": {"needs_wait_makespan": True}}, "needs_wait_makespan is True; expected False"),
        ({"certificate": {"needs_wait_soc": True}}, "needs_wait_soc is True; expected False"),
        ({"certificate": {"solvable": False, "plan": None}}, "makespan is 4; expected none without a plan"),
    ],
)
def test_instances_that_contradict_themselves(
    tmp_path: Path, change: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = _lines(capsys, "solve", _jsonl(tmp_path / "in.jsonl", LAYOUT), "--certified")
    changed = row | change | ({"certificate": row["certificate"] | change.get("certificate", {})})
    path = _jsonl(tmp_path / "changed.jsonl", row, changed)
    planned = _jsonl(tmp_path / "planned.jsonl", *[r | {"plan": [[[0, 0]], [[0, 2]]]} for r in (row, changed)])
    for file, *command in ((path, "export", path, "--out", tmp_path / "out"), (path, "solve", path)):
        printed = _refused(capsys, *command)
        assert says in printed
        assert f"{file}:2: " in printed
    assert f"{planned}:2: " in _refused(capsys, "verify", planned)


def test_what_a_row_carries_is_not_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``solve`` and ``verify`` repeat a certificate, look for what it leaves open, and say so where both disagree."""
    (row,) = _lines(capsys, "solve", _jsonl(tmp_path / "in.jsonl", LAYOUT), "--certified")
    certificate = row["certificate"]
    gap = {"sum_of_costs": None, "coordination_cost": None, "sum_of_costs_at_makespan": None, "needs_wait_soc": None}
    open_ = row | {"certificate": certificate | gap, "note": "keys that are not known are left alone"}
    path = _jsonl(tmp_path / "rows.jsonl", row, open_)
    whole, found = _lines(capsys, "solve", path)
    assert whole == found
    assert (whole["status"], whole["makespan"], whole["sum_of_costs"]) == ("solved", 4, 6)
    assert _lines(capsys, "solve", path, "--certified")[1]["certificate"] == certificate
    planned = _jsonl(tmp_path / "planned.jsonl", row | {"plan": whole["paths"]})
    with monkeypatch.context() as patched:
        patched.setattr(questions, "_asked", lambda *_: "nobody is asked")
        assert _lines(capsys, "solve", _jsonl(tmp_path / "one.jsonl", row)) == [whole]
        assert _lines(capsys, "solve", path)[1]["open"] == ["sum_of_costs", "needs_wait_soc"]
        assert [line["verdict"] for line in _lines(capsys, "verify", planned)] == ["optimal"]
    longer = {
        "plan": ["S" + moves for moves in certificate["plan"]],
        "makespan": certificate["makespan"] + 1,
        "reference_has_wait": True,
    }
    worse = row | {"plan": whole["paths"], "certificate": certificate | longer | {"sum_of_costs_at_makespan": None}}
    assert "below the certified optimum" in _refused(capsys, "verify", _jsonl(tmp_path / "worse.jsonl", worse))
    missing = worse | {"certificate": worse["certificate"] | gap}
    said = _refused(capsys, "solve", _jsonl(tmp_path / "missing.jsonl", missing), "--certified")
    assert "makespan is 5, the solver that it is 4" in said


@pytest.mark.parametrize("bound", ["MAX_JOINT_CELLS", "MAX_TABLES"])
def test_certificates_by_plain_search(
    tmp_path: Path, bound: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _jsonl(
        tmp_path / "in.jsonl", LAYOUT, {"rows": ["...."], "starts": [[0, 0], [0, 3]], "goals": [[0, 3], [0, 0]]}
    )
    tables = _lines(capsys, "solve", path, "--certified")
    monkeypatch.setattr(questions, bound, 0)
    for by_tables, by_search in zip(tables, _lines(capsys, "solve", path, "--certified"), strict=True):
        loose = {"plan", "sum_of_costs_at_makespan", "reference_has_wait"}
        pair = [{k: v for k, v in row["certificate"].items() if k not in loose} for row in (by_tables, by_search)]
        assert pair[0] == pair[1]
    assert main(["solve", str(path), "--certified", "--node-limit", "1"]) == 0
    assert "raise --node-limit" in capsys.readouterr().err


def test_bad_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    assert "config.yaml" in _refused(capsys, "generate", "--config", path)
    path.write_text("sizes: {3: {hole_ratio: 0.7}}")
    assert "hole_ratio" in _refused(capsys, "generate", "--config", path)
    path.write_text("a: [")
    assert "is no valid YAML" in _refused(capsys, "generate", "--config", path)
    for content in (b"[" * 5000, b"a: 2026-13-45", b"a: " + b"9" * 5000, b"\xff", b"a: 1\na: 2", b"# nothing\n"):
        path.write_bytes(content)
        said = _refused(capsys, "generate", "--config", path)
        assert str(path) in said
        assert not any(raw in said for raw in ("unicode string", "set_int_max_str_digits", "None"))


def test_sets_prints_a_table(
    capsys: pytest.CaptureFixture[str], sets_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "cache_directory", lambda: sets_directory)
    assert main(["sets", "validation"]) == 0
    printed = capsys.readouterr()
    assert "336 instances" in printed.out
    assert printed.err == ""
    assert "unknown set" in _refused(capsys, "sets", "anhor")


@pytest.mark.parametrize("command", ["sets", "solve"])
def test_making_a_set_is_announced(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it begins, and wherever the output goes."""

    def made(*_: object) -> list[object]:
        assert capsys.readouterr().err == "making the set benchmark, this once; it takes about a minute\n"
        return []

    monkeypatch.setattr(sets, "cache_directory", lambda: tmp_path)
    monkeypatch.setattr(sets, "frozen_set", made)
    assert main([command, "benchmark"]) == 0


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    """More than a pipe holds, so that writing meets the closed end."""
    path = _jsonl(tmp_path / "in.jsonl", *[LAYOUT] * 2_000)
    command = f"set -o pipefail; {sys.executable} -m envsim solve {path} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert done.returncode == 141
    assert json.loads(done.stdout)["status"] == "solved"


@pytest.mark.parametrize("more", [[], ["--certified"]])
def test_several_files_over_several_processes(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The same lines as by one, and those before a bad row as well."""
    one, two = (_jsonl(tmp_path / name, *[LAYOUT | {"id": f"{name}{n}"} for n in range(3)]) for name in ("a", "b"))
    lines = _lines(capsys, "solve", one, two, *more)
    assert [line["id" if more else "name"][:1] for line in lines] == (["2"] * 6 if more else ["a"] * 3 + ["b"] * 3)
    assert _lines(capsys, "solve", one, two, "--processes", 2, *more) == lines
    bad = _jsonl(tmp_path / "bad", LAYOUT, {"rows": 3})
    assert main(["solve", str(one), str(bad), str(two), "--processes", "2", *more]) == 2
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()][:3] == lines[:3]
    assert len(printed.out.splitlines()) == 4
    assert f"{bad}:2: rows: " in printed.err
    assert "'-' is given twice" in _refused(capsys, "solve", "-", "-")
    assert "processes is 0" in _refused(capsys, "solve", one, "--processes", 0)


def test_verify_takes_several_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [[[0, 0], [0, 1], [0, 2]], [[0, 2], [1, 2], [1, 1], [1, 0], [0, 0]]]
    files = [_jsonl(tmp_path / name, LAYOUT | {"name": name, "plan": plan}) for name in "ab"]
    assert [line["name"] for line in _lines(capsys, "verify", *files)] == ["a", "b"]


def test_two_goals_have_no_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _jsonl(tmp_path / "in.jsonl", LAYOUT, LAYOUT | {"via": [[1, 0], [1, 2]]})
    out = tmp_path / "out"
    command = ("export", path, "--format", "movingai", "--out", out)
    assert "two goals an agent" in _refused(capsys, *command)
    assert not out.exists()
    assert "--skip goes with" in _refused(capsys, "export", path, "--skip", "--out", out)
    assert main([*map(str, command), "--skip"]) == 0
    assert "1 instances in" in (said := capsys.readouterr().out)
    assert "1 with two goals an agent left out" in said
    assert len(list(out.glob("*.scen"))) == 1


def test_a_scenario_is_a_set_to_grade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bare layouts have no certificate; they get one, so that opt. can be told."""
    write_scenario(
        make_instance(["....", "@@.@"], [(0, 0), (0, 3), (1, 2)], [(0, 2), (0, 0), (0, 3)]), tmp_path / "w.scen"
    )
    chosen = ["--set", str(tmp_path / "w.scen"), "--agents", "2"]
    assert main(["benchmark", "--prompts", str(tmp_path / "prompts"), *chosen]) == 0
    assert main(["solve", str(tmp_path / "w.scen"), "--agents", "2"]) == 0
    paths = json.loads(capsys.readouterr().out.splitlines()[-1])["paths"]
    answer = {"id": json.loads((tmp_path / "prompts").read_text())["id"], "answer": json.dumps({"plan": paths})}
    answers = _jsonl(tmp_path / "answers", answer)
    assert main(["benchmark", "--score", str(answers), *chosen]) == 0
    assert "answers: optimal 1" in capsys.readouterr().out
