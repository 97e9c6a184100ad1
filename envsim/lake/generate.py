"""Seeded generation of certified instances, stratified by split and by whether the instance needs a wait.

A group is what shares size, agents, topology, placement and number of goals. Each has a stream of its own, and its
instances are distinct up to symmetry; two groups may hold the same. Holes are exactly as many as asked for. Drawing
uses only ``random()`` of a Mersenne twister seeded by hash, so a seed gives the same bytes on any machine; a group of a
plain lake is drawn the same whatever other groups there are.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

from envsim.api import EnvsimError, Progress
from envsim.lake.chance import shuffled, stream
from envsim.lake.config import SIZES, EnvConfig, cell_name
from envsim.lake.instance import LakeInstance, canonical_hash, make_instance, split_of_hash
from envsim.lake.layout import Kind, Layout, lay_out
from envsim.lake.search import LimitReached, Solved, Unsolvable
from envsim.lake.solver import Analysis, Limits
from envsim.lake.yields import Quota, Tally, Task, analysed
from envsim.lake.yields import judge as judge_yield
from envsim.parallel import ordered

PATIENCE = 20
"""Repeats in a row, beyond four for each instance held, after which a space counts as exhausted."""
WAIT_WEIGHT = 10
"""What an instance that needs a wait costs beside another one, roughly: so many more draws find none."""
CROWDED = 6
"""How much longer the smallest lakes take than their size says: there are so few that most draws repeat one."""


def fill(
    rng: random.Random,
    size: int,
    agents: int,
    *,
    holes: list[int],
    quotas: Mapping[Quota, int],
    kind: Kind | None = None,
    limits: Limits | None = None,
    judge: bool = True,
    effort: float = 1.0,
) -> tuple[dict[Quota, list[LakeInstance]], Tally]:
    """Instances until every quota is full. Each layout's number of holes is drawn from ``holes``.

    Instances are distinct up to symmetry until a quota's space runs out; then distinct layouts, then any.

    Raises
    ------
    YieldError
        If ``judge`` and fewer than 30 % of the draws are solvable, or a quota takes more than 200 draws an instance;
        ``effort`` divides the one bound and multiplies the other.
    """
    kind = kind or Kind()
    task = Task(size, agents, tuple(holes), kind, limits or Limits.affordable(agents))
    found: dict[Quota, list[LakeInstance]] = {quota: [] for quota in quotas}
    waiting = {quota for quota, wanted in quotas.items() if wanted > 0}
    distinct = _Distinct()
    tally = Tally(hits=dict.fromkeys(quotas, 0))
    while waiting:
        layout = lay_out(rng, size, agents, holes[int(rng.random() * len(holes))], kind)
        if judge:
            judge_yield(tally, waiting, task, effort)
        if layout is None:
            tally.placeless += 1
            continue
        tally.layouts += 1
        digest = canonical_hash(size, size, layout.marks, layout.ends())
        split = split_of_hash(digest)
        if all(split != wanted for wanted, _ in waiting):
            continue
        tally.draws[split] = tally.draws.get(split, 0) + 1
        analysis = analysed(layout, task.limits)
        quota = _quota(analysis, split, waiting, tally)
        if quota is None:
            continue
        tally.hits[quota] += 1
        if not distinct.admits(quota, digest, (*layout.ends(), layout.marks), len(found[quota])):
            continue
        found[quota].append(_instance(layout, analysis, digest, kind))
        if len(found[quota]) == quotas[quota]:
            waiting.discard(quota)
    tally.exhausted = distinct.exhausted
    return found, tally


def _instance(layout: Layout, analysis: Analysis, digest: str, kind: Kind) -> LakeInstance:
    columns = layout.board.columns
    starts, goals, via = ([divmod(v, columns) for v in ends or ()] for ends in layout[2:])
    certificate = analysis.certificate()
    return make_instance(
        layout.rows(), starts, goals, certificate, digest, via=via if layout.via else None, **kind.labels()
    )


class _Distinct:
    """Lets nothing through twice while anything new is likely: first up to symmetry, then by exact layout."""

    def __init__(self) -> None:
        self.exhausted: set[Quota] = set()
        self._seen: set[Hashable] = set()
        self._refused: dict[Quota, int] = {}

    def admits(self, quota: Quota, digest: str, layout: Hashable, held: int) -> bool:
        key = layout if quota in self.exhausted else digest
        if key in self._seen:
            refused = self._refused[quota] = self._refused.get(quota, 0) + 1
            if refused <= PATIENCE + 4 * held:
                return False
            if quota not in self.exhausted:
                self.exhausted.add(quota)
                # What was refused up to symmetry says nothing of how many layouts are left.
                self._refused[quota] = 0
                return self.admits(quota, digest, layout, held)
        self._refused[quota] = 0
        self._seen |= {digest, layout}
        return True


def _quota(analysis: Analysis, split: str, waiting: set[Quota], tally: Tally) -> Quota | None:
    """The unfilled quota that a layout belongs to, at the least work."""
    either = (split, None)
    if either in waiting:
        makespan = analysis.makespan()
        tally.unsolvable += isinstance(makespan, Unsolvable)
        tally.open += isinstance(makespan, LimitReached)
        return either if isinstance(makespan, Solved) else None
    if not analysis.collides and (split, False) not in waiting:
        return None
    soc = analysis.soc()
    if isinstance(soc, Unsolvable):
        tally.unsolvable += 1
        return None
    needs_wait = analysis.needs_wait_soc()
    if needs_wait is None or (split, needs_wait) not in waiting:
        tally.open += needs_wait is None
        return None
    if isinstance(analysis.makespan(), LimitReached):
        tally.open += 1
        return None
    return split, needs_wait


def apportion(shares: Mapping[str, float], n: int) -> dict[str, int]:
    """n split by shares that sum to 1, by largest remainder; ties go to the first."""
    exact = {key: share * n for key, share in shares.items()}
    counts = {key: int(value + 1e-9) for key, value in exact.items()}
    rest = sorted(exact, key=lambda key: round(counts[key] - exact[key], 9))
    for key in rest[: n - sum(counts.values())]:
        counts[key] += 1
    return counts


@dataclass(frozen=True, slots=True)
class Group:
    """``count`` instances that are drawn together; ``waiting`` of them need a wait."""

    size: int
    agents: int
    kind: Kind
    count: int
    waiting: int

    def weight(self) -> float:
        """A guess at what the group costs, to spread the groups over processes."""
        drawn = self.count + WAIT_WEIGHT * self.waiting
        repeats = CROWDED if self.size == min(SIZES) and self.agents == 2 else 1
        return drawn * self.size**2 * self.agents**2 * repeats

    def stream(self, seed: int, split: str) -> random.Random:
        """The group's own stream; a plain lake's is named by size and agents alone."""
        kind = self.kind
        plain = (kind.topology, kind.placement, kind.goals) == ("random", "uniform", 1)
        return stream(seed, split, self.size, self.agents, *(() if plain else (str(kind),)))


def groups(config: EnvConfig, n: int) -> Iterator[Group]:
    """The groups of n instances, in a fixed order.

    Each size has its exact share. Within it, the parts of every mixture come as close to their shares as whole numbers
    do, and what rounding gives too much or too little in one size is made good in the next, so that a small part is in
    a large dataset even where no single size has room for it.
    """
    counts = apportion({str(size): entry.data_ratio for size, entry in config.sizes.items()}, n)
    mix = _Mix(config)
    for size, entry in config.sizes.items():
        rest = 0.0
        for (agents, kind), count in mix.take(counts[str(size)]):
            rest += entry.wait_ratio * count
            waiting = int(rest + 0.5)
            rest -= waiting
            yield Group(size, agents, kind, count, waiting)


Part = tuple[int, Kind]
"""Number of agents, and the rest."""


class _Mix:
    """Whole numbers of every part, taken one after another.

    Each goes to the part to which most is owed, by itself and by each mixture that it belongs to: so few instances
    have the shares of topologies and of placements right though they cannot have every pair of them.
    """

    def __init__(self, config: EnvConfig) -> None:
        self._shares = dict(_parts(config))
        self._accounts: dict[Part, list[Hashable]] = {part: [part, *_memberships(part)] for part in self._shares}
        self._owed: dict[Hashable, float] = {key: 0.0 for keys in self._accounts.values() for key in keys}

    def take(self, count: int) -> Iterator[tuple[Part, int]]:
        """The parts of ``count`` more instances, and how many of each."""
        taken = dict.fromkeys(self._shares, 0)
        for part, share in self._shares.items():
            self._book(part, share * count)
        for _ in range(count):
            most = max(self._shares, key=self._due)
            self._book(most, -1.0)
            taken[most] += 1
        return ((part, number) for part, number in taken.items() if number)

    def _due(self, part: Part) -> float:
        return round(sum(self._owed[key] for key in self._accounts[part]), 9)

    def _book(self, part: Part, amount: float) -> None:
        for key in self._accounts[part]:
            self._owed[key] += amount


def _memberships(part: Part) -> list[Hashable]:
    agents, kind = part
    return [("agents", agents), ("topology", kind.topology), ("placement", kind.placement), (agents == 2, kind.goals)]


def _parts(config: EnvConfig) -> Iterator[tuple[Part, float]]:
    """What a size consists of, with shares. Two goals are for two agents; others have one."""
    noise = (config.success_rate, config.shaping)
    for agents, topology, placement in product(config.agents, config.topology, config.placement):
        share = config.agents[agents] * config.topology[topology] * config.placement[placement]
        for goals, weight in (config.goals if agents == 2 else {1: 1.0}).items():
            yield (agents, Kind(topology, placement, goals, *noise)), share * weight


def generate(
    config: EnvConfig,
    n: int,
    seed: int,
    split: str,
    *,
    effort: float = 1.0,
    progress: Progress | None = None,
    limits: Limits | None = None,
    processes: int = 1,
) -> tuple[list[LakeInstance], dict[str, list[Tally]]]:
    """n instances of one split in shuffled order, and what each cell cost. Raises EnvsimError and YieldError.

    ``effort`` multiplies what an instance may cost before YieldError. The groups are spread over ``processes``; the
    instances are the same for any number of them.
    """
    if n < 1:
        raise EnvsimError(f"n is {n}; expected at least 1 instance")
    instances: list[LakeInstance] = []
    tallies: dict[str, list[Tally]] = {}
    work = list(groups(config, n))
    one = partial(generate_group, config, seed=seed, split=split, effort=effort, limits=limits)
    made = ordered(one, work, processes=processes, weight=lambda group: group.weight())
    for group, (found, tally) in zip(work, made, strict=True):
        instances += found
        tallies.setdefault(cell_name(group.size), []).append(tally)
        if progress is not None:
            progress(len(instances), n)
    return shuffled(instances, stream(seed, split, "order")), tallies


def generate_group(
    config: EnvConfig, group: Group, seed: int, split: str, *, effort: float = 1.0, limits: Limits | None = None
) -> tuple[list[LakeInstance], Tally]:
    """One group's instances and what they cost; depends on no other group. Raises YieldError."""
    size = group.size
    found, tally = fill(
        group.stream(seed, split),
        size,
        group.agents,
        holes=[round(config.sizes[size].hole_ratio * size * size)],
        quotas={(split, True): group.waiting, (split, False): group.count - group.waiting},
        kind=group.kind,
        limits=limits,
        effort=effort,
    )
    return [instance for part in found.values() for instance in part], tally
