"""The table over seeds: finished runs are read and not run again, and a failing run is an error that names its log."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from graph.seeds import champion, main, run_one, table
from graph.settings import RunSettings


def finished(root: Path, designer: str, seed: int, delta: float, **settings: Any) -> None:
    place = root / f"{designer}-{seed}"
    place.mkdir()
    made_with = RunSettings(designer=designer, seed=seed, **settings).model_dump(mode="json")
    (place / "run.yaml").write_text(yaml.safe_dump({"settings": made_with}))
    for stage, own in ((0, False), (1, True), (2, False)):
        folder = place / "stages" / f"{stage:03d}"
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps({"own": own}))
    score = {"macro_valid": 0.1, "macro_optimal": 0.05, "n": 672}
    after = {"macro_valid": 0.1 + delta, "macro_optimal": 0.05, "n": 672}
    change = {"delta": delta, "standard_error": 0.01, "low": delta - 0.02, "high": delta + 0.02, "n": 672}
    test = {"before": score, "after": after, "valid": change, "optimal": change}
    (place / "result.json").write_text(json.dumps({"champion": {"stage": 1}, "sets": {"test": test}}))


def test_finished_runs_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, "self", 0, 0.05)
    finished(tmp_path, "self", 1, 0.01)
    code = main(["--directory", str(tmp_path), "--seeds", "0", "1", "--designers", "self", "--parallel", "2"])
    out = capsys.readouterr().out
    assert code == 0
    assert "| self | 0 | 10.0 -> 15.0 | +5.0 (+3.0 to +7.0) | 5.0 -> 5.0 | 1 of 2 |" in out
    assert "mean +3.0; above zero in 1 of 2" in out


def test_the_table_has_a_row_a_run(tmp_path: Path) -> None:
    finished(tmp_path, "fixed", 3, -0.01)
    result = run_one(tmp_path, "fixed", 3, [])
    assert table([("fixed", 3, result)]).count("\n") == 3


def test_a_run_with_other_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, "self", 0, 0.05, stages=5)
    flags = ["--directory", str(tmp_path), "--seeds", "0", "--designers", "self"]
    assert main(flags) == 2
    assert "settings.stages (was 5, now 3)" in capsys.readouterr().err
    assert main([*flags, "--", "--stages", "5"]) == 0
    assert main([*flags, "--", "--stages", "many"]) == 2
    assert "invalid int value: 'many'" in capsys.readouterr().err


def test_a_run_of_another_seed_under_its_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path, "self", 0, 0.05)
    (tmp_path / "self-0").rename(tmp_path / "self-7")
    assert main(["--directory", str(tmp_path), "--seeds", "7", "--designers", "self"]) == 2
    assert "settings.seed (was 0, now 7)" in capsys.readouterr().err


def test_a_start_that_no_stage_beat_has_no_directory() -> None:
    assert champion({"champion": {"stage": -1}}) == "no stage beat the start"
    assert champion({"champion": {"stage": 2}}) == "stages/002/model"


def damaged(root: Path, content: str) -> None:
    """A run that looks cut off and whose profile nobody has, so that resuming it fails."""
    finished(root, "self", 0, 0.05)
    (root / "self-0" / "result.json").write_text(content)


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"champion": {"stage": 1}, "sets": {"test": {}}}', "\x00"])
def test_a_damaged_result_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    damaged(tmp_path, content)
    commands: list[list[str]] = []

    def resumed(command: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("graph.seeds.subprocess.run", resumed)
    with pytest.raises(RuntimeError, match=r"self-0/result\.json or a plan\.json is missing or damaged; see"):
        run_one(tmp_path, "self", 0, [])
    assert commands[0][-1] == "--resume"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--parallel", "0"], "--parallel 0, expected at least 1"),
        (["--parallel", "-1"], "--parallel -1, expected at least 1"),
        (["--designers", "slf"], "did you mean 'self'"),
        (["--designers", "a/../../x"], "--designers a/../../x: "),
        (["--seeds", "-1"], "seed = -1"),
        (["--seeds", "x"], "invalid int value: 'x'"),
        (["--", "--run-dir", "x"], "--run-dir cannot be given after --"),
        (["--", "--dry-run"], "--dry-run cannot be given after --"),
        (["--", "--resume"], "--resume cannot be given after --"),
        (["--", "--designer", "fixed"], "--designer cannot be given after --"),
        (["--", "--seed", "0"], "--seed cannot be given after --"),
        (["--", "--profile", "nope"], "no profile 'nope'"),
    ],
)
def test_bad_flags_are_one_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert main(["--directory", str(tmp_path / "runs"), *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    for place in (file, file / "runs"):
        assert main(["--directory", str(place), "--seeds", "0", "--designers", "fixed"]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert file.read_text() == "kept"


def test_a_failing_run_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged(tmp_path, "")
    monkeypatch.setattr("graph.seeds.subprocess.run", lambda command, **_: subprocess.CompletedProcess(command, 1))
    assert main(["--directory", str(tmp_path), "--seeds", "0", "--designers", "self"]) == 1
    assert "exit code 1; see " + str(tmp_path / "self-0.log") in capsys.readouterr().err
