"""Tripwires: which figures cross which wire, and a stage that is stopped by one and says so."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_worker import metrics
from pydantic import ValidationError
from transformers import TrainerControl, TrainerState, TrainingArguments

from trainer.attempts import attempts
from trainer.checkpoint import load
from trainer.metrics import SftMetrics, StepMetrics, append, read_attempt
from trainer.resume import resume_point
from trainer.spec import GrpoSettings, ModelRef, StageSpec, Trip, Tripwires
from trainer.stage import run_stage
from trainer.training_settings import SftSettings, SftTripwires
from trainer.tripwires import Watch, extremes, judge

OFF = dict.fromkeys(
    ("entropy_below", "length_growth", "clipped_above", "kl_above", "gradient_norm_above", "reward_share"), None
)


def only(window: int = 3, **wires: float) -> Tripwires:
    return Tripwires(**(OFF | wires), window=window)


def stage(**series: list[float]) -> list[StepMetrics]:
    n = len(next(iter(series.values())))
    return [
        metrics(step, n).model_copy(update={name: values[step - 1] for name, values in series.items()})
        for step in range(1, n + 1)
    ]


@pytest.mark.parametrize(
    ("wires", "series", "figure"),
    [
        (only(entropy_below=0.2), {"entropy": [0.4, 0.3, 0.1, 0.1]}, 0.5 / 3),
        (only(length_growth=1.9), {"length": [4, 4, 4, 10, 10]}, 2.0),
        (only(clipped_above=0.5), {"clipped": [0.0, 0.5, 0.6, 0.7]}, 0.6),
        (only(kl_above=1), {"kl": [0.0, 0.5, 1.5, 2.5]}, 1.5),
        (only(gradient_norm_above=2), {"gradient_norm": [1, 1, 1, 5]}, 7 / 3),
        (only(reward_share=0.5), {"reward": [0.9, 0.9, 0.9, 0.4, 0.4, 0.4]}, 0.4 / 0.9),
        (only(window=1, reward_share=0.5), {"reward": [0.1, 0.9, 0.4]}, 0.4 / 0.9),
    ],
)
def test_each_wire_is_crossed_by_the_mean_of_its_window(
    wires: Tripwires, series: dict[str, list[float]], figure: float
) -> None:
    rows = stage(**series)
    crossed = [judge(rows[:end], wires) for end in range(1, len(rows) + 1)]
    [armed] = [name for name, value in wires if value is not None and name != "window"]
    assert crossed[:-1] == [None] * (len(rows) - 1)
    trip = crossed[-1]
    assert trip is not None
    assert (trip.wire, trip.step, trip.threshold) == (armed, len(rows), getattr(wires, armed))
    assert trip.figure == pytest.approx(figure)


def supervised(**series: list[float]) -> list[SftMetrics]:
    n = len(next(iter(series.values())))
    row = SftMetrics(step=1, steps=n, loss=1.0, tokens=9, gradient_norm=1.0, learning_rate=1e-3, seconds=0.1)
    return [
        row.model_copy(update={"step": step} | {name: values[step - 1] for name, values in series.items()})
        for step in range(1, n + 1)
    ]


@pytest.mark.parametrize(
    ("wires", "series", "trip"),
    [
        (SftTripwires(window=2), {"loss": [2.0, 1.0, 1.0, 1.0, 2.0, 1.5]}, ("loss_growth", 6, 1.75)),
        (SftTripwires(window=2), {"loss": [1.0, 1.4, 2.0]}, ("loss_growth", 3, 1.7)),
        (SftTripwires(window=2), {"loss": [2.0, 1.0, math.nan]}, ("loss_growth", 3, None)),
        (SftTripwires(window=2), {"gradient_norm": [1.0, 1.0, 1.0, 300.0]}, ("gradient_norm_above", 4, 150.5)),
        (SftTripwires(window=5), {"gradient_norm": [1.0, math.inf]}, ("gradient_norm_above", 2, None)),
    ],
)
def test_supervised_stages_have_wires_of_their_own(
    wires: SftTripwires, series: dict[str, list[float]], trip: tuple[str, int, float | None]
) -> None:
    rows = supervised(**series)
    assert all(judge(rows[:end], wires) is None for end in range(1, len(rows)))
    found = judge(rows, wires)
    assert found is not None
    assert (found.wire, found.step) == trip[:2]
    assert found.figure == (None if trip[2] is None else pytest.approx(trip[2]))
    assert all(judge(supervised(loss=[3.0 - 0.1 * n for n in range(20)])[:end], wires) is None for end in range(1, 21))


def test_the_extremes_of_a_supervised_stage_are_what_its_wires_were_judged_by() -> None:
    wires = SftTripwires(window=2)
    rows = supervised(loss=[2.0, 1.0, 1.0, 1.0, 1.4, 1.0], gradient_norm=[9.0, 1.0, 1.0, 1.0, 3.0, 2.0])
    largest = extremes(rows, wires)
    assert largest == {"loss_growth": pytest.approx(1.2), "gradient_norm_above": pytest.approx(5.0)}
    at_the_edge = SftTripwires(window=2, loss_growth=1.2001, gradient_norm_above=5.0001)
    assert all(judge(rows[:end], at_the_edge) is None for end in range(1, 7))
    assert extremes(rows, SftTripwires(window=2, loss_growth=None)) == {"gradient_norm_above": pytest.approx(5.0)}
    assert extremes(rows[:1], wires) == {}
    assert extremes(supervised(loss=[1.0, math.nan, 1.0, 1.0]), wires)["loss_growth"] == math.inf


def test_supervised_wires_that_cannot_work_are_refused_and_none_are_left_out() -> None:
    with pytest.raises(ValidationError, match="every wire is disarmed"):
        SftTripwires(loss_growth=None, gradient_norm_above=None)
    assert "tripwires" not in SftSettings(steps=1).model_dump()


@pytest.mark.parametrize(
    ("wire", "name"),
    [("entropy_below", "entropy"), ("gradient_norm_above", "gradient_norm"), ("kl_above", "kl")],
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_crosses_at_once(wire: str, name: str, value: float) -> None:
    trip = judge(stage(**{name: [value]}), only(window=5, **{wire: 1.0}))
    crosses = not (name == "entropy" and value == math.inf) and not (name != "entropy" and value == -math.inf)
    assert (trip is not None) == crosses
    if trip is not None:
        assert trip.figure is None
        assert Trip.model_validate_json(trip.model_dump_json()) == trip
        assert "no finite number" in str(trip)


def test_a_step_that_diverged_is_read_as_it_was_written(tmp_path: Path) -> None:
    [row] = stage(gradient_norm=[math.nan])
    append(tmp_path, row.model_copy(update={"entropy": math.inf}))
    [found] = read_attempt(tmp_path)
    assert math.isnan(found.gradient_norm)
    assert found.entropy == math.inf


def test_a_healthy_stage_crosses_nothing_and_neither_does_one_that_never_earned() -> None:
    healthy = stage(reward=[0.1 + 0.01 * step for step in range(60)], length=[20 - 0.1 * step for step in range(60)])
    barren = stage(reward=[0.0] * 60)
    for rows in (healthy, barren):
        assert all(judge(rows[:end], Tripwires()) is None for end in range(1, 61))


def test_without_tripwires_a_spec_reads_as_it_always_did(make_spec: Callable[..., StageSpec]) -> None:
    spec = make_spec()
    added = {"loss", "importance_sampling_level", "epsilon", "mask_truncated", "overlong", "tripwires"}
    assert not added & set(spec.model_dump(mode="json")["grpo"])
    assert make_spec(tripwires={}).identity() != spec.identity()
    armed = make_spec(tripwires={"window": 2})
    assert StageSpec.model_validate_json(armed.model_dump_json()) == armed


@pytest.mark.parametrize(
    ("wires", "message"),
    [
        (OFF, "every wire is disarmed"),
        ({"kl_above": 1.0}, r"tripwires.kl_above is 1 and beta 0"),
        ({"reward_share": 1.5}, "less than 1"),
        ({"entropy": 1.5}, "Extra inputs"),
    ],
)
def test_wires_that_cannot_work_are_refused(wires: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoSettings.model_validate({"steps": 1, "tripwires": wires})


def watched(rank: int, folder: str) -> None:
    """One of two processes: only the first has metrics to read."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    attempt = Path(folder) / f"rank-{rank}" / "attempt-1"
    attempt.mkdir(parents=True)
    watch = Watch(attempt, only(window=1, reward_share=0.5), None)
    stopped = []
    for step, reward in enumerate([0.9, 0.8, 0.1], start=1):
        if rank == 0:
            append(attempt, metrics(step, 9).model_copy(update={"reward": reward}))
        control = watch.on_log(TrainingArguments(use_cpu=True), TrainerState(), TrainerControl(), logs={})
        stopped.append(control.should_training_stop)
    (Path(folder) / f"stopped-{rank}").write_text(json.dumps(stopped))
    torch.distributed.destroy_process_group()


