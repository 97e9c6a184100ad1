"""The frozen sets are the committed bytes, of the promised shape, disjoint, and cached safely."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envsim.api import EnvsimError
from envsim.lake import sets
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, dump_instances


@pytest.fixture(scope="module")
def stratified(sets_directory: Path) -> dict[str, list[LakeInstance]]:
    return {name: sets.frozen_set(name, directory=sets_directory) for name in sets.STRATIFIED}


def test_one_set_makes_its_siblings(sets_directory: Path) -> None:
    names = sorted(path.name for path in sets_directory.iterdir())
    assert names == ["anchor.jsonl", "test.jsonl", "validation.jsonl"]


@pytest.mark.parametrize(("name", "n", "each"), [("anchor", 672, 14), ("test", 672, 14), ("validation", 336, 7)])
def test_shape(stratified: dict[str, list[LakeInstance]], name: str, n: int, each: int) -> None:
    instances = stratified[name]
    bins = sets.sets_file().recipe.stratified.hole_bins

    def stratum(instance: LakeInstance) -> tuple[int, int, bool | None]:
        holes = sum(row.count("@") for row in instance.rows)
        (index,) = [k for k, (low, high) in enumerate(bins[instance.size]) if low <= holes <= high]
        assert instance.certificate is not None
        return instance.size, index, instance.certificate.needs_wait_soc

    counts = Counter(map(stratum, instances))
    assert len(instances) == n
    assert len(counts) == 8 * 3 * 2
    assert set(counts.values()) == {each}
    assert {instance.split for instance in instances} == {name}
    assert {instance.agents for instance in instances} == {2}
    assert len({instance.id for instance in instances}) == n


def test_bins_cover_every_number_of_holes() -> None:
    for size, bins in sets.sets_file().recipe.stratified.hole_bins.items():
        holes = [h for low, high in bins for h in range(low, high + 1)]
        assert holes == list(range(round(0.5 * size * size) + 1))


def test_sets_are_disjoint_up_to_symmetry(stratified: dict[str, list[LakeInstance]]) -> None:
    hashes = [{instance.hash for instance in instances} for instances in stratified.values()]
    assert len(set.union(*hashes)) == sum(map(len, hashes))


def test_every_reference_plan_is_optimal(stratified: dict[str, list[LakeInstance]]) -> None:
    lake = Lake()
    for instances in stratified.values():
        for instance in instances[::7]:
            assert lake.score(instance, lake.reference_answer(instance, "compact")).optimal


def test_benchmark_record_has_the_promised_shape() -> None:
    recipe, record = sets.sets_file().recipe, sets.sets_file().sets["benchmark"]
    expected = [(k, n) for k in (3, 4, 5) for n in range(k, 11)]
    assert sets.entries(recipe) == expected
    assert len(recipe.benchmark.hole_ratios) * recipe.benchmark.per_ratio == 150
    assert record.n == 3_150
    assert record.rejected < 0.01 * record.n


@pytest.mark.parametrize("entry", [(3, 3), (3, 10), (4, 6)])
def test_benchmark_entries_are_the_committed_bytes(entry: tuple[int, int]) -> None:
    file = sets.sets_file()
    instances, _ = sets.make_entry(file.recipe, *entry)
    assert sets._sha256(dump_instances(instances)) == file.sets["benchmark"].entries[sets.entry_name(*entry)]
    assert len(instances) == 150
    assert {i.split for i in instances} == {"benchmark"}
    holes = Counter(sum(row.count("@") for row in i.rows) for i in instances)
    assert set(holes.values()) <= {25, 50}


def test_a_damaged_cache_is_made_again(
    stratified: dict[str, list[LakeInstance]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(name: str, _progress: object) -> dict[str, list[LakeInstance]]:
        made.append(name)
        return stratified

    monkeypatch.setattr(sets, "_make", make)
    path = tmp_path / "validation.jsonl"
    path.write_bytes(dump_instances(stratified["validation"])[:-100])
    assert sets.frozen_set("validation", directory=tmp_path) == stratified["validation"]
    assert sets.frozen_set("test", directory=tmp_path) == stratified["test"]
    assert made == ["validation"]


def test_two_at_once(stratified: dict[str, list[LakeInstance]], tmp_path: Path) -> None:
    data = {name: dump_instances(instances) for name, instances in stratified.items()}
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: sets._write(tmp_path / f"{name}.jsonl", name, data[name]), [*data] * 4))
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.jsonl" for name in data}
    assert sets.frozen_set("anchor", directory=tmp_path) == stratified["anchor"]


def test_other_bytes_than_the_committed_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(EnvsimError, match="generator or solver changed"):
        sets._write(tmp_path / "anchor.jsonl", "anchor", b"other")
    assert not list(tmp_path.iterdir())


def test_unknown_set() -> None:
    with pytest.raises(EnvsimError, match="did you mean 'anchor'"):
        sets.frozen_set("ancor")


def test_cache_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert sets.cache_directory().is_relative_to(tmp_path / "envwright" / "sets")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert sets.cache_directory().is_relative_to(Path.home() / ".cache")
