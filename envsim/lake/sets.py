"""The frozen sets: anchor, test, validation and benchmark, made from a committed recipe and checked by checksum.

``sets.json`` holds the recipe and, for every set, its size and the sha256 of its JSONL. A set is generated on first use
into the user's cache directory, under the recipe's hash, and read from there afterwards. Files are written atomically
and their bytes depend on nothing but the recipe, so two processes may do it at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from envsim.api import EnvsimError, Frozen, Progress
from envsim.lake.chance import shuffled, stream
from envsim.lake.config import nearest
from envsim.lake.generate import fill
from envsim.lake.instance import LakeInstance, dump_instances, read_instances
from envsim.lake.solver import Limits
from envsim.lake.yields import Quota
from envsim.whole import write_whole

SETS_FILE = Path(__file__).with_name("sets.json")
STRATIFIED = ("anchor", "test", "validation")
NAMES = (*STRATIFIED, "benchmark")
T = TypeVar("T")


class Stratified(Frozen):
    """Equal numbers for every map size, bin of hole counts, and needs-wait 0 or 1."""

    agents: int
    hole_bins: dict[int, list[list[int]]]
    """Map size -> bins as [fewest, most] holes; within a bin the number is uniform."""
    per_stratum: dict[str, int]


class Benchmark(Frozen):
    """Equal numbers for every entry (agents, map size) and hole ratio, drawn as they come."""

    sizes: dict[int, list[int]]
    """Number of agents -> map sizes."""
    hole_ratios: list[float]
    per_ratio: int


class Recipe(Frozen):
    version: int
    seed: int
    stratified: Stratified
    benchmark: Benchmark
    makespan_limit: int
    soc_limit: int
    """Most states that the solver expands for one question."""

    def hash(self) -> str:
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def limits(self) -> Limits:
        return Limits(self.makespan_limit, self.soc_limit)


class SetRecord(Frozen):
    """What a set's JSONL must be. ``distinct`` counts instances up to symmetry; ``rejected`` those left open."""

    n: int
    distinct: int
    sha256: str
    rejected: int = 0
    entries: dict[str, str] = Field(default_factory=dict)
    """Checksums of the parts, e.g. of ``5x5-4``, so that a part can be checked without the whole."""


class SetsFile(Frozen):
    recipe: Recipe
    sets: dict[str, SetRecord]


@cache
def sets_file() -> SetsFile:
    """The committed recipe and checksums."""
    return SetsFile.model_validate_json(SETS_FILE.read_text(encoding="utf-8"))


def cache_directory() -> Path:
    """``$XDG_CACHE_HOME`` or ``~/.cache``, then ``envwright/sets/<recipe hash>``. Raises EnvsimError without both."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(root) if root else Path.home() / ".cache"
    except RuntimeError as error:
        raise EnvsimError(
            "there is no home directory to keep the sets in; set XDG_CACHE_HOME to a directory that can be written"
        ) from error
    return base / "envwright" / "sets" / sets_file().recipe.hash()[:16]


def is_made(name: str, directory: Path | None = None) -> bool:
    """Whether the cache has the set. Raises EnvsimError for an unknown name."""
    if name not in NAMES:
        raise EnvsimError(f"unknown set {name!r}; {nearest(name, list(NAMES))}")
    path = (directory or cache_directory()) / f"{name}.jsonl"
    return path.exists() and _sha256(path.read_bytes()) == sets_file().sets[name].sha256


def frozen_set(name: str, progress: Progress | None = None, directory: Path | None = None) -> list[LakeInstance]:
    """A set by name, generated if the cache lacks it. Raises EnvsimError if its bytes are not the committed ones."""
    made_before = is_made(name, directory)
    record = sets_file().sets[name]
    path = (directory or cache_directory()) / f"{name}.jsonl"
    if not made_before:
        for made, instances in _make(name, progress).items():
            _write(path.with_name(f"{made}.jsonl"), made, dump_instances(instances))
    instances = list(read_instances(path))
    if progress is not None:
        progress(len(instances), record.n)
    return instances


def _make(name: str, progress: Progress | None) -> dict[str, list[LakeInstance]]:
    recipe = sets_file().recipe
    if name == "benchmark":
        parts = [make_entry(recipe, *entry)[0] for entry in reporting(entries(recipe), progress)]
        return {name: [instance for part in parts for instance in part]}
    return make_stratified(recipe, progress)


def _write(path: Path, name: str, data: bytes) -> None:
    expected = sets_file().sets[name].sha256
    if _sha256(data) != expected:
        raise EnvsimError(
            f"the {name} set generated here has sha256 {_sha256(data)[:16]}, committed is {expected[:16]}: generator "
            "or solver changed; undo that, or write new checksums (python -m envsim sets --write-checksums)"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise EnvsimError(
            f"the {name} set cannot be kept: {error}; set XDG_CACHE_HOME to a directory that can be written"
        ) from error


def make_stratified(recipe: Recipe, progress: Progress | None = None) -> dict[str, list[LakeInstance]]:
    """Anchor, test and validation from one stream of layouts a stratum: a layout's hash says whose it is."""
    plan = recipe.stratified
    found: dict[str, list[LakeInstance]] = {name: [] for name in plan.per_stratum}
    strata = [(size, low, high) for size, bins in plan.hole_bins.items() for low, high in bins]
    for size, low, high in reporting(strata, progress):
        quotas: Mapping[Quota, int] = {(s, waits): n for s, n in plan.per_stratum.items() for waits in (True, False)}
        rng = stream("sets", recipe.seed, size, low)
        holes = list(range(low, high + 1))
        filled, _ = fill(rng, size, plan.agents, holes=holes, quotas=quotas, limits=recipe.limits(), judge=False)
        for (name, _), instances in filled.items():
            found[name] += instances
    return {name: shuffled(instances, stream("sets", recipe.seed, name)) for name, instances in found.items()}


