"""A training step in parts: rewards, data, metrics, and a backward pass over fewer rows with the same gradient."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from fake_worker import metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Toy

from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.solver import analyse
from trainer.checkpoint import load
from trainer.compaction import Batch, compact
from trainer.dataset import DatasetError, read_dataset, write_dataset
from trainer.metrics import append, mean_known, read_attempt, read_stage
from trainer.reward import reward_functions, reward_weights
from trainer.spec import ModelRef, RewardWeights


def test_rewards_are_the_verifiers_verdicts() -> None:
    toy = Toy()
    texts = [instance.model_dump_json() for instance in toy.instances(3)]
    completions = [[{"role": "assistant", "content": text}] for text in ("b", "bbbb", "a")]
    valid, optimal = reward_functions(toy)
    assert [function.__name__ for function in (valid, optimal)] == ["valid", "optimal"]
    assert valid(completions=completions, instance=texts, prompts=[], trainer_state=None) == [1.0, 1.0, 0.0]
    assert optimal(completions=completions, instance=texts) == [1.0, 0.0, 0.0]
    assert optimal(completions=completions[::-1], instance=texts) == [0.0, 0.0, 1.0]
    assert reward_weights(RewardWeights(valid=2, optimal=0.25)) == [2, 0.25]


def graded(
    instances: Sequence[LakeInstance], answers: Sequence[str], weights: RewardWeights
) -> tuple[list[float], dict[str, float]]:
    """What GRPO sees of each answer, and the means of what is logged."""
    logged: dict[str, list[float]] = defaultdict(list)
    columns = [
        function(
            completions=[[{"role": "assistant", "content": answer}] for answer in answers],
            instance=[instance.model_dump_json() for instance in instances],
            log_metric=lambda name, value: logged[name].append(value),
        )
        for function in reward_functions(Lake())
    ]
    own = reward_weights(weights)
    means = {name: sum(values) / len(values) for name, values in logged.items()}
    return [sum(w * r for w, r in zip(own, row, strict=True)) for row in zip(*columns, strict=True)], means


ROWS = ["....", "....", "....", "...."]
STARTS, GOALS = [(0, 0), (3, 3)], [(0, 3), (3, 0)]
ANSWERS = (
    "(0,0)(3,3)(0,1)(3,2)(0,2)(3,1)(0,3)(3,0)",
    "(0,0)(3,3)(0,0)(3,2)(0,1)(3,1)(0,2)(3,0)(0,3)(3,0)",
    "(0,0)(3,3)(1,0)(3,2)(1,1)(3,1)(1,2)(3,0)(1,3)(3,0)(0,3)(3,0)",
    "(0,0)(3,3)(0,1)(3,2)(0,2)(3,1)(0,3)(3,1)",
    "(0,0)(3,3)(0,1)(3,2)",
    "(0,0)(3,3)",
    "north",
)
"""Optimal, later, by a detour; then nearly there, a third of the way, not a step, and no plan."""
VALID = 3


def lake_task(**labels: float) -> LakeInstance:
    return certified(make_instance(ROWS, STARTS, GOALS, **labels))


def certified(instance: LakeInstance) -> LakeInstance:
    certificate = analyse(instance.rows, instance.starts, instance.goals).certificate()
    return instance.model_copy(update={"certificate": certificate})


def test_where_actions_are_certain_and_rewards_sparse_validity_pays_0_or_1() -> None:
    rewards, logged = graded([lake_task()] * len(ANSWERS), ANSWERS, RewardWeights())
    assert rewards == [1.5, 1, 1, 0, 0, 0, 0]
    assert logged == {"answers/valid": VALID / len(ANSWERS)}


@pytest.mark.parametrize("q", [1.0, 0.99, 0.95])
@pytest.mark.parametrize("shaping", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("weights", [{}, {"optimal": 0.0}, {"valid": 0.3, "optimal": 2.0}])
def test_every_valid_plan_earns_more_than_every_invalid_one(
    q: float, shaping: float, weights: dict[str, float]
) -> None:
    task = lake_task(success_rate=q, shaping=shaping)
    rewards, logged = graded([task] * len(ANSWERS), ANSWERS, RewardWeights(**weights))
    assert min(rewards[:VALID]) > max(rewards[VALID:])
    # Fewer moves fail less often.
    assert rewards[1] > rewards[2] or q == 1
    if shaping:
        assert rewards[VALID:] == sorted(rewards[VALID:], reverse=True)
        assert len(set(rewards[VALID:-1])) == len(rewards[VALID:-1]), (
            "answers that got differently far earn differently"
        )
    else:
        assert set(rewards[VALID:]) == {0.0}, "a sparse reward pays nothing for an invalid plan"
    assert ("answers/success" in logged) == (q < 1)
    assert ("answers/progress" in logged) == (shaping > 0)


def test_an_all_invalid_group_has_a_signal_only_where_it_is_shaped() -> None:
    for shaping, kinds in ((0.0, 1), (0.2, 3)):
        rewards, _ = graded([lake_task(shaping=shaping)] * 3, ANSWERS[VALID : VALID + 3], RewardWeights())
        assert len(set(rewards)) == kinds


def test_figures_of_a_batch_count_the_tasks_that_they_speak_of() -> None:
    tasks = [lake_task(), lake_task(success_rate=0.95), lake_task(success_rate=0.95), lake_task(shaping=0.3)]
    _, logged = graded(tasks, [ANSWERS[0], ANSWERS[0], ANSWERS[5], ANSWERS[4]], RewardWeights())
    assert logged["answers/valid"] == 0.5
    assert 0.95**6 <= logged["answers/success"] < 0.95**4
    assert logged["answers/progress"] == pytest.approx(1 / 3)


def test_a_completion_is_verified_once_for_both_rewards() -> None:
    calls = []

    class Counting(Toy):
        def score(self, instance: object, answer: str):  # type: ignore[no-untyped-def]
            calls.append(answer)
            return super().score(instance, answer)  # type: ignore[arg-type]

    valid, optimal = reward_functions(Counting())
    arguments = {
        "completions": [[{"role": "assistant", "content": "b"}]],
        "instance": [Toy().instances(1)[0].model_dump_json()],
    }
    valid(**arguments)
    optimal(**arguments)
    assert calls == ["b"]


def test_datasets_are_frozen(tmp_path: Path) -> None:
    toy = Toy()
    ref = write_dataset(toy.instances(3), tmp_path / "data.jsonl")
    assert read_dataset(toy, ref) == toy.instances(3)
    path = Path(ref.path)
    path.write_text(path.read_text().replace("toy-2", "toy-9"))
    with pytest.raises(DatasetError, match="the file changed"):
        read_dataset(toy, ref)
    with pytest.raises(DatasetError, match="does not exist"):
        read_dataset(toy, ref.model_copy(update={"path": str(tmp_path / "nowhere")}))
    with pytest.raises(DatasetError, match="would be empty"):
        write_dataset([], tmp_path / "none.jsonl")


def test_metrics_without_noise_and_shaping_read_as_ever(tmp_path: Path) -> None:
    plain = metrics(1, 2)
    append(tmp_path, plain)
    append(tmp_path, plain.model_copy(update={"step": 2, "success": 0.75, "progress": 0.5}))
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert set(second) - set(first) == {"success", "progress"}
    rows = read_attempt(tmp_path)
    assert [(row.success, row.progress) for row in rows] == [(None, None), (0.75, 0.5)]
    assert mean_known(row.success for row in rows) == 0.75
    assert mean_known([None]) is None


def test_steps_trained_twice_count_once_and_torn_lines_wait(tmp_path: Path) -> None:
    first, second = tmp_path / "attempt-1", tmp_path / "attempt-2"
    for attempt, steps in ((first, (1, 2, 3)), (second, (3, 4))):
        attempt.mkdir()
        for step in steps:
            append(attempt, metrics(step, 4).model_copy(update={"tokens": step if attempt == first else 100}))
    assert [(row.step, row.tokens) for row in read_stage([first, second])] == [(1, 1), (2, 2), (3, 100), (4, 100)]
    with (second / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "to')
    assert [row.step for row in read_attempt(second, skip=1)] == [4]


def gradient(tiny: ModelRef, batches: list[Batch]) -> torch.Tensor:
    model, _ = load(tiny)
    for batch in batches:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        width = batch["completion_ids"].shape[1]
        logits = model(input_ids=ids, attention_mask=mask).logits[:, -width - 1 : -1]
        chosen = torch.log_softmax(logits, -1).gather(-1, batch["completion_ids"][..., None])[..., 0]
        ratio = torch.exp(chosen - chosen.detach())
        loss = -(ratio * batch["advantages"][:, None] * batch["completion_mask"]).sum() / batch["num_items_in_batch"]
        loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def make_batches(advantages: list[float], micro: int, seed: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    rows = len(advantages)
    prompts = torch.randint(1, 5, (rows,), generator=generator)
    lengths = torch.randint(1, 7, (rows,), generator=generator)
    whole = {
        "prompt_ids": torch.randint(5, 260, (rows, 5), generator=generator),
        "prompt_mask": (torch.arange(5) >= 5 - prompts[:, None]).long(),
        "completion_ids": torch.randint(5, 260, (rows, 7), generator=generator),
        "completion_mask": (torch.arange(7) < lengths[:, None]).long(),
        "advantages": torch.tensor(advantages),
    }
    items = whole["completion_mask"].sum()
    return [
        {key: tensor[start : start + micro] for key, tensor in whole.items()} | {"num_items_in_batch": items}
        for start in range(0, rows, micro)
    ]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, -1.0, 0.5]), min_size=8, max_size=8), st.integers(0, 1000))
def test_compaction_keeps_the_gradient(tiny: ModelRef, advantages: list[float], seed: int) -> None:
    batches = make_batches(advantages, micro=4, seed=seed)
    smaller = compact(batches)
    assert len(smaller) == len(batches)
    assert all(len(batch["advantages"]) >= 1 for batch in smaller)
    kept = sum(len(batch["advantages"]) for batch in smaller)
    assert kept == max(len(batches), sum(value != 0 for value in advantages))
    torch.testing.assert_close(gradient(tiny, smaller), gradient(tiny, batches), rtol=1e-3, atol=1e-6)


def test_batches_with_more_in_them_are_refused() -> None:
    batches = make_batches([1.0] * 4, micro=4, seed=0)
    batches[0]["old_per_token_logps"] = torch.zeros(4, 7)
    with pytest.raises(ValueError, match="cannot compact"):
        compact(batches)
