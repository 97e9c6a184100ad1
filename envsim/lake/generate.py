"""Seeded generation of certified instances, stratified by split and by whether the instance needs a wait.

Holes lie anywhere, exactly as many as asked for; starts are distinct free cells and each goal is another cell that its
agent can reach, distinct from the other goals. Drawing uses only ``random()`` of a Mersenne twister seeded by hash, so
a seed gives the same bytes on any machine.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from envsim.api import EnvsimError, Progress, YieldError
from envsim.lake.config import EnvConfig, cell_name
from envsim.lake.grid import FREE, HOLE, Board, lattice
from envsim.lake.instance import LakeInstance, canonical_hash, make_instance, split_of_hash
from envsim.lake.search import LimitReached, Unsolvable
from envsim.lake.solver import Analysis, Limits

MIN_SOLVABLE_SHARE = 0.3
MAX_DRAWS_PER_HIT = 200
JUDGE_SOLVABLE_AFTER = 100
JUDGE_DRAWS_AFTER = 2_000

Quota = tuple[str, bool | None]
"""(split, needs a wait); None = either."""


@dataclass
class Tally:
    """What generation cost: draws in the wanted splits, proven unsolvable ones, and those left open by the limit."""

    draws: int = 0
    unsolvable: int = 0
    open: int = 0
    hits: dict[Quota, int] = field(default_factory=dict)
    exhausted: set[Quota] = field(default_factory=set)
    """Quotas whose space of distinct instances ran out, so that instances repeat up to symmetry."""

    def solvable_share(self) -> float:
        return 1 - self.unsolvable / self.draws if self.draws else 1.0


def stream(*parts: object) -> random.Random:
    """A random stream of its own for every combination of parts."""
    return random.Random(int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()))


def draw(rng: random.Random, size: int, agents: int, holes: int) -> tuple[Board, str, list[int], list[int]] | None:
    """One random layout: board, marks, starts, goals. None if the agents found no place."""
    n = size * size
    order = list(range(n))
    for i in range(holes):
        j = i + int(rng.random() * (n - i))
        order[i], order[j] = order[j], order[i]
    free = (1 << n) - 1
    for v in order[:holes]:
        free ^= 1 << v
    board = Board(lattice(size, size), free)
    for i in range(holes, min(holes + agents, n)):
        j = i + int(rng.random() * (n - i))
        order[i], order[j] = order[j], order[i]
    starts = order[holes : holes + agents]
    goals: list[int] = []
    taken = 0
    for start in starts:
        component = 0
        for layer in board.layers(start):
            component |= layer
        choices = component & ~(taken | 1 << start)
        if not choices:
            return None
        for _ in range(int(rng.random() * choices.bit_count())):
            choices &= choices - 1
        goal = choices & -choices
        taken |= goal
        goals.append(goal.bit_length() - 1)
    marks = "".join([FREE if free >> v & 1 else HOLE for v in range(n)])
    return (board, marks, starts, goals) if len(starts) == agents else None


def fill(
    rng: random.Random,
    size: int,
    agents: int,
    holes: list[int],
    quotas: Mapping[Quota, int],
    limits: Limits | None = None,
) -> tuple[dict[Quota, list[LakeInstance]], Tally]:
    """Instances until every quota is full. Each layout's number of holes is drawn from ``holes``.

    Raises
    ------
    YieldError
        If fewer than 30 % of the draws are solvable, or a quota takes more than 200 draws an instance.
    """
    cell = cell_name(size)
    where = f"{cell} with {agents} agents and {'/'.join(map(str, sorted(set(holes))))} holes"
    limits = limits or Limits()
    found: dict[Quota, list[LakeInstance]] = {quota: [] for quota in quotas}
    open_quotas = {quota for quota, wanted in quotas.items() if wanted > 0}
    splits = {split for split, _ in open_quotas}
    seen: set[str] = set()
    repeats = dict.fromkeys(quotas, 0)
    tally = Tally(hits=dict.fromkeys(quotas, 0))
    split_draws = dict.fromkeys(splits, 0)
    while open_quotas:
        layout = draw(rng, size, agents, holes[int(rng.random() * len(holes))])
        if layout is None:
            # No hash, so no split: it counts for all alike, as a solvable layout would on average.
            tally.draws += 1
            tally.unsolvable += 1
            _judge(tally, where, cell)
            continue
        board, marks, starts, goals = layout
        digest = canonical_hash(size, size, marks, list(zip(starts, goals, strict=True)))
        split = split_of_hash(digest)
        if split not in splits:
            continue
        tally.draws += 1
        split_draws[split] += 1
        rows = [marks[r * size : (r + 1) * size] for r in range(size)]
        analysis = Analysis(board, rows, starts, goals, limits)
        quota = _quota(analysis, split, open_quotas, tally)
        _judge(tally, where, cell)
        for wanted in [q for q in open_quotas if q[0] == split]:
            _judge_quota(wanted, tally.hits[wanted], split_draws[split], where, cell)
        if quota is None:
            continue
        tally.hits[quota] += 1
        if digest in seen:
            repeats[quota] += 1
            if repeats[quota] <= 20 + 4 * len(found[quota]):
                continue
            tally.exhausted.add(quota)
        else:
            repeats[quota] = 0
        seen.add(digest)
        cells = [[divmod(v, size) for v in ends] for ends in (starts, goals)]
        found[quota].append(make_instance(rows, cells[0], cells[1], analysis.certificate(), digest))
        if len(found[quota]) == quotas[quota]:
            open_quotas.discard(quota)
            splits = {split for split, _ in open_quotas}
    return found, tally


def _quota(analysis: Analysis, split: str, open_quotas: set[Quota], tally: Tally) -> Quota | None:
    """The open quota that the layout belongs to, at the least work."""
    if not analysis.collides and (split, False) not in open_quotas and (split, None) not in open_quotas:
        return None
    first = analysis.makespan() if (split, None) in open_quotas else analysis.soc()
    if isinstance(first, Unsolvable):
        tally.unsolvable += 1
        return None
    if (split, None) in open_quotas and not isinstance(first, LimitReached):
        return (split, None)
    needs_wait = None if isinstance(first, LimitReached) else analysis.needs_wait_soc()
    if needs_wait is None:
        tally.open += 1
        return None
    quota = (split, needs_wait)
    if quota not in open_quotas or isinstance(analysis.makespan(), LimitReached):
        return None
    return quota


def _judge(tally: Tally, where: str, cell: str) -> None:
    if tally.draws >= JUDGE_SOLVABLE_AFTER and tally.solvable_share() < MIN_SOLVABLE_SHARE:
        raise YieldError(
            f"{where}: {tally.solvable_share():.1%} of {tally.draws} draws are solvable, expected at least "
            f"{MIN_SOLVABLE_SHARE:.0%}; lower hole_ratio or the number of agents of {cell}",
            cell=cell,
            rate=tally.solvable_share(),
        )


def _judge_quota(quota: Quota, hits: int, draws: int, where: str, cell: str) -> None:
    if draws >= JUDGE_DRAWS_AFTER and draws > MAX_DRAWS_PER_HIT * hits:
        kind = {True: "need a wait", False: "need no wait", None: "are solved within the limit"}[quota[1]]
        remedy = {
            True: f"raise hole_ratio or lower wait_ratio of {cell}",
            False: f"lower wait_ratio below 1 is not enough: lower hole_ratio of {cell}",
            None: f"lower the number of agents or the size of {cell}",
        }[quota[1]]
        raise YieldError(
            f"{where}: {hits} of {draws} draws {kind} ({hits / draws:.2%}), expected at least 1 in "
            f"{MAX_DRAWS_PER_HIT}; {remedy}",
            cell=cell,
            rate=hits / draws,
        )


def apportion(shares: Mapping[str, float], n: int) -> dict[str, int]:
    """n split by shares that sum to 1, by largest remainder; ties go to the first."""
    exact = {key: share * n for key, share in shares.items()}
    counts = {key: int(value + 1e-9) for key, value in exact.items()}
    rest = sorted(exact, key=lambda key: round(counts[key] - exact[key], 9))
    for key in rest[: n - sum(counts.values())]:
        counts[key] += 1
    return counts


def shuffled(instances: list[LakeInstance], rng: random.Random) -> list[LakeInstance]:
    order = list(instances)
    for i in range(len(order) - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


def groups(config: EnvConfig, n: int) -> Iterator[tuple[int, int, int]]:
    """(size, agents, count) of every group of n instances."""
    counts = apportion({str(size): entry.data_ratio for size, entry in config.sizes.items()}, n)
    for size in config.sizes:
        by_agents = apportion({str(k): weight for k, weight in config.agents.items()}, counts[str(size)])
        for agents in config.agents:
            if by_agents[str(agents)]:
                yield size, agents, by_agents[str(agents)]


def generate(
    config: EnvConfig,
    n: int,
    seed: int,
    split: str,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> tuple[list[LakeInstance], dict[str, list[Tally]]]:
    """n instances of one split in shuffled order, and what each cell cost. Raises EnvsimError and YieldError."""
    if n < 1:
        raise EnvsimError(f"n is {n}; expected at least 1 instance")
    instances: list[LakeInstance] = []
    tallies: dict[str, list[Tally]] = {}
    for size, agents, count in groups(config, n):
        entry = config.sizes[size]
        waiting = int(entry.wait_ratio * count + 0.5)
        found, tally = fill(
            stream(seed, split, size, agents),
            size,
            agents,
            [round(entry.hole_ratio * size * size)],
            {(split, True): waiting, (split, False): count - waiting},
            limits,
        )
        for part in found.values():
            instances += part
        tallies.setdefault(cell_name(size), []).append(tally)
        if progress is not None:
            progress(len(instances), n)
    return shuffled(instances, stream(seed, split, "order")), tallies
