"""A run's curves: what stops a run before it trains, and what only costs a line."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graph.curves import run_points, stage_series, tell_run
from graph.prepare import prepare
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings, SettingsError, load_settings
from graph.timing import Clock
from graph.work import Work
from trainer.spec import ModelRef, StageResult
from trainer.stage import StageInputError


def new(root: Path, profile: Path, **settings: Any) -> tuple[Work, io.StringIO]:
    said = io.StringIO()
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile), **settings))
    return new_work(prepared, RunDir(root), Console(file=said, width=400), Clock()), said


def decide(run: RunDir, stage: int, *, before: float, after: float, accepted: bool) -> None:
    """The files of a stage that is over."""
    result = StageResult(
        spec_hash="0",
        stage=stage,
        steps=10,
        model=ModelRef(path="model", sha256="0"),
        weight_change=1.0,
        generated_tokens=500,
        reward_first=0.1,
        reward_last=0.2,
        zero_variance_share=0.5,
        seconds={},
        attempt=1,
    )
    folder = f"stages/{stage:03d}"
    run.write(f"{folder}/result.json", result.model_dump(mode="json"))
    decision = {
        "accepted": accepted,
        "current": {"anchor": after if accepted else before},
        "before": {"macro_valid": before, "macro_optimal": before},
        "after": {"macro_valid": after, "macro_optimal": after},
    }
    run.write(f"{folder}/decision.json", decision)


def test_a_tracker_that_cannot_be_opened_stops_the_stage_before_it_trains(tmp_path: Path, profile: Path) -> None:
    work, said = new(tmp_path, profile)
    (tmp_path / "tensorboard").write_text("in the way")
    with pytest.raises(StageInputError, match="tracking: tensorboard cannot write to"), stage_series(work, 0):
        pass
    # Once there is something to lose it is a line and no more.
    decide(work.run, 0, before=0.1, after=0.2, accepted=True)
    tell_run(work)
    assert "tracking: tensorboard cannot write to" in said.getvalue()


def test_a_rolled_back_stage_shows_what_the_run_goes_on_from(tmp_path: Path, profile: Path) -> None:
    work, _ = new(tmp_path, profile, stages=3)
    assert run_points(work) == []
    decide(work.run, 0, before=0.1, after=0.3, accepted=True)
    decide(work.run, 1, before=0.3, after=0.2, accepted=False)
    # A stage after a gap belongs to no series yet.
    decide(work.run, 3, before=0.3, after=0.4, accepted=True)
    points = run_points(work)
    assert [point.step for point in points] == [0, 1]
    assert [point.values["run/anchor_valid"] for point in points] == [0.3, 0.2]
    assert [point.values["run/kept_valid"] for point in points] == [0.3, 0.3]
    assert [point.values["run/accepted"] for point in points] == [1.0, 0.0]
    assert [point.values["run/tokens"] for point in points] == [500, 1000]


def test_the_runs_setting_goes_before_the_profiles(tmp_path: Path, profile: Path) -> None:
    work, _ = new(tmp_path, profile, tracking=[])
    with stage_series(work, 0):
        pass
    tell_run(work)
    assert not (tmp_path / "tensorboard").exists()
    default, _ = new(tmp_path, profile)
    assert default.profile.tracking == ["tensorboard"]
    assert "tracking" not in default.identity["settings"], "a run of before there was the setting can be resumed"
    file = tmp_path / "settings.yaml"
    file.write_text("tracking: [wandb, mlflow]\n")
    with pytest.raises(SettingsError, match=r"tracking\.1 = 'mlflow': input should be 'tensorboard'"):
        load_settings(file, {})
