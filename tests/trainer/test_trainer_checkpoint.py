"""Sources resolve to directories, contents identify them, distances are L2."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import make_checkpoint

from trainer.checkpoint import CheckpointError, hash_model, load, reference, resolve, verify, weight_distance
from trainer.spec import ModelRef


@pytest.fixture
def copy(tiny: ModelRef, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny.path, tmp_path / "copy"))


def test_a_directory_resolves_to_itself(tiny: ModelRef) -> None:
    assert resolve(tiny.path) == tiny


def test_the_hash_is_of_contents(tiny: ModelRef, copy: Path) -> None:
    assert hash_model(copy) == tiny.sha256
    (copy / "README.md").write_text("of no consequence")
    assert hash_model(copy) == tiny.sha256
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert hash_model(copy) != tiny.sha256
    with pytest.raises(CheckpointError, match="changed after it was referenced"):
        verify(ModelRef(path=str(copy), sha256=tiny.sha256))


def test_it_loads_as_float32_in_eval_mode(tiny: ModelRef) -> None:
    model, tokenizer = load(tiny)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not model.training
    assert tokenizer.padding_side == "left"
    text = "plan (0,1)(2,2) , and . spaces"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_distance_is_l2_over_all_weights(tiny: ModelRef, copy: Path) -> None:
    assert weight_distance(Path(tiny.path), copy) == 0
    weights = load_file(copy / "model.safetensors")
    moved = {name: tensor.float() for name, tensor in weights.items()}
    names = sorted(moved)[:2]
    moved[names[0]] = moved[names[0]] + 3.0
    moved[names[1]] = moved[names[1]] + 4.0
    save_file(moved, copy / "model.safetensors", metadata={"format": "pt"})
    expected = math.sqrt(9 * moved[names[0]].numel() + 16 * moved[names[1]].numel())
    assert weight_distance(Path(tiny.path), copy) == pytest.approx(expected, rel=1e-4)


def test_other_tensors_do_not_compare(tiny: ModelRef, tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "deep", seed=0, layers=3)
    with pytest.raises(CheckpointError, match="different tensors"):
        weight_distance(Path(tiny.path), tmp_path / "deep")
    make_checkpoint(tmp_path / "wide", seed=0, hidden=32)
    with pytest.raises(CheckpointError, match="has shape"):
        weight_distance(Path(tiny.path), tmp_path / "wide")


def test_a_stored_copy_of_a_tied_head_is_passed_over(tiny: ModelRef, copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert weight_distance(Path(tiny.path), copy) == 0


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_half_a_checkpoint_is_none(copy: Path, missing: str) -> None:
    (copy / missing).unlink()
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        reference(copy)


def test_broken_configuration_is_said_to_be_so(copy: Path) -> None:
    (copy / "config.json").write_text(json.dumps({"model_type": "no such architecture"}))
    with pytest.raises(CheckpointError, match="does not load"):
        load(reference(copy))


def test_a_tokenizer_without_a_chat_template_is_refused(copy: Path) -> None:
    (copy / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="no chat template"):
        load(reference(copy))


@pytest.mark.parametrize("source", ["seedlng", "./nowhere", "a/b/c"])
def test_unknown_sources_list_what_is_known(source: str) -> None:
    with pytest.raises(CheckpointError, match="expected 'seedling', 'smollm2', a checkpoint directory or a hub"):
        resolve(source)


def test_an_unreachable_hub_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="give its directory"):
        resolve("nobody/no-such-model")
