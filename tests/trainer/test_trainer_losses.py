"""Loss presets and the handling of lengths: what they mean to TRL, what contradicts, and one real step of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from toy import Toy
from transformers import PreTrainedTokenizerBase

from envsim import registry
from trainer.attempts import new_attempt
from trainer.checkpoint import load_tokenizer, resolve
from trainer.consistency import contradiction
from trainer.grpo import grpo_config, train
from trainer.lengths import check_room
from trainer.losses import PRESETS, Preset
from trainer.metrics import read_attempt
from trainer.spec import GenerationSettings, GrpoSettings, ModelRef, RewardWeights, StageSpec
from trainer.stage import StageInputError, check_spec
from trainer.trained import Trained, TrainingError, TrainingInputError

SETTINGS = ("loss_type", "importance_sampling_level", "scale_rewards", "epsilon", "epsilon_high")
MEANING = {
    "dapo": ("dapo", "token", "group", 0.2, 0.28),
    "dr_grpo": ("dr_grpo", "token", "none", 0.2, 0.2),
    "grpo": ("grpo", "token", "group", 0.2, 0.2),
    "gspo": ("grpo", "sequence", "group", 3e-4, 4e-4),
}


@pytest.fixture
def trained(make_spec: Callable[..., StageSpec], tmp_path: Path) -> Callable[..., tuple[Trained, Path]]:
    """A stage trained in this process: importing TRL once is enough for all."""

    def run(**changes: Any) -> tuple[Trained, Path]:
        spec = make_spec(**changes)
        attempt = new_attempt(tmp_path / "000", spec)
        return train(spec, attempt, tmp_path / "model", resume=None, started=time.time()), attempt

    return run


@pytest.mark.parametrize("loss", sorted(PRESETS))
def test_a_preset_says_what_trl_is_told_and_survives_a_file(
    make_spec: Callable[..., StageSpec], tmp_path: Path, loss: Preset
) -> None:
    spec = make_spec(loss=loss)
    assert StageSpec.model_validate_json(spec.model_dump_json()) == spec
    config = grpo_config(spec, tmp_path)
    # TRL keeps None of epsilon_high where both bounds are the same.
    assert tuple(getattr(config, name) or config.epsilon for name in SETTINGS) == MEANING[loss]


@pytest.mark.loop
@pytest.mark.parametrize("loss", [*sorted(PRESETS), None])
def test_each_preset_trains_a_step(trained: Callable[..., tuple[Trained, Path]], loss: Preset | None) -> None:
    result, attempt = trained(steps=1, loss=loss)
    assert result.steps == 1
    assert result.weight_change > 0
    [row] = read_attempt(attempt)
    assert 0 < row.gradient_norm < 100
    assert row.kl is None


@pytest.mark.loop
def test_a_kl_term_is_measured(trained: Callable[..., tuple[Trained, Path]]) -> None:
    _, attempt = trained(steps=3, beta=0.1, learning_rate=1e-2, tripwires={"kl_above": 1e6})
    rows = read_attempt(attempt)
    assert rows[0].kl == pytest.approx(0, abs=1e-4)
    assert rows[2].kl is not None
    assert rows[2].kl > 1e-4


@pytest.mark.loop
def test_answers_near_the_limit_are_punished_and_those_beyond_it_masked(
    trained: Callable[..., tuple[Trained, Path]],
) -> None:
    _, plain = trained(steps=1)
    _, punished = trained(steps=1, overlong={"cache": 7, "weight": 0.5})
    [before], [after] = read_attempt(plain), read_attempt(punished)
    # An untrained model does not stop: every answer has all 8 tokens, at the full price of a half.
    assert before.clipped == after.clipped == 1
    assert after.reward == before.reward - 0.5
    assert after.valid == before.valid
    with pytest.raises(TrainingError, match=r"the weights moved by 0\.0"):
        trained(steps=1, mask_truncated=True)


def test_what_is_given_beside_a_preset_wins_unless_it_is_what_makes_the_loss() -> None:
    settings = GrpoSettings(steps=1, loss="gspo", epsilon=0.2, scale_rewards="none", epsilon_high=None)
    assert (settings.epsilon, settings.scale_rewards, settings.epsilon_high) == (0.2, "none", None)
    assert GrpoSettings.model_validate_json(settings.model_dump_json()) == settings
    with pytest.raises(ValidationError, match="loss 'gspo' means loss_type 'grpo', got 'dapo'"):
        GrpoSettings(steps=1, loss="gspo", loss_type="dapo")
    with pytest.raises(ValidationError, match="loss 'dapo' means importance_sampling_level 'token', got 'sequence'"):
        GrpoSettings(steps=1, loss="dapo", importance_sampling_level="sequence")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "dpo"}, "'dapo', 'dr_grpo', 'grpo' or 'gspo'"),
        ({"importance_sampling_level": "sequence"}, "expected loss_type 'grpo', as loss 'gspo' has it"),
        ({"overlong": {"cache": 0}}, "greater than 0"),
    ],
)
def test_settings_that_mean_no_loss_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GrpoSettings.model_validate({"steps": 1, **settings})


@pytest.mark.parametrize(
    ("overlong", "message"),
    [
        ({"cache": 8}, "grpo.overlong.cache 8 leaves no answer unpunished; expected less than .*max_new_tokens 8"),
        ({"cache": 4, "weight": 1.0}, "grpo.overlong.weight 1 makes .* expected less than reward.valid 1"),
    ],
)
def test_a_penalty_that_turns_the_reward_round_is_refused(
    make_spec: Callable[..., StageSpec], overlong: dict[str, float], message: str
) -> None:
    spec = make_spec(overlong=overlong)
    assert contradiction(spec.grpo, spec.generation, spec.rollouts, spec.device, RewardWeights(valid=2)) is None or (
        "cache" in message
    )
    with pytest.raises(StageInputError, match=message):
        check_spec(spec)


@pytest.fixture(scope="module")
def seedling() -> PreTrainedTokenizerBase:
    return load_tokenizer(resolve("seedling"))


def test_a_limit_below_the_optimal_answers_is_told_with_numbers(seedling: PreTrainedTokenizerBase) -> None:
    lake = registry.get("lake")
    tasks = lake.generate(lake.default_config(), 200, 0).instances
    assert check_room(lake, tasks, "compact", seedling, 96) == []
    [warning] = check_room(lake, tasks, "compact", seedling, 20)
    assert warning.startswith("generation.max_new_tokens is 20, and ")
    needed = max(
        len(seedling(lake.reference_answer(task, "compact"), add_special_tokens=False)["input_ids"]) + 1
        for task in tasks
        if task.size == 10
    )
    assert check_room(lake, tasks, "compact", seedling, needed) == []
    with pytest.raises(TrainingInputError, match=r"max_new_tokens is 4, and the shortest .* no task can be solved"):
        check_room(lake, tasks, "compact", seedling, 4)


@pytest.mark.loop
def test_a_stage_that_no_answer_can_fit_is_bad_input_and_one_with_some_is_warned_of(
    trained: Callable[..., tuple[Trained, Path]], tiny: ModelRef
) -> None:
    room = GenerationSettings(max_new_tokens=1)
    with pytest.raises(TrainingInputError, match="the shortest optimal answer found needs 2 tokens"):
        trained(steps=1, generation=room)
    # The full style's answers in the toy grow with the number of the task, up to 32 letters.
    result, _ = trained(steps=1, style="full", generation=GenerationSettings(max_new_tokens=8))
    [warning] = result.warnings
    assert "max_new_tokens is 8, and 8 of the 8 largest tasks need up to 33 tokens" in warning
    assert Toy().reference_answer(Toy().instances(32)[31], "full") == "b" * 32
