"""Seeded generation of certified instances, stratified by split and by whether the instance needs a wait.

Holes lie anywhere, exactly as many as asked for; starts are distinct cells with a free neighbour, and each goal is
another cell that its agent can reach, distinct from the other goals. Drawing uses only ``random()`` of a Mersenne
twister seeded by hash, so a seed gives the same bytes on any machine.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from envsim.api import EnvsimError, Progress, YieldError
from envsim.lake.config import EnvConfig, cell_name
from envsim.lake.grid import FREE, HOLE, Board, lattice
from envsim.lake.instance import LakeInstance, canonical_hash, make_instance, split_of_hash
from envsim.lake.search import LimitReached, Solved, Unsolvable
from envsim.lake.solver import Analysis, Limits

MIN_SOLVABLE_SHARE = 0.3
MAX_DRAWS_PER_HIT = 200
PATIENCE = 20
"""Repeats in a row, beyond four for each instance held, after which a space counts as exhausted."""

JUDGE_SOLVABLE_AFTER = 100
JUDGE_DRAWS_AFTER = 2_000

Quota = tuple[str, bool | None]
"""(split, needs a wait); None = either."""


@dataclass
class Tally:
    """What generation cost."""

    draws: dict[str, int] = field(default_factory=dict)
    """Layouts looked at, by split."""
    layouts: int = 0
    """Layouts drawn, of any split."""
    placeless: int = 0
    """Draws in which the agents found no place; without a layout they have no split."""
    unsolvable: int = 0
    """Layouts of the wanted splits that are proven unsolvable."""
    open: int = 0
    """Layouts of the wanted splits rejected because the solver's limit left them open."""
    hits: dict[Quota, int] = field(default_factory=dict)
    exhausted: set[Quota] = field(default_factory=set)
    """Quotas whose space of instances that differ up to symmetry ran out."""

    def solvable_share(self) -> float:
        """Share of draws that find a place and are not proven unsolvable."""
        placed = self.layouts / (self.layouts + self.placeless) if self.placeless else 1.0
        draws = sum(self.draws.values())
        return placed * (1 - self.unsolvable / draws if draws else 1.0)


def stream(*parts: object) -> random.Random:
    """A random stream of its own for every combination of parts."""
    return random.Random(int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()))


def _pick(rng: random.Random, cells: int) -> int:
    """One of a set of cells, as a bit, uniformly."""
    for _ in range(int(rng.random() * cells.bit_count())):
        cells &= cells - 1
    return cells & -cells


def draw(rng: random.Random, size: int, agents: int, holes: int) -> tuple[Board, str, list[int], list[int]] | None:
    """One random layout: board, marks, starts, goals. None if the agents found no place."""
    n = size * size
    free = (1 << n) - 1
    for _ in range(holes):
        free ^= _pick(rng, free)
    board = Board(lattice(size, size), free)
    alive = board.spread(free)
    if alive.bit_count() < agents:
        return None
    starts: list[int] = []
    for _ in range(agents):
        start = _pick(rng, alive)
        alive ^= start
        starts.append(start.bit_length() - 1)
    goals: list[int] = []
    taken = 0
    for start in starts:
        component = 0
        for layer in board.layers(start):
            component |= layer
        choices = component & ~(taken | 1 << start)
        if not choices:
            return None
        goal = _pick(rng, choices)
        taken |= goal
        goals.append(goal.bit_length() - 1)
    marks = "".join([FREE if free >> v & 1 else HOLE for v in range(n)])
    return board, marks, starts, goals


def fill(
    rng: random.Random,
    size: int,
    agents: int,
    *,
    holes: list[int],
    quotas: Mapping[Quota, int],
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
    cell = cell_name(size)
    where = f"{cell} with {agents} agents and {'/'.join(map(str, sorted(set(holes))))} holes"
    limits = limits or Limits.affordable(agents)
    found: dict[Quota, list[LakeInstance]] = {quota: [] for quota in quotas}
    waiting = {quota for quota, wanted in quotas.items() if wanted > 0}
    distinct = _Distinct()
    tally = Tally(hits=dict.fromkeys(quotas, 0))
    while waiting:
        layout = draw(rng, size, agents, holes[int(rng.random() * len(holes))])
        if judge:
            _judge(tally, waiting, where, cell, effort)
        if layout is None:
            tally.placeless += 1
            continue
        tally.layouts += 1
        board, marks, starts, goals = layout
        digest = canonical_hash(size, size, marks, list(zip(starts, goals, strict=True)))
        split = split_of_hash(digest)
        if all(split != wanted for wanted, _ in waiting):
            continue
        tally.draws[split] = tally.draws.get(split, 0) + 1
        rows = [marks[r * size : (r + 1) * size] for r in range(size)]
        analysis = Analysis(board, rows, starts, goals, limits)
        quota = _quota(analysis, split, waiting, tally)
        if quota is None:
            continue
        tally.hits[quota] += 1
        cells = [[divmod(v, size) for v in ends] for ends in (starts, goals)]
        if not distinct.admits(quota, digest, (*starts, *goals, marks), len(found[quota])):
            continue
        found[quota].append(make_instance(rows, cells[0], cells[1], analysis.certificate(), digest))
        if len(found[quota]) == quotas[quota]:
            waiting.discard(quota)
    tally.exhausted = distinct.exhausted
    return found, tally


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


def _judge(tally: Tally, waiting: set[Quota], where: str, cell: str, effort: float) -> None:
    """Raise YieldError once the counts are large enough to say that the yield is too low."""
    least_solvable, most_draws = MIN_SOLVABLE_SHARE / effort, MAX_DRAWS_PER_HIT * effort
    drawn = sum(tally.draws.values()) + tally.placeless
    share = tally.solvable_share()
    if drawn >= JUDGE_SOLVABLE_AFTER and share < least_solvable:
        raise YieldError(
            f"{where}: {share:.1%} of {drawn} draws are solvable, expected at least {least_solvable:.0%}; "
            f"lower hole_ratio of {cell} or the number of agents",
            cell=cell,
            rate=share,
        )
    for quota, hits in tally.hits.items():
        draws = tally.draws.get(quota[0], 0)
        if quota in waiting and draws >= JUDGE_DRAWS_AFTER and draws > most_draws * hits:
            kind, remedy = {
                True: ("need a wait", f"lower wait_ratio of {cell}, or raise its hole_ratio"),
                False: ("need no wait", f"raise wait_ratio of {cell}, or lower its hole_ratio"),
                None: ("are solved within the limit", f"lower hole_ratio of {cell} or the number of agents"),
            }[quota[1]]
            raise YieldError(
                f"{where}: {hits} of {draws} draws {kind} ({hits / draws:.2%}), expected at least 1 in "
                f"{most_draws:g}; {remedy}",
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
    *,
    effort: float = 1.0,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> tuple[list[LakeInstance], dict[str, list[Tally]]]:
    """n instances of one split in shuffled order, and what each cell cost. Raises EnvsimError and YieldError.

    ``effort`` multiplies what an instance may cost before YieldError.
    """
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
            holes=[round(entry.hole_ratio * size * size)],
            quotas={(split, True): waiting, (split, False): count - waiting},
            limits=limits,
            effort=effort,
        )
        for part in found.values():
            instances += part
        tallies.setdefault(cell_name(size), []).append(tally)
        if progress is not None:
            progress(len(instances), n)
    return shuffled(instances, stream(seed, split, "order")), tallies
