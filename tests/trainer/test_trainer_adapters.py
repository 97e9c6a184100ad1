"""An adapter merges into its checkpoint as peft would, with the same bytes everywhere; the seedling is kept merged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from peft import PeftModel
from safetensors.numpy import load_file, save_file
from tiny_model import make_checkpoint

from envsim import registry
from trainer import adapters, checkpoint
from trainer.adapters import merge
from trainer.checkpoint import CheckpointError, load, reference, resolve
from trainer.seedling import adapter as command
from trainer.seedling.recipe import AdapterRecipe, PlanMix

LAKE = registry.get("lake")
TINY = AdapterRecipe(
    plans=(PlanMix(n=240, agents={2: 1.0}, sizes={3: 1.0}, hole_ratios=(0.2,)),), steps=50, plan_batch=2, role_batch=2
)
EPISODE = {"role": "x", "messages": [{"role": "user", "content": "3x3 40 hole"}], "answer": '{"op": "up"}'}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make_checkpoint(tmp_path_factory.mktemp("base") / "model", 0).path)


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("episodes") / "episodes.jsonl"
    path.write_text("".join(json.dumps(EPISODE) + "\n" for _ in range(8)))
    return path


@pytest.fixture(scope="module")
def taught(base: Path, episodes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("taught") / "roles"
    losses: list[dict[str, float]] = []
    facts = command.teach(LAKE, base, episodes, out, recipe=TINY, log=losses.append)
    assert facts["role_loss"] < 5
    assert losses[-1]["step"] == 50
    return out


def test_it_merges_to_what_peft_computes(base: Path, taught: Path, tmp_path: Path) -> None:
    merge(base, taught, tmp_path / "merged")
    ours, _ = load(reference(tmp_path / "merged"))
    plain, tokenizer = load(reference(base))
    adapted = PeftModel.from_pretrained(plain, str(taught))
    ids = torch.tensor([tokenizer("3x3 40 hole")["input_ids"]])
    with torch.no_grad():
        wanted, found = adapted(input_ids=ids).logits, ours(input_ids=ids).logits
        before = adapted.unload()(input_ids=ids).logits
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
    assert (wanted - before).abs().max() > 10 * (wanted - found).abs().max()


def test_the_same_recipe_gives_the_same_bytes(base: Path, episodes: Path, taught: Path, tmp_path: Path) -> None:
    command.teach(LAKE, base, episodes, tmp_path / "again", recipe=TINY, log=lambda _: None)
    for name in ("adapter_model.safetensors", "adapter_config.json", "merged.sha256"):
        assert (tmp_path / "again" / name).read_bytes() == (taught / name).read_bytes(), name
    assert str(base) not in (taught / "adapter_config.json").read_text()


halves = st.floats(-4, 4, width=16)


@given(
    arrays.arrays(np.float16, (3, 4), elements=halves),
    arrays.arrays(np.float16, (3, 2), elements=halves),
    arrays.arrays(np.float16, (2, 4), elements=halves),
)
def test_a_merged_weight_is_the_exact_one_rounded_once(weight: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    exact = weight.astype(np.longdouble) + 2.0 * (left.astype(np.longdouble) @ right.astype(np.longdouble))
    np.testing.assert_array_equal(adapters._moved(weight, left, right, 2.0), exact.astype(np.float16))


@pytest.mark.parametrize("damage", ["cut", "other shape", "foreign", "no config"])
def test_an_adapter_that_does_not_fit_is_refused_by_name(base: Path, taught: Path, tmp_path: Path, damage: str) -> None:
    broken = Path(shutil.copytree(taught, tmp_path / "roles"))
    file = broken / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(key for key in tensors if key.endswith("lora_A.weight"))
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "other shape":
        save_file({**tensors, name: tensors[name][:, :-1].copy()}, file)
    elif damage == "foreign":
        save_file({key.replace("layers.0", "layers.99"): value for key, value in tensors.items()}, file)
    else:
        (broken / "adapter_config.json").unlink()
    with pytest.raises(ValueError, match=f"adapter {broken} does not fit {base}"):
        merge(base, broken, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_the_seedling_is_merged_once_and_again_if_spoilt(tmp_path: Path) -> None:
    first = resolve("seedling", cache=tmp_path)
    weights = Path(first.path) / "model.safetensors"
    made = weights.stat().st_mtime_ns
    assert resolve("seedling", cache=tmp_path) == first == reference(Path(first.path))
    assert weights.stat().st_mtime_ns == made
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert resolve("seedling", cache=tmp_path) == first == reference(Path(first.path))
    weights.unlink()
    assert resolve("seedling", cache=tmp_path) == first == reference(Path(first.path))
    assert [path.name for path in tmp_path.iterdir()] == [Path(first.path).name]


def test_a_damaged_part_of_the_seedling_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = Path(shutil.copytree(checkpoint.ROLES, tmp_path / "roles"))
    monkeypatch.setattr(checkpoint, "ROLES", roles)
    file = roles / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(key for key in tensors if key.endswith("lora_B.weight"))
    save_file({**tensors, name: tensors[name] + np.float16(1)}, file)
    with pytest.raises(CheckpointError, match=f"merged from .* and {roles} has sha256 .*, expected .*damaged"):
        resolve("seedling", cache=tmp_path / "cache")
    file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="the seedling cannot be merged"):
        resolve("seedling", cache=tmp_path / "other")
    (roles / "merged.sha256").unlink()
    with pytest.raises(CheckpointError, match=r"run python -m trainer\.seedling\.adapter"):
        resolve("seedling", cache=tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=f"the seedling cannot be merged into {tmp_path}/file/seedling-"):
        resolve("seedling", cache=tmp_path / "file")


def test_bad_flags_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--episodes", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert "no such file; write it with python -m agents.episodes" in capsys.readouterr().err
    assert command.main(["--episodes", "x", "--out", "y", "--set", '{"rank": 0}']) == 2
    assert "rank" in capsys.readouterr().err
