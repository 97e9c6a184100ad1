"""The real thing: TRL in worker processes, killed, resumed and repeated."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.attempts import attempts, newest_checkpoint
from trainer.checkpoint import load, weight_distance
from trainer.metrics import read_attempt
from trainer.spec import ModelRef, StageSpec
from trainer.stage import run_stage

pytestmark = pytest.mark.loop


def test_a_stage_trains_reports_and_is_not_trained_twice(
    make_spec: Callable[..., StageSpec], tiny: ModelRef, tmp_path: Path
) -> None:
    spec, events = make_spec(), list[dict[str, Any]]()
    result = run_stage(spec, tmp_path / "000", on_progress=events.append)
    assert result.steps == 4
    assert result.spec_hash == spec.identity()
    assert result.weight_change == pytest.approx(weight_distance(Path(tiny.path), Path(result.model.path)))
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3, 4]
    assert result.generated_tokens == sum(event["tokens"] for event in events if event["event"] == "step")
    assert load(result.model)[0].dtype.is_floating_point
    assert run_stage(spec, tmp_path / "000") == result
    assert len(attempts(tmp_path / "000")) == 1


def test_same_seed_same_weights_and_another_seed_others(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    first = run_stage(make_spec(), tmp_path / "a")
    second = run_stage(make_spec(), tmp_path / "b")
    other = run_stage(make_spec(seed=8), tmp_path / "c")
    assert first.model.sha256 == second.model.sha256
    assert first.model.sha256 != other.model.sha256


def test_killed_workers_resume_to_the_very_same_weights(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    spec = make_spec(steps=6)
    straight = run_stage(spec, tmp_path / "straight")
    stage = tmp_path / "killed"

    def kill(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] >= 3 and len(attempts(stage)) == 1:
            found = newest_checkpoint(stage)
            assert found is not None
            record = (attempts(stage)[0] / "worker.json").read_text()
            os.kill(int(record.split('"pid":')[1].split(",")[0]), signal.SIGKILL)

    resumed = run_stage(spec, stage, on_progress=kill)
    assert resumed.attempt == 2
    assert resumed.resumed_from_step in (2, 4)
    assert resumed.model.sha256 == straight.model.sha256
    assert resumed.generated_tokens == straight.generated_tokens
    assert read_attempt(attempts(stage)[1])[0].step == resumed.resumed_from_step + 1
