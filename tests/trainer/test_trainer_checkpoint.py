"""Sources resolve to directories, contents identify them, distances are L2."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_model import make_checkpoint

from trainer.checkpoint import CheckpointError, check, hash_model, load, reference, resolve, verify, weight_distance
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


def test_damage_is_found_before_the_weights_are_read(tiny: ModelRef) -> None:
    check(tiny)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.safetensors", b"", "header"),
        ("model.safetensors", None, "metadata"),
        ("config.json", b"[]", "TypeError"),
        ("config.json", b"\xff", "JSON"),
        ("config.json", b"[" * 100_000, "RecursionError"),
        ("tokenizer.json", b"{}", "KeyError"),
        ("tokenizer.json", b"[]", "TypeError"),
        ("tokenizer.json", b'{"added_tokens": [], "model": {}}', "the tokenizer"),
        ("tokenizer_config.json", b"[]", "TypeError"),
        ("generation_config.json", b"[]", "TypeError"),
        ("generation_config.json", b'{"eos_token_id": "x"}', "eos_token_id 'x'"),
        ("generation_config.json", b'{"eos_token_id": 100000}', "eos_token_id 100000"),
        ("chat_template.jinja", b"{% if %}", "TemplateSyntaxError"),
        ("chat_template.jinja", b"{{ messages[0].x.y }}", "UndefinedError"),
        ("chat_template.jinja", b"{{ 1 / 0 }}", "ZeroDivisionError"),
        ("chat_template.jinja", b"", "no tokens"),
    ],
)
@pytest.mark.parametrize("look", [check, load])
def test_damaged_files_are_named_in_one_line(
    copy: Path, name: str, content: bytes | None, says: str, look: Any
) -> None:
    (copy / name).write_bytes((copy / name).read_bytes()[:-100] if content is None else content)
    with pytest.raises(CheckpointError, match=says) as caught:
        look(reference(copy))
    assert str(copy) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": "x"}, "hidden_size"),
        ({"vocab_size": 10}, "has shape .*, expected .* by its config.json"),
        ({"vocab_size": -1}, "does not load"),
        ({"num_hidden_layers": 9}, "tensors that its config.json asks for are missing"),
        ({"hidden_act": "foo"}, "KeyError 'foo'"),
        ({"dtype": "foo"}, "does not load"),
        ({"pad_token_id": 100_000}, "does not load"),
    ],
)
def test_a_configuration_that_contradicts_the_weights_is_refused(
    copy: Path, change: dict[str, Any], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=says) as caught:
        check(reference(copy))
    assert "\n" not in str(caught.value)
    assert "MISMATCH" not in capfd.readouterr().err


def test_a_tokenizer_without_its_vocabulary_is_refused(copy: Path) -> None:
    for path in copy.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(CheckpointError):
        check(reference(copy))


def test_a_device_that_is_not_there_is_refused(tiny: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CheckpointError, match="no CUDA device"):
        check(tiny, device="cuda")


@pytest.mark.parametrize("source", ["seedlng", "./nowhere", "a/b/c"])
def test_unknown_sources_list_what_is_known(source: str) -> None:
    with pytest.raises(CheckpointError, match="expected 'seedling', 'smollm2', a checkpoint directory or a hub"):
        resolve(source)


def test_an_unreachable_hub_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="give its directory"):
        resolve("nobody/no-such-model")
