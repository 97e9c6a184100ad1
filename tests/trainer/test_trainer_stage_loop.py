"""The real thing: TRL in worker processes, killed, resumed and repeated."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from shipped import spec_of
from toy import Toy

from trainer.attempts import attempts
from trainer.checkpoint import load, weight_distance
from trainer.dataset import write_dataset
from trainer.grpo import grpo_config
from trainer.metrics import read_attempt
from trainer.profile import load_profile
from trainer.spec import GenerationSettings, ModelRef, StageSpec
from trainer.stage import StageError, StageInputError, run_stage

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


def test_a_killed_worker_resumes_to_the_very_same_weights(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_MARK", str(tmp_path / "mark"))
    straight = run_stage(make_spec(steps=6), tmp_path / "straight")
    resumed = run_stage(make_spec(steps=6, environment="toy:Mortal"), tmp_path / "killed")
    assert (tmp_path / "mark").exists()
    # Sixteen verdicts a step: the fourth step never ended, and its checkpoint was that of the second.
    assert (resumed.attempt, resumed.resumed_from_step) == (2, 2)
    assert resumed.model.sha256 == straight.model.sha256
    assert resumed.generated_tokens == straight.generated_tokens
    assert [row.step for row in read_attempt(attempts(tmp_path / "killed")[1])] == [3, 4, 5, 6]


def test_memory_that_runs_out_costs_smaller_passes_and_not_the_batch(
    make_spec: Callable[..., StageSpec], tmp_path: Path
) -> None:
    whole = run_stage(make_spec(steps=2), tmp_path / "whole")
    small = run_stage(make_spec(steps=2, environment="toy:Small"), tmp_path / "small")
    assert [earlier.outcome for earlier in small.earlier] == ["out_of_memory"] * (small.attempt - 1)
    assert (small.micro_batch or 8) < 8
    assert (small.exact, whole.micro_batch, whole.exact) == (False, None, True)
    assert small.generated_tokens == whole.generated_tokens
    weights, others = (load_file(Path(result.model.path) / "model.safetensors") for result in (small, whole))
    apart = sum(float((weight - others[name]).square().sum()) for name, weight in weights.items()) ** 0.5
    assert apart < 0.05 * whole.weight_change


def test_a_soaked_stage_comes_through(tmp_path: Path) -> None:
    kills = 5
    command = [sys.executable, "-P", "-m", "trainer.soak", "--kills", str(kills), "--directory", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout.splitlines()[-1:] == [f"{kills} passed, 0 failed"], done.stdout + done.stderr
    assert done.returncode == 0
    assert [path.name for path in tmp_path.glob("trial-*") if path.is_dir()] == []
    # Started again it goes on after its last trial: here nothing is left to do.
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert again.stdout.splitlines()[-1:] == [f"{kills} passed, 0 failed"], again.stdout + again.stderr
    assert len(again.stdout.splitlines()) == 3


def test_repeated_prompts_are_refused_before_the_first_step(
    make_spec: Callable[..., StageSpec], toy: Toy, tmp_path: Path
) -> None:
    data = write_dataset(toy.instances(1) * 32, tmp_path / "repeated.jsonl")
    with pytest.raises(StageInputError, match="1 distinct prompts, expected at least 16"):
        run_stage(make_spec(dataset=data), tmp_path / "000")
    assert not (tmp_path / "000" / "result.json").exists()


def test_a_changed_model_is_refused(make_spec: Callable[..., StageSpec], tiny: ModelRef, tmp_path: Path) -> None:
    wrong = ModelRef(path=tiny.path, sha256="0" * 64)
    with pytest.raises(StageInputError, match="changed after it was referenced") as raised:
        run_stage(make_spec(init_model=wrong), tmp_path / "000")
    assert raised.value.outcome == "wrong_model"


def test_a_changed_dataset_is_refused(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    spec = make_spec()
    with Path(spec.dataset.path).open("a") as file:
        file.write("\n")
    with pytest.raises(StageInputError, match="the file changed after the stage was specified") as raised:
        run_stage(spec, tmp_path / "000")
    assert raised.value.outcome == "wrong_dataset"


def test_a_stage_without_any_signal_fails_loudly(make_spec: Callable[..., StageSpec], tmp_path: Path) -> None:
    with pytest.raises(StageError, match="nothing to learn"):
        # So cold that every answer of a group is the same.
        run_stage(
            make_spec(generation=GenerationSettings(max_new_tokens=8, temperature=1e-6), steps=1), tmp_path / "000"
        )


@pytest.mark.parametrize("name", ["seedling", "smollm2", "qwen3-4b"])
def test_every_profile_makes_a_valid_trl_configuration(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    spec = spec_of(name)
    # TRL refuses bfloat16 for a GPU where there is none; everything else is checked as it would run.
    config = grpo_config(spec.model_copy(update={"device": "cpu"}), tmp_path)
    assert config.generation_batch_size == profile.grpo.batch
    assert config.use_vllm == (profile.rollouts.kind == "vllm_colocate")
    assert config.bf16 == profile.grpo.bf16
    assert (config.top_p, config.top_k, config.min_p) == (1.0, 0, None)
