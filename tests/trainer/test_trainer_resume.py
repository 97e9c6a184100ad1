"""Where a stage may go on: whole checkpoints of its own on window borders; all else is passed over by name."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_worker import metrics

from trainer.attempts import new_attempt
from trainer.draining import Drain
from trainer.grpo import TrainingInputError, sampling_window
from trainer.metrics import append, read_attempt
from trainer.outcomes import AttemptRecord, versions, write_record
from trainer.resume import COMPLETE, history, mark_complete, resume_point
from trainer.rollouts import sampling_seed
from trainer.spec import StageSpec

Damage = Callable[[Path], None]


@pytest.fixture
def spec(make_spec: Callable[..., StageSpec]) -> StageSpec:
    return make_spec()


def attempt_of(stage: Path, spec: StageSpec, steps: range, **record: Any) -> Path:
    """An attempt with a checkpoint after each step."""
    attempt = new_attempt(stage, spec)
    values: dict[str, Any] = {"spec_hash": spec.identity(), "micro_batch": 8, "versions": versions()}
    write_record(attempt, AttemptRecord(**(values | record)))
    for step in steps:
        append(attempt, metrics(step, 9))
        checkpoint = attempt / f"checkpoint-{step}"
        checkpoint.mkdir()
        for name in ("model.safetensors", "optimizer.pt", "trainer_state.json"):
            (checkpoint / name).write_text(f"{name} of {step}")
        mark_complete(checkpoint)
    return attempt


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


def remark(path: Path, **changes: Any) -> None:
    marker = path / COMPLETE
    marker.write_text(json.dumps(json.loads(marker.read_text()) | changes))


@pytest.mark.parametrize(
    ("damage", "fault", "word"),
    [
        (lambda path: (path / COMPLETE).unlink(), "torn_checkpoint", "there is no COMPLETE"),
        (lambda path: (path / COMPLETE).write_text(""), "torn_checkpoint", "COMPLETE is no marker"),
        (lambda path: (path / COMPLETE).write_text("[]"), "torn_checkpoint", "COMPLETE is no marker"),
        (lambda path: (path / COMPLETE).write_text('{"step": 3}'), "torn_checkpoint", "COMPLETE is no marker"),
        (lambda path: (path / "optimizer.pt").unlink(), "missing_file", "optimizer.pt is missing"),
        (lambda path: (path / "optimizer.pt").write_text(""), "wrong_hash", "optimizer.pt has sha256 e3b0c44298fc"),
        (lambda path: flip(path / "model.safetensors"), "wrong_hash", "model.safetensors has sha256"),
        (lambda path: flip(path / "metrics.jsonl"), "wrong_hash", "metrics.jsonl has sha256"),
        (lambda path: remark(path, spec_hash="0" * 64), "wrong_spec", "it is of step 3 of spec 000000000000"),
        (lambda path: remark(path, step=2), "wrong_spec", "it is of step 2"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    spec: StageSpec, tmp_path: Path, damage: Damage, fault: str, word: str
) -> None:
    attempt = attempt_of(tmp_path, spec, range(1, 4))
    assert resume_point(tmp_path, spec.identity()).step == 3
    damage(attempt / "checkpoint-3")
    found = resume_point(tmp_path, spec.identity())
    assert (found.step, found.checkpoint) == (2, attempt / "checkpoint-2")
    assert [(passed.path, passed.fault) for passed in found.passed_over] == [("attempt-1/checkpoint-3", fault)]
    assert found.passed_over[0].detail.startswith(word)


def test_the_furthest_whole_checkpoint_of_all_attempts_counts(spec: StageSpec, tmp_path: Path) -> None:
    assert resume_point(tmp_path, spec.identity()).step is None
    attempt_of(tmp_path, spec, range(1, 11))
    later = attempt_of(tmp_path, spec, range(3, 11))
    assert resume_point(tmp_path, spec.identity()).checkpoint == later / "checkpoint-10"
    (later / "checkpoint-10" / COMPLETE).unlink()
    assert resume_point(tmp_path, spec.identity()).checkpoint == tmp_path / "attempt-1" / "checkpoint-10"


def test_a_checkpoint_inside_a_window_is_passed_over(spec: StageSpec, tmp_path: Path) -> None:
    attempt_of(tmp_path, spec, range(2, 6))
    found = resume_point(tmp_path, spec.identity(), window=2)
    assert (found.step, [passed.fault for passed in found.passed_over]) == (4, ["off_window"])


def test_saves_off_the_window_are_refused() -> None:
    config = SimpleNamespace(steps_per_generation=4, num_iterations=3, gradient_accumulation_steps=4, save_steps=6)
    assert sampling_window(config) == 3
    config.save_steps = 10
    with pytest.raises(TrainingInputError, match="save_every is 10, expected a multiple of 3"):
        sampling_window(config)


def test_other_versions_and_smaller_passes_are_not_exact(spec: StageSpec, tmp_path: Path) -> None:
    attempt = attempt_of(tmp_path, spec, range(1, 3))
    assert resume_point(tmp_path, spec.identity()).exact
    remark(attempt / "checkpoint-2", versions=versions() | {"torch": "1.0"})
    assert not resume_point(tmp_path, spec.identity()).exact
    attempt_of(tmp_path, spec, range(3, 4), exact=False)
    found = resume_point(tmp_path, spec.identity())
    assert (found.step, found.exact) == (3, False)


def test_a_checkpoint_brings_the_metrics_that_led_to_it(spec: StageSpec, tmp_path: Path) -> None:
    first = attempt_of(tmp_path, spec, range(1, 4))
    (first / "metrics.jsonl").write_text("torn and gone")
    second = attempt_of(tmp_path, spec, range(3, 5), resumed_from="attempt-1/checkpoint-2")
    assert [row.step for row in history(second)] == [1, 2, 3, 4]
    assert [row.step for row in read_attempt(second / "checkpoint-3")] == [1, 2, 3]


def test_sampling_seeds_differ_by_step_and_seed_and_not_by_attempt(make_spec: Callable[..., StageSpec]) -> None:
    seeds = [sampling_seed(make_spec(seed=seed), step) for seed in range(5) for step in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert sampling_seed(make_spec(seed=3), 7) == sampling_seed(make_spec(seed=3), 7)


def test_sigterm_ends_the_step_saves_and_leaves() -> None:
    before = signal.getsignal(signal.SIGTERM)
    drain, control = Drain(window=2), SimpleNamespace(should_save=False, should_training_stop=False)
    arguments: Any = SimpleNamespace(world_size=1)
    state: Any = SimpleNamespace(global_step=2)
    after: Any = control
    try:
        drain.on_train_begin(arguments, state, after)
        drain.on_step_end(arguments, state, after)
        assert not control.should_training_stop
        signal.raise_signal(signal.SIGTERM)
        state.global_step = 3
        drain.on_step_end(arguments, state, after)
        assert not control.should_training_stop, "a step inside a window is no place to stop"
        state.global_step = 4
        drain.on_step_end(arguments, state, after)
        assert (drain.asked, control.should_save, control.should_training_stop) == (True, True, True)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "a second signal ends the process at once"
    finally:
        signal.signal(signal.SIGTERM, before)
