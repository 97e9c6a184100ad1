"""The table over seeds: finished runs are read and not run again, and a failing run is an error that names its log."""

from __future__ import annotations

import json
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


def test_a_failing_run_names_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--directory", str(tmp_path), "--seeds", "0", "--designers", "nobody"])
    assert code == 1
    assert "nobody-0.log" in capsys.readouterr().err
    assert "nobody" in (tmp_path / "nobody-0.log").read_text()
