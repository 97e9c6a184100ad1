"""Role episodes beside the tasks of a stage: their gradient, their order, their faults and their worth."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from transformers import TrainerCallback

from trainer import course, grpo
from trainer.attempts import attempts
from trainer.checkpoint import load
from trainer.dataset import DatasetError
from trainer.imitation import answer_end, row_of
from trainer.metrics import read_attempt
from trainer.role_rehearsal import read_episodes, rehearsal_of, write_episodes
from trainer.spec import DataRef, LoraSettings, ModelRef, Ranks, RoleRehearsal, StageSpec
from trainer.stage import StageInputError, run_stage
from trainer.trained import TrainingInputError

N, BATCH = 20, 5


@pytest.fixture
def episodes(tmp_path: Path) -> DataRef:
    """Lengths of prompt and answer differ, so that rows are padded."""
    return write_episodes(
        [
            json.dumps(
                {
                    "role": "critic",
                    "messages": [
                        {"role": "system", "content": "judge"},
                        {"role": "user", "content": f"{'x' * (n % 7)} {n}"},
                    ],
                    "answer": "no" if n % 3 else "yes, so be it",
                }
            )
            for n in range(N)
        ],
        tmp_path / "episodes.jsonl",
    )


@pytest.fixture
def rehearsing(make_spec: Callable[..., StageSpec], episodes: DataRef) -> Callable[..., StageSpec]:
    def make(**changes: Any) -> StageSpec:
        settings = {"every": 1, "batch": BATCH, "weight": 0.5, "data": episodes} | changes.pop("role_rehearsal", {})
        return make_spec(role_rehearsal=RoleRehearsal(**settings), **changes)

    return make


class Grab(TrainerCallback):
    """The gradients with which each optimizer step is made, one vector a step."""

    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self.steps.append(flat_gradient(model))


def flat_gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None])


def gradients(spec: StageSpec, attempt: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[torch.Tensor], Any]:
    """What a stage steps by, and its trainer, in this process."""
    taken: list[Any] = []
    attempt.mkdir(parents=True)
    (attempt / "spec.json").write_text(spec.model_dump_json())
    with monkeypatch.context() as patch:
        patch.setattr(course, "run", lambda trainer, *_, **__: taken.append(trainer))
        grpo.train(spec, attempt, attempt / "model", resume=None, started=time.time())
    [trainer], grab = taken, Grab()
    trainer.add_callback(grab)
    trainer.train()
    return grab.steps, trainer


def plain_gradient(spec: StageSpec, step: int) -> tuple[torch.Tensor, float]:
    """The gradient of the mean cross entropy of a step's episodes, each row alone and unpadded, and that mean."""
    model, tokenizer = load(spec.init_model)
    rehearsal = rehearsal_of(spec, model, tokenizer)
    assert rehearsal is not None
    rows = rehearsal.rows(step)
    tokens, total = sum(len(answer) for _, answer in rows), 0.0
    for prompt, answer in rows:
        logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
        loss = -logits.log_softmax(-1)[torch.arange(len(answer)), answer].sum() / tokens
        loss.backward()
        total += float(loss.detach())
    return flat_gradient(model), total


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"micro_batch": 2},
        {"micro_batch": 16},
        {"loss_type": "grpo"},
        {"gradient_checkpointing": True},
    ],
)
def test_a_step_is_made_by_the_policys_gradient_and_that_of_the_whole_batch(
    make_spec: Callable[..., StageSpec],
    rehearsing: Callable[..., StageSpec],
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = {"steps": 1, "save_every": 1, "max_grad_norm": 0.0} | changes
    spec = rehearsing(**numbers)
    [without], _ = gradients(make_spec(**numbers), tmp_path / "without", monkeypatch)
    [with_roles], trainer = gradients(spec, tmp_path / "with", monkeypatch)
    roles, loss = plain_gradient(spec, 1)
    assert roles.norm() > 0.1
    torch.testing.assert_close(with_roles - without, 0.5 * roles, rtol=1e-3, atol=2e-5)
    assert trainer.state.log_history[0]["role_loss"] == pytest.approx(loss, rel=1e-4)


def test_under_bf16_the_gradient_is_near_the_plain_one(
    make_spec: Callable[..., StageSpec],
    rehearsing: Callable[..., StageSpec],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = {"steps": 1, "save_every": 1, "max_grad_norm": 0.0, "bf16": True}
    spec = rehearsing(**numbers)
    [without], _ = gradients(make_spec(**numbers), tmp_path / "without", monkeypatch)
    [with_roles], _ = gradients(spec, tmp_path / "with", monkeypatch)
    roles, _ = plain_gradient(spec, 1)
    apart = (with_roles - without - 0.5 * roles).norm() / (0.5 * roles).norm()
    assert 0 < apart < 0.05


def test_only_due_steps_rehearse(
    rehearsing: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = rehearsing(role_rehearsal={"every": 3}, steps=7)
    _, trainer = gradients(spec, tmp_path / "stage", monkeypatch)
    told = [entry["step"] for entry in trainer.state.log_history if "role_loss" in entry]
    assert told == [3, 6]


def test_what_a_step_shows_follows_from_the_seed_and_the_step(rehearsing: Callable[..., StageSpec]) -> None:
    def shown(spec: StageSpec, steps: range) -> list[list[Any]]:
        rehearsal = rehearsal_of(spec, *load(spec.init_model))
        assert rehearsal is not None
        return [rehearsal.rows(step) for step in steps]

    spec = rehearsing(role_rehearsal={"batch": 6})
    first = shown(spec, range(1, 11))
    # Asked for in another order, as a stage does that goes on from the middle.
    assert shown(spec, range(10, 0, -1)) == first[::-1]
    assert shown(spec.model_copy(update={"seed": 8}), range(1, 11)) != first
    rows = [str(row) for batch in first for row in batch]
    # Sixty rows are three turns of twenty episodes.
    assert all(rows.count(row) == 3 for row in rows)
    assert all(len({str(row) for row in batch}) >= 5 for batch in first)
    # Every other step takes up where the last rehearsal ended.
    slow = shown(rehearsing(role_rehearsal={"batch": 6, "every": 2}), range(2, 21, 2))
    assert slow == first


def test_roles_are_encoded_as_they_are_asked(rehearsing: Callable[..., StageSpec], tiny: ModelRef) -> None:
    model, tokenizer = load(tiny)
    spec = rehearsing()
    rehearsal = rehearsal_of(spec, model, tokenizer)
    assert rehearsal is not None
    prompts = {tokenizer.decode(prompt): tokenizer.decode(answer) for prompt, answer in rehearsal.rows(1)}
    assert all(prompt.startswith("<|system|>judge<|end|><|user|>") for prompt in prompts)
    assert all(prompt.endswith("<|end|><|assistant|>") for prompt in prompts)
    assert set(prompts.values()) <= {"no<|end|>", "yes, so be it<|end|>"}
    row = row_of(
        tokenizer, [{"role": "user", "content": "a"}], "b", end=answer_end(model, tokenizer), template_arguments={}
    )
    assert tokenizer.decode(row[0] + row[1]) == "<|user|>a<|end|><|assistant|>b<|end|>"


def test_a_stage_without_rehearsal_is_what_it_was(
    make_spec: Callable[..., StageSpec], rehearsing: Callable[..., StageSpec]
) -> None:
    plain, spec = make_spec(), rehearsing()
    assert "role_rehearsal" not in plain.model_dump(mode="json")
    assert spec.identity() != plain.identity()
    assert spec.role_rehearsal is not None
    elsewhere = spec.role_rehearsal.model_copy(
        update={"data": spec.role_rehearsal.data.model_copy(update={"path": "x"})}
    )
    assert spec.model_copy(update={"role_rehearsal": elsewhere}).identity() == spec.identity()
    for name, value in (("every", 2), ("batch", 6), ("weight", 1.0)):
        assert rehearsing(role_rehearsal={name: value}).identity() != spec.identity()
    other = spec.role_rehearsal.data.model_copy(update={"sha256": "0" * 64})
    assert rehearsing(role_rehearsal={"data": other}).identity() != spec.identity()


def test_a_file_that_is_missing_altered_or_no_file_of_episodes_is_refused(episodes: DataRef, tmp_path: Path) -> None:
    assert len(read_episodes(episodes)) == N
    lost = episodes.model_copy(update={"path": str(tmp_path / "lost.jsonl")})
    with pytest.raises(
        DatasetError, match=r"role episodes .*lost.jsonl does not exist; write it with python -m agents"
    ):
        read_episodes(lost)
    text = Path(episodes.path).read_text()
    Path(episodes.path).write_text(text.replace("yes", "aye"))
    with pytest.raises(DatasetError, match=rf"episodes.jsonl has sha256 [0-9a-f]{{64}}, expected {episodes.sha256}"):
        read_episodes(episodes)
    bad = write_episodes(['{"messages": [{"role": "user", "content": "x"}]}'], tmp_path / "bad.jsonl")
    with pytest.raises(DatasetError, match=r"bad.jsonl, line 1 is no episode: answer .*Field required"):
        read_episodes(bad)
    with pytest.raises(DatasetError, match="has 1 episodes, expected 2"):
        read_episodes(bad.model_copy(update={"n": 2}))


def test_an_episode_longer_than_the_model_reads_is_refused(
    rehearsing: Callable[..., StageSpec], tiny: ModelRef, tmp_path: Path
) -> None:
    rows = [json.dumps({"messages": [{"role": "user", "content": "x" * n}], "answer": "y"}) for n in (5, 600)]
    spec = rehearsing(role_rehearsal={"data": write_episodes(rows, tmp_path / "long.jsonl"), "batch": 2})
    with pytest.raises(TrainingInputError, match=r"line 2 has 60\d tokens, expected at most the 512"):
        rehearsal_of(spec, *load(tiny))


def test_numbers_that_would_rehearse_nothing_or_one_thing_twice_are_refused(
    rehearsing: Callable[..., StageSpec], tmp_path: Path
) -> None:
    with pytest.raises(ValidationError, match="batch 21 exceeds the 20 episodes"):
        rehearsing(role_rehearsal={"batch": 21})
    with pytest.raises(StageInputError, match=r"role_rehearsal.every 5 exceeds grpo.steps 4"):
        run_stage(rehearsing(role_rehearsal={"every": 5}), tmp_path / "000")


@pytest.mark.loop
def test_a_killed_worker_rehearses_to_the_very_same_weights(
    rehearsing: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_MARK", str(tmp_path / "mark"))
    straight = run_stage(rehearsing(steps=6), tmp_path / "straight")
    resumed = run_stage(rehearsing(steps=6, environment="toy:Mortal"), tmp_path / "killed")
    assert (resumed.attempt, resumed.resumed_from_step) == (2, 2)
    assert resumed.model.sha256 == straight.model.sha256
    assert resumed.rehearsed == straight.rehearsed
    assert straight.rehearsed is not None
    assert straight.rehearsed.episodes == 6 * BATCH
    rows = read_attempt(attempts(tmp_path / "straight")[0])
    assert rows[0].role_loss == pytest.approx(straight.rehearsed.loss_first)
    assert rows[-1].role_loss == pytest.approx(straight.rehearsed.loss_last)


@pytest.mark.loop
def test_two_processes_rehearse_what_one_does(rehearsing: Callable[..., StageSpec], tmp_path: Path) -> None:
    one = run_stage(rehearsing(micro_batch=4), tmp_path / "one")
    two = run_stage(rehearsing(micro_batch=4, ranks=Ranks(preset="cpu", processes=2)), tmp_path / "two")
    alone, shared = (read_attempt(attempts(tmp_path / name)[0]) for name in ("one", "two"))
    assert shared[0].gradient_norm == pytest.approx(alone[0].gradient_norm, rel=1e-4)
    assert [row.role_loss for row in shared] == pytest.approx([row.role_loss for row in alone], rel=1e-3)
    old, new = (load_file(Path(result.model.path) / "model.safetensors") for result in (one, two))
    assert max((old[key] - new[key]).abs().max().item() for key in old) < 1e-4


@pytest.mark.loop
def test_an_adapter_rehearses_and_memory_that_runs_out_shrinks_its_parts_too(
    rehearsing: Callable[..., StageSpec], tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"lora": LoraSettings(rank=4, alpha=8), "learning_rate": 1e-2, "steps": 2}
    whole = run_stage(rehearsing(**changes), tmp_path / "whole")
    small = run_stage(rehearsing(environment="toy:Small", **changes), tmp_path / "small")
    assert (small.micro_batch or 8) < 8
    assert whole.rehearsed is not None
    assert small.rehearsed is not None
    assert small.rehearsed.loss_first == pytest.approx(whole.rehearsed.loss_first, rel=1e-4)


@pytest.mark.loop
def test_an_altered_file_ends_the_stage_as_wrong_data(
    rehearsing: Callable[..., StageSpec], episodes: DataRef, tmp_path: Path
) -> None:
    spec = rehearsing()
    with Path(episodes.path).open("a") as file:
        file.write("\n")
    with pytest.raises(StageInputError, match=r"the file of role episodes .* the file changed after") as raised:
        run_stage(spec, tmp_path / "000")
    assert raised.value.outcome == "wrong_dataset"
