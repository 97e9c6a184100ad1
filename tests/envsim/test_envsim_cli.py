"""The command line: what it prints, and one line with exit code 2 on bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from envsim.__main__ import main
from envsim.bench import bench
from envsim.lake import sets
from envsim.lake.config import EnvConfig
from envsim.lake.instance import read_instances

LAYOUT = {"rows": ["...", "..."], "starts": [[0, 0], [0, 2]], "goals": [[0, 2], [0, 0]]}


def _refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("envsim: ")
    assert printed.count("\n") == 1
    return printed


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schemas = json.loads(capsys.readouterr().out)
    assert {"EnvConfig", "LakeInstance", "Measurement", "Verdict"} == set(schemas)
    assert schemas["EnvConfig"]["properties"]["schema_version"]["default"] == 1
    assert "did you mean 'EnvConfig'" in _refused(capsys, "schema", "EnvConfg")


def test_generate_show_solve_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = tmp_path / "config.yaml", tmp_path / "made.jsonl"
    config.write_text(yaml.safe_dump(json.loads(EnvConfig().model_dump_json())))
    assert main(["generate", "--config", str(config), "--n", "16", "--seed", "3", "--out", str(out)]) == 0
    assert "10x10" in capsys.readouterr().out
    instances = list(read_instances(out))
    assert len(instances) == 16
    assert "remove it" in _refused(capsys, "generate", "--n", 16, "--out", out)

    assert main(["show", str(out), "--id", instances[4].id, "--plan"]) == 0
    drawn = capsys.readouterr().out
    assert instances[4].id in drawn
    assert "step 0" in drawn
    assert "no instance" in _refused(capsys, "show", out, "--index", 99)

    assert main(["solve", str(out)]) == 0
    solved = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert solved == [json.loads(line) for line in out.read_text().splitlines()]

    answers = tmp_path / "answers.jsonl"
    rows = [json.dumps({"id": i.id, "answer": "no\u2028"}, ensure_ascii=False) + "\n" for i in instances]
    answers.write_text("".join(rows), encoding="utf-8")
    assert main(["verify", str(out), str(answers)]) == 0
    printed = capsys.readouterr()
    assert "parse_error 16" in printed.err
    assert json.loads(printed.out.splitlines()[0])["outcome"] == "parse_error"
    answers.write_text('{"id": "other", "answer": ""}\n')
    assert "answers.jsonl:1" in _refused(capsys, "verify", out, answers)
    answers.write_text('{"id": "other", "plan": ""}\n')
    assert "expected" in _refused(capsys, "verify", out, answers)
    answers.write_text("{\n")
    assert "answers.jsonl:1 is no valid JSON" in _refused(capsys, "verify", out, answers)


def test_solve_a_bare_layout_and_draw_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(LAYOUT, indent=1))
    assert main(["solve", str(path)]) == 0
    certificate = json.loads(capsys.readouterr().out)["certificate"]
    assert (certificate["makespan"], certificate["sum_of_costs"]) == (4, 6)
    assert main(["show", str(path)]) == 0
    drawn = capsys.readouterr().out
    assert " aB  . bA" in drawn
    assert "not certified" in drawn
    assert "raise the solver's limit" in _refused(capsys, "solve", path, "--limit", 1)


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    assert "config.yaml" in _refused(capsys, "generate", "--config", path)
    path.write_text("sizes: {3: {hole_ratio: 0.7}}")
    assert "hole_ratio" in _refused(capsys, "generate", "--config", path)
    path.write_text("a: [")
    assert "is no valid YAML" in _refused(capsys, "generate", "--config", path)
    path.write_text(json.dumps(LAYOUT | {"goals": [[0, 2], [5, 0]]}))
    assert "outside the 2x3 map" in _refused(capsys, "solve", path)
    path.write_text("[1]")
    assert "expected a JSON object" in _refused(capsys, "solve", path)
    with pytest.raises(SystemExit) as caught:
        main(["nothing"])
    assert caught.value.code == 2


def test_sets_and_bench_print_tables(
    capsys: pytest.CaptureFixture[str], sets_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "cache_directory", lambda: sets_directory)
    assert main(["sets", "validation"]) == 0
    assert "336 instances" in capsys.readouterr().out
    assert "unknown set" in _refused(capsys, "sets", "anhor")
    rates = bench(seconds=0.01)
    assert all(rate.per_second > 0 for rate in rates)
    assert [rate.goal for rate in rates if rate.goal] == [1_500, 50_000]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_no_time_measures_nothing(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"is {float(seconds)} s, expected a positive number" in _refused(capsys, "bench", "--seconds", seconds)


@pytest.mark.parametrize(
    ("content", "says"), [("", "is empty"), ("[" * 100_000, "nested"), ('{"a":' * 100_000, "nested")]
)
@pytest.mark.parametrize("command", ["show", "solve", "verify"])
def test_files_without_instances(
    tmp_path: Path, command: str, content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text(content)
    printed = _refused(capsys, command, path, *([path] if command == "verify" else []))
    assert says in printed
    assert str(path) in printed


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "is empty"), ('{"id": [1], "answer": "x"}', "id [1] is not in"), ("[" * 100_000, "nested")],
)
def test_answers_that_are_none(tmp_path: Path, content: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    layout, answers = tmp_path / "layout.json", tmp_path / "answers.jsonl"
    layout.write_text(json.dumps(LAYOUT))
    answers.write_text(content)
    assert says in _refused(capsys, "verify", layout, answers)


@pytest.mark.parametrize("content", [b"[" * 5000, b"a: 2026-13-45", b"a: " + b"9" * 5000, b"\xff", b"a: 1\na: 2"])
def test_configurations_that_are_none(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    assert str(path) in _refused(capsys, "generate", "--config", path)