def entries(recipe: Recipe) -> list[tuple[int, int]]:
    """(agents, size) of every entry of the benchmark."""
    return [(agents, size) for agents, sizes in recipe.benchmark.sizes.items() for size in sizes]


def make_entry(recipe: Recipe, agents: int, size: int) -> tuple[list[LakeInstance], int]:
    """One entry of the benchmark, and how many layouts the limit left open."""
    found: list[LakeInstance] = []
    rejected = 0
    quota: Quota = ("benchmark", None)
    for ratio in recipe.benchmark.hole_ratios:
        filled, tally = fill(
            stream("benchmark", recipe.seed, agents, size, ratio),
            size,
            agents,
            holes=[round(ratio * size * size)],
            quotas={quota: recipe.benchmark.per_ratio},
            limits=recipe.limits(),
            judge=False,
        )
        found += filled[quota]
        rejected += tally.open
    return shuffled(found, stream("benchmark", recipe.seed, agents, size, "order")), rejected


def entry_name(agents: int, size: int) -> str:
    return f"{size}x{size}-{agents}"


def checksums(recipe: Recipe, progress: Progress | None = None) -> SetsFile:
    """All sets made anew, and their records."""
    made = make_stratified(recipe)
    records = {name: _record(instances) for name, instances in made.items()}
    whole: list[LakeInstance] = []
    parts: dict[str, str] = {}
    rejected = 0
    for agents, size in reporting(entries(recipe), progress):
        instances, left_open = make_entry(recipe, agents, size)
        whole += instances
        rejected += left_open
        parts[entry_name(agents, size)] = _sha256(dump_instances(instances))
    records["benchmark"] = _record(whole).model_copy(update={"entries": parts, "rejected": rejected})
    return SetsFile(recipe=recipe, sets=records)


def write_checksums(progress: Progress | None = None) -> SetsFile:
    """Make all sets from the committed recipe and write their checksums beside it."""
    made = checksums(sets_file().recipe, progress)
    write_whole(SETS_FILE, f"{made.model_dump_json(indent=1)}\n".encode())
    sets_file.cache_clear()
    return made


def _record(instances: list[LakeInstance]) -> SetRecord:
    distinct = len(Counter(instance.hash for instance in instances))
    return SetRecord(n=len(instances), distinct=distinct, sha256=_sha256(dump_instances(instances)))


def reporting(items: list[T], progress: Progress | None) -> Iterator[T]:
    """The items, telling how many are done."""
    for done, item in enumerate(items):
        if progress is not None:
            progress(done, len(items))
        yield item


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
