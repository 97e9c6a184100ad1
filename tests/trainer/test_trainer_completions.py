"""Completions as Parquet: every step once as it went last, bounded, readable by others, shown as tables."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import pandas as pd
import pytest

from trainer.__main__ import main
from trainer.completions import COLUMNS, CompletionsError, Keeper, files, read_completions
from trainer.metrics import read_stage
from trainer.spec import StageSpec
from trainer.stage import run_stage


def answers(n: int, reward: float = 0.0, outcome: str = "hole") -> dict[str, list[Any]]:
    return {
        "prompt": ["plan 3 2"] * n,
        "completion": [f"(0,{index})" for index in range(n)],
        "instance_id": [f"task-{index}" for index in range(n)],
        "cell": ["3x3"] * n,
        "outcome": [outcome] * n,
        "reward": [reward + index / 100 for index in range(n)],
        "valid": [reward] * n,
        "advantage": [0.5] * n,
    }


def steps_of(stage: Path) -> list[int]:
    return sorted(set(read_completions(files(stage))["step"].to_pylist()))


def test_a_resumed_attempt_writes_over_what_it_repeats(tmp_path: Path) -> None:
    killed = Keeper(tmp_path, 1)
    killed.begin(0)
    for step in range(1, 6):
        killed.keep(step, answers(4, reward=1))
        if step in (2, 4):
            killed.flush()
    # The checkpoint of step 4 was torn: the next attempt begins at that of step 2.
    resumed = Keeper(tmp_path, 1)
    resumed.begin(2)
    for step in range(3, 7):
        resumed.keep(step, answers(4, reward=2))
    resumed.flush()
    assert [path.name for path in files(tmp_path)] == ["steps-00001-00002.parquet", "steps-00003-00006.parquet"]
    table = read_completions(files(tmp_path)).to_pandas()
    assert table.groupby("step")["valid"].agg(["size", "first"]).to_dict("index") == {
        step: {"size": 4, "first": 1 if step < 3 else 2} for step in range(1, 7)
    }


def test_a_stage_keeps_to_its_bound_and_always_has_its_first_and_newest_steps(tmp_path: Path) -> None:
    mib = 0.1
    keeper = Keeper(tmp_path, mib)
    for step in range(1, 101):
        keeper.keep(step, answers(64, reward=step))
        keeper.flush()
    left = steps_of(tmp_path)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= mib * 2**20
    assert (left[0], left[-1]) == (1, 100)
    assert 8 <= len(left) < 100
    assert max(b - a for a, b in pairwise(left) if a > 50) < 20, "the newer, the denser"


def test_nothing_is_kept_where_nothing_is_asked_for(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, 0)
    keeper.keep(1, answers(4))
    keeper.flush()
    assert list(tmp_path.iterdir()) == []


def test_others_read_the_files(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, 1)
    for step, outcome in ((1, "hole"), (2, "optimal")):
        keeper.keep(step, answers(3, outcome=outcome))
        keeper.flush()
    frame = pd.read_parquet(tmp_path / "completions")
    assert set(COLUMNS) <= set(frame.columns)
    assert frame["outcome"].tolist() == ["hole"] * 3 + ["optimal"] * 3
    loaded = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "completions" / "*.parquet"), cache_dir=str(tmp_path / "cache")
    )["train"]
    assert loaded["completion"] == frame["completion"].tolist()


def test_the_command_shows_outcomes_worst_and_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    keeper = Keeper(tmp_path / "stages" / "000", 1)
    (tmp_path / "stages" / "000").mkdir(parents=True)
    keeper.keep(1, answers(3))
    keeper.keep(2, answers(1, reward=1.5, outcome="optimal") | {"completion": ["[bold](0,7)"]})
    keeper.flush()
    assert main(["completions", str(tmp_path), "--show", "1"]) == 0
    shown = capsys.readouterr().out
    assert "4 answers of 2 steps, 1 to 2" in shown
    worst, best = shown.split("worst by reward")[1].split("best by reward")
    assert "(0,0)" in worst
    assert "optimal" not in worst
    for figure in ("3x3", "optimal", "1.50", "+0.50"):
        assert figure in best
    assert "[bold](0,7)" in best, "an answer is text, whatever it holds"
    assert "75.0%" in shown
    assert main(["completions", str(tmp_path), "--outcome", "hole"]) == 0
    assert "optimal" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--outcome", "drowned"], "--outcome 'drowned' has no answers, expected one of hole"),
        (["--show", "0"], "--show is 0, expected 1 or more"),
    ],
)
def test_bad_choices_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper = Keeper(tmp_path, 1)
    keeper.keep(1, answers(3))
    keeper.flush()
    assert main(["completions", str(tmp_path), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completions", str(tmp_path)]) == 2
    assert "expected a stage or a run that was trained with completions_mib above 0" in capsys.readouterr().err
    keeper = Keeper(tmp_path, 1)
    keeper.keep(1, answers(3))
    keeper.flush()
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CompletionsError, match=r"steps-00001-00001\.parquet is no whole Parquet file: .*remove it"):
        read_completions([path])


@pytest.mark.loop
def test_a_killed_stage_keeps_every_completion_once(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_MARK", str(tmp_path / "mark"))
    spec = make_spec(steps=6, environment="toy:Mortal")
    assert spec.identity() == spec.model_copy(update={"completions_mib": 0.0}).identity(), "it decides nothing"
    result = run_stage(spec, tmp_path / "000")
    assert result.attempt == 2
    frame = read_completions(files(tmp_path / "000")).to_pandas()
    assert frame.groupby("step").size().to_dict() == dict.fromkeys(range(1, 7), 16)
    by_step = {row.step: row for row in read_stage(sorted((tmp_path / "000").glob("attempt-*")))}
    for step, rows in frame.groupby("step"):
        assert rows["reward"].mean() == pytest.approx(by_step[step].reward, abs=1e-6)
        assert rows["reward"].tolist() == (rows["valid"] + 0.5 * rows["optimal"]).tolist()
        assert (rows["valid"] == rows["outcome"].isin(["valid_suboptimal", "optimal"])).all()
        assert rows["advantage"].sum() == pytest.approx(0, abs=1e-3)
        assert rows.groupby("instance_id").size().tolist() == [4] * 4
    first = frame.iloc[0]
    number = int(first["instance_id"].removeprefix("toy-"))
    assert (first["prompt"], first["cell"]) == (f"say {number}", "odd" if number % 2 else "even")