def test_all_processes_stop_at_the_same_step(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(watched, (str(tmp_path),), nprocs=2)
    assert [json.loads((tmp_path / f"stopped-{rank}").read_text()) for rank in (0, 1)] == [[False, False, True]] * 2


@pytest.mark.loop
def test_a_tripped_stage_stops_at_its_step_and_is_not_trained_again(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    # An untrained model's entropy is some nats; its gradient norm is above a hundred-millionth.
    spec = make_spec(steps=6, save_every=4, tripwires=OFF | {"gradient_norm_above": 1e-8, "window": 3})
    events: list[dict[str, Any]] = []
    result = run_stage(spec, tmp_path / "000", on_progress=events.append)
    assert result.tripped is not None
    assert (result.tripped.wire, result.tripped.step, result.steps) == ("gradient_norm_above", 3, 3)
    assert result.tripped.figure is not None
    assert result.tripped.figure > 1e-8
    assert result.weight_change > 0
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3]
    assert resume_point(tmp_path / "000", spec.identity()).step == 3, (
        "the step's checkpoint is kept, though it is no multiple of save_every"
    )
    assert run_stage(spec, tmp_path / "000") == result
    assert len(attempts(tmp_path / "000")) == 1

    # Killed between checkpoint and result: the next attempt says the same and trains no further.
    (tmp_path / "000" / "result.json").unlink()
    shutil.rmtree(tmp_path / "000" / "model")
    again = run_stage(spec, tmp_path / "000")
    assert (again.attempt, again.resumed_from_step) == (2, 3)
    assert (again.tripped, again.model.sha256, again.steps) == (result.tripped, result.model.sha256, 3)
    assert again.generated_tokens == result.generated_tokens


@pytest.mark.loop
def test_weights_lost_to_nan_leave_the_model_that_the_stage_began_with(
    make_spec: Callable[..., StageSpec], tiny: ModelRef, tmp_path: Path
) -> None:
    spec = make_spec(learning_rate=1e30, max_grad_norm=0, tripwires=OFF | {"gradient_norm_above": 1e6, "window": 4})
    result = run_stage(spec, tmp_path / "000")
    assert result.tripped is not None
    assert result.tripped.step < 4
    assert result.weight_change == 0
    assert result.model.sha256 == tiny.sha256
    load(result.model)
    assert json.loads((tmp_path / "000" / "result.json").read_text())["tripped"]["figure"] is None
