"""The chain of adapters: a stage trains one, merges it, and the next stage begins with a plain checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trainer.attempts import attempts
from trainer.checkpoint import load, reference
from trainer.policy import TransformersPolicy
from trainer.resume import resume_point
from trainer.spec import LoraSettings, ModelRef, StageSpec
from trainer.stage import run_stage
from trainer.trained import TrainingInputError, optional

pytestmark = pytest.mark.loop
LORA = LoraSettings(rank=4, alpha=8)


def weights(ref: ModelRef) -> dict[str, torch.Tensor]:
    return {name: tensor.float() for name, tensor in load_file(Path(ref.path) / "model.safetensors").items()}


def moved(before: ModelRef, after: ModelRef) -> dict[str, torch.Tensor]:
    """The change of every tensor that changed."""
    old, new = weights(before), weights(after)
    assert set(old) == set(new)
    return {name: new[name] - old[name] for name in old if not torch.equal(old[name], new[name])}


def test_a_stage_trains_an_adapter_merges_it_and_the_next_stage_goes_on(
    make_spec: Callable[..., StageSpec], tiny: ModelRef, tmp_path: Path
) -> None:
    spec = make_spec(lora=LORA, steps=3, save_every=1, learning_rate=1e-2)
    first = run_stage(spec, tmp_path / "000")
    change = moved(tiny, first.model)
    # All linear layers of both blocks, and nothing else: no embedding, no norm, no head.
    assert len(change) == 2 * 7
    assert all("proj" in name for name in change)
    assert all(torch.linalg.matrix_rank(delta, rtol=1e-3) <= LORA.rank for delta in change.values())

    # What was merged is the adapter of the last checkpoint: B A times alpha / rank.
    checkpoint = resume_point(tmp_path / "000", spec.identity()).checkpoint
    assert checkpoint is not None
    adapter = load_file(checkpoint / "adapter_model.safetensors")
    [a_name] = [name for name in adapter if name.endswith("layers.0.mlp.up_proj.lora_A.weight")]
    product = adapter[a_name.replace("lora_A", "lora_B")].float() @ adapter[a_name].float() * LORA.alpha / LORA.rank
    assert torch.allclose(change["model.layers.0.mlp.up_proj.weight"], product, atol=1e-6)

    # The next stage begins with the merged model, which is a plain checkpoint, and moves on from there.
    assert not list(Path(first.model.path).glob("adapter*"))
    assert reference(Path(first.model.path)) == first.model
    second = run_stage(spec.model_copy(update={"stage": 1, "seed": 8, "init_model": first.model}), tmp_path / "001")
    assert second.steps == 3
    assert second.model.sha256 not in (first.model.sha256, tiny.sha256)
    assert len(moved(first.model, second.model)) == 2 * 7
    [[answer]] = TransformersPolicy(second.model, threads=1).generate(
        [[{"role": "user", "content": "say 1"}]], max_new_tokens=4, temperature=0.0
    )
    assert answer.tokens > 0
    assert load(second.model)[0].dtype == torch.float32


def test_a_missing_package_is_bad_input_that_names_it() -> None:
    with pytest.raises(TrainingInputError, match=r"the spec's lora needs no_such_package: .*pip install 'envwright"):
        optional("no_such_package", "lora")


def test_a_killed_worker_goes_on_with_its_adapter_to_the_very_same_weights(
    make_spec: Callable[..., StageSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_MARK", str(tmp_path / "mark"))
    straight = run_stage(make_spec(lora=LORA), tmp_path / "straight")
    resumed = run_stage(make_spec(lora=LORA, environment="toy:Mortal"), tmp_path / "killed")
    assert (resumed.attempt, resumed.resumed_from_step) == (2, 2)
    assert resumed.model.sha256 == straight.model.sha256
    assert len(attempts(tmp_path / "killed")) == 2
