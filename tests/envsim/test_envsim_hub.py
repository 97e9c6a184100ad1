"""Datasets: what ``datasets`` reads is what was exported, the card is true, and damage is noticed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from envsim.__main__ import main
from envsim.api import SPLITS, EnvsimError
from envsim.documents import DocumentError
from envsim.formats import card, hub
from envsim.lake.config import EnvConfig, parse_config
from envsim.lake.environment import Lake
from envsim.lake.instance import Certificate, LakeInstance, make_instance, read_instances


@pytest.fixture(scope="module")
def instances() -> list[LakeInstance]:
    """Certified ones of two splits, one without a certificate on a rectangle, one proven unsolvable."""
    lake = Lake()
    made = [i for split in ("training", "test") for i in lake.generate(EnvConfig(), 24, 3, split=split).instances]
    bare = make_instance(["....@", "..@.."], [(0, 0), (1, 4)], [(0, 3), (1, 3)])
    no_way = Certificate(solvable=False, distances=[-1], paths_collide=False)
    labelled = make_instance(
        ["...", "..."],
        [(0, 0)],
        [(0, 2)],
        via=[(1, 1)],
        topology="rooms",
        placement="far",
        success_rate=0.97,
        shaping=0.2,
    )
    return [*made, bare, make_instance([".@."], [(0, 0)], [(0, 2)], no_way), labelled]


@pytest.fixture(scope="module")
def exported(instances: list[LakeInstance], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hub") / "set"
    files = hub.export(instances, directory, config=EnvConfig(), seed=3)
    assert sorted(files) == sorted(path for path in directory.rglob("*") if path.is_file())
    return directory


def _ordered(instances: list[LakeInstance]) -> list[LakeInstance]:
    return sorted(instances, key=lambda instance: SPLITS.index(instance.split))


def _front(directory: Path) -> dict[str, Any]:
    front: dict[str, Any] = yaml.safe_load((directory / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    return front


def test_round_trip(instances: list[LakeInstance], exported: Path) -> None:
    assert hub.load(exported) == _ordered(instances)
    assert hub.load(exported, split="test") == [instance for instance in instances if instance.split == "test"]


def test_the_card_holds_the_whole_configuration(tmp_path: Path) -> None:
    """Every knob, also those that are at their defaults, as YAML that ``generate`` takes; labels are counted."""
    data = {
        "sizes": {5: {"data_ratio": 1, "hole_ratio": 0.3, "wait_ratio": 0.1}},
        "topology": {"rooms": 0.5, "random": 0.5},
        "goals": {2: 1},
        "success_rate": 0.97,
    }
    config = parse_config(data)
    hub.export(Lake().generate(config, 8, 0).instances, tmp_path / "set", config=config, seed=0)
    text = (tmp_path / "set/README.md").read_text(encoding="utf-8")
    block = text.partition("```yaml\n")[2].partition("```")[0]
    assert set(yaml.safe_load(block)) == set(EnvConfig.model_fields)
    assert parse_config(yaml.safe_load(block)) == config
    for row in ("| rooms | 4 |", "| random | 4 |", "| 2 | 8 |", "| 0.97 | 8 |"):
        assert row in text
    assert "| placement |" not in text


@pytest.mark.parametrize("command", ["solve", "render"])
def test_commands_read_the_directory(
    command: str, instances: list[LakeInstance], exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(exported)]) == 0
    printed = capsys.readouterr().out
    assert _ordered(instances)[0].id in printed
    assert command == "render" or len(printed.splitlines()) == len(instances)
    (tmp_path / "other").mkdir()
    assert main([command, str(tmp_path / "other")]) == 2
    assert "other is a directory without jsonl/*.jsonl; expected" in capsys.readouterr().err


def test_rows_that_contradict_their_certificate(instances: list[LakeInstance]) -> None:
    rows = [instance.model_dump(mode="json") for instance in instances[:2]]
    rows[1]["certificate"]["coordination_cost"] += 1
    with pytest.raises(EnvsimError, match=r"^x: row 1: the certificate's coordination_cost is"):
        hub.from_rows(rows, "x")


def test_jsonl_is_the_projects_own(instances: list[LakeInstance], exported: Path) -> None:
    assert list(read_instances(exported / "jsonl/test.jsonl")) == [i for i in instances if i.split == "test"]


@pytest.mark.filterwarnings("error")
def test_the_library_reads_the_directory(instances: list[LakeInstance], exported: Path, tmp_path: Path) -> None:
    data = datasets.load_dataset(str(exported), cache_dir=str(tmp_path))
    assert list(data) == [split for split in SPLITS if any(instance.split == split for instance in instances)]
    again = [instance for split in data for instance in hub.from_rows(data[split])]
    assert again == _ordered(instances)
    info = _front(exported)["dataset_info"]
    assert {split["name"]: split["num_examples"] for split in info["splits"]} == {s: len(data[s]) for s in data}
    assert [feature["name"] for feature in info["features"]] == list(data["test"].features)


def test_the_same_instances_give_the_same_bytes(instances: list[LakeInstance], exported: Path, tmp_path: Path) -> None:
    for path in hub.export(instances, tmp_path / "again", config=EnvConfig(), seed=3):
        assert path.read_bytes() == (exported / path.relative_to(tmp_path / "again")).read_bytes()


def test_the_card_counts(instances: list[LakeInstance], exported: Path) -> None:
    text = (exported / "README.md").read_text(encoding="utf-8")
    front = _front(exported)
    assert front["license"] == "mit"
    assert front["envsim"]["config_hash"] == EnvConfig().canonical_hash()
    assert "51 instances, " in text
    assert "49 have a certificate, of which 48 are solvable and 1 are proven unsolvable" in text
    assert f"| 3x3 | {sum(len(i.rows) == 3 for i in instances)} |" in text
    assert "| 2x5 | 1 |" in text
    for column in front["dataset_info"]["features"]:
        assert f"- `{column['name']}`: " in text


def test_every_field_has_a_meaning_and_a_type(instances: list[LakeInstance]) -> None:
    assert set(LakeInstance.model_fields) <= set(card.COLUMNS)
    assert set(Certificate.model_fields) == set(card.CERTIFICATE) == set(hub._features(instances)["certificate"])


def test_what_export_refuses(instances: list[LakeInstance], tmp_path: Path) -> None:
    with pytest.raises(EnvsimError, match="no instances to export"):
        hub.export([], tmp_path / "none")
    (tmp_path / "file").write_text("")
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(EnvsimError, match="is no empty directory"):
            hub.export(instances, taken)


def test_damage_is_noticed(instances: list[LakeInstance], tmp_path: Path) -> None:
    directory = tmp_path / "set"
    hub.export(instances[:4], directory)
    with pytest.raises(EnvsimError, match="has no split 'probe'; it has training"):
        hub.load(directory, split="probe")
    path = directory / "data/training.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(EnvsimError, match=r"training\.parquet is missing or not what .*README\.md has the sha256 of"):
        hub.load(directory)
    text = (directory / "README.md").read_text()
    (directory / "README.md").write_text(text.replace("data/training.parquet:", "../training.parquet:"))
    with pytest.raises(EnvsimError, match=r"README\.md: envsim\.sha256 is .*; expected data/SPLIT"):
        hub.load(directory)
    (directory / "README.md").write_text("# A card\n")
    with pytest.raises(EnvsimError, match=r"README\.md has no section 'envsim'"):
        hub.load(directory)
    (directory / "README.md").write_text("---\n{\n---\n")
    with pytest.raises(DocumentError, match=r"README\.md is no valid YAML"):
        hub.load(directory)
    (directory / "README.md").unlink()
    with pytest.raises(DocumentError, match="cannot read"):
        hub.load(directory)


def test_a_file_that_is_not_parquet(instances: list[LakeInstance], tmp_path: Path) -> None:
    hub.export(instances[:1], tmp_path / "set")
    path, readme = tmp_path / "set/data/training.parquet", tmp_path / "set/README.md"
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(b"PAR1 and nothing else PAR1")
    readme.write_text(readme.read_text().replace(before, hashlib.sha256(path.read_bytes()).hexdigest()))
    with pytest.raises(EnvsimError, match=r"training\.parquet is no Parquet file: "):
        hub.load(tmp_path / "set")


def test_rows_that_are_no_instances(instances: list[LakeInstance]) -> None:
    row = instances[0].model_dump(mode="json")
    assert hub.from_rows([row]) == instances[:1]
    with pytest.raises(EnvsimError, match="mine: row 1 is no instance: agents"):
        hub.from_rows([row, row | {"agents": "many"}], "mine")
    with pytest.raises(EnvsimError, match="rows: row 0 has id"):
        hub.from_rows([row | {"starts": row["goals"], "goals": row["starts"]}])


def test_importing_the_module_does_not_import_the_library() -> None:
    code = "import envsim.formats.hub, sys; sys.exit('datasets' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
