"""What generation costs, when that is too much, and what would do instead.

``judge`` refuses a group of instances by measured rates alone. Its error names the cell, the knobs that the group is
made by, the rates, and remedies: each is one knob changed, tried on draws of its own, and named only if it would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil

from envsim.api import YieldError
from envsim.lake.chance import stream
from envsim.lake.config import AGENT_COUNTS, cell_name
from envsim.lake.instance import SPLIT_MODULUS, canonical_hash, split_of_hash
from envsim.lake.layout import Kind, Layout, lay_out
from envsim.lake.search import LimitReached, Unsolvable
from envsim.lake.solver import Analysis, Limits

MIN_SOLVABLE_SHARE = 0.3
MAX_DRAWS_PER_HIT = 200
JUDGE_SOLVABLE_AFTER = 100
"""Draws after which the places found are judged, and layouts of the wanted splits after which the solvable ones are."""
JUDGE_OPEN_AFTER = 50
"""Layouts of the wanted splits after which it is judged how many of them the solver's limit leaves open: dear ones."""
JUDGE_DRAWS_AFTER = 2_000
TRIAL_LAYOUTS = 200
"""Layouts of the wanted splits on which a remedy's solvable share is tried."""
HOPELESS_AFTER = 30
QUOTA_TRIAL_LAYOUTS = 400
"""Those on which it must then fill what is still wanted."""
TRIAL_DRAWS = 8_000
"""Draws after which a remedy that shows too few of them is none."""
TRIAL_LIMITS = Limits(makespan=2_000, soc=2_000)
"""A refusal should not cost more than what it saves; a trial that this leaves open counts as solvable."""
MARGIN = 1.5
"""A remedy is named if it is better than both bounds by this factor: its rates are those of a sample."""

Quota = tuple[str, bool | None]
"""(split, needs a wait); None = either."""


@dataclass
class Tally:
    """What generation cost."""

    draws: dict[str, int] = field(default_factory=dict)
    """Layouts of the wanted splits, by split."""
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

    def placed_share(self) -> float:
        """Share of all draws in which the agents found a place."""
        return self.layouts / (self.layouts + self.placeless) if self.placeless else 1.0

    def solvable_share(self) -> float:
        """Share of draws that find a place and are not proven unsolvable, each judged on its own: places on all draws,
        solvability on the layouts of the wanted splits."""
        wanted = sum(self.draws.values())
        return self.placed_share() * (1 - self.unsolvable / wanted if wanted else 1.0)


@dataclass(frozen=True, slots=True)
class Task:
    """What a group of instances is drawn as."""

    size: int
    agents: int
    holes: tuple[int, ...]
    kind: Kind
    limits: Limits

    def __str__(self) -> str:
        holes = "/".join(map(str, sorted(set(self.holes))))
        kind = f" of {self.kind}" if str(self.kind) else ""
        return f"{cell_name(self.size)} with {self.agents} agents and {holes} holes{kind}"


def analysed(layout: Layout, limits: Limits) -> Analysis:
    """The solver's analysis of a layout."""
    return Analysis(layout.board, layout.rows(), layout.starts, layout.goals, limits, via=layout.via)


def judge(tally: Tally, waiting: set[Quota], task: Task, effort: float) -> None:
    """Raise YieldError once the counts are large enough to say that the yield is too low."""
    _judge_solvable(tally, waiting, task, effort)
    _judge_open(tally, task, effort)
    for quota in tally.hits:
        if quota in waiting:
            _judge_quota(tally, waiting, task, effort, quota)


def _judge_solvable(tally: Tally, waiting: set[Quota], task: Task, effort: float) -> None:
    least = MIN_SOLVABLE_SHARE / effort
    drawn, wanted = tally.layouts + tally.placeless, sum(tally.draws.values())
    placed, share = tally.placed_share(), tally.solvable_share()
    if drawn >= JUDGE_SOLVABLE_AFTER and placed < least:
        share = placed
        said = f"{placed:.1%} of {drawn} draws found a place for the agents"
    elif wanted >= JUDGE_SOLVABLE_AFTER and share < least:
        said = f"{1 - tally.unsolvable / wanted:.1%} of {wanted} layouts are solvable"
        if tally.placeless:
            said += f" and {placed:.1%} of {drawn} draws found a place for the agents, together {share:.1%}"
    else:
        return
    cell = cell_name(task.size)
    remedies = _remedies(waiting, effort, (*_plainer(task), *_lighter(task)))
    leaving = f"leave {cell} out ({cell}.data_ratio 0)"
    would = f"would do: {', or '.join(remedies)}; or {leaving}" if remedies else ""
    raise YieldError(
        f"{task}: {said}, expected at least {least:.0%}; "
        + (would or f"no single knob would do: change several, or {leaving}"),
        cell=cell,
        rate=share,
    )


def _judge_open(tally: Tally, task: Task, effort: float) -> None:
    least = MIN_SOLVABLE_SHARE / effort
    wanted = sum(tally.draws.values())
    if wanted < JUDGE_OPEN_AFTER or 1 - tally.open / wanted >= least:
        return
    cell = cell_name(task.size)
    raise YieldError(
        f"{task}: the solver's limit leaves {tally.open} of {wanted} layouts open, so each instance is very dear; "
        f"expected an answer for at least {least:.0%}; ask for fewer agents, fewer holes or another topology, or leave "
        f"{cell} out ({cell}.data_ratio 0)",
        cell=cell,
        rate=1 - tally.open / wanted,
    )


def _judge_quota(tally: Tally, waiting: set[Quota], task: Task, effort: float, quota: Quota) -> None:
    (split, needs_wait), hits = quota, tally.hits[quota]
    most = MAX_DRAWS_PER_HIT * effort
    cell = cell_name(task.size)
    draws = tally.draws.get(split, 0)
    # A small space may have next to nothing in a split, so that its own layouts never become many.
    rare = 2 * SPLIT_MODULUS
    if draws >= JUDGE_DRAWS_AFTER and draws > most * hits:
        among = f"{draws} layouts of split {split}"
    elif tally.layouts >= rare * JUDGE_DRAWS_AFTER and tally.layouts > rare * most * hits:
        draws, most = tally.layouts, rare * most
        among = f"{draws} layouts of any split are of split {split} and"
    else:
        return
    kind, remedy = {
        True: ("need a wait", f"lower wait_ratio of {cell}"),
        False: ("need no wait", f"raise wait_ratio of {cell}"),
        None: ("are solved within the limit", f"leave it out ({cell}.data_ratio 0)"),
    }[needs_wait]
    left_open = f", {tally.open} left open by the solver's limit" if tally.open else ""
    moved = _holed(task, fewer=needs_wait is not True)
    others = _remedies(waiting, effort, (*_plainer(task), *moved))
    raise YieldError(
        f"{task}: {hits} of {among} {kind} ({hits / draws:.2%}{left_open}), expected at least 1 in {most:g}; "
        + ", or ".join([remedy, *others]),
        cell=cell,
        rate=hits / draws,
    )


Remedy = tuple[str, str, Task]
"""The knob that it moves, what it says, and what would then be drawn."""


def _plainer(task: Task) -> Iterator[Remedy]:
    """One opt-in knob at its default."""
    kind = task.kind
    if kind.placement != "uniform":
        plain = replace(kind, placement="uniform")
        yield "placement", f"placement.uniform for placement.{kind.placement}", replace(task, kind=plain)
    if kind.topology != "random":
        plain = replace(kind, topology="random")
        yield "topology", f"topology.random for topology.{kind.topology}", replace(task, kind=plain)
    if kind.goals != 1:
        yield "goals", f"goals.1 for goals.{kind.goals}", replace(task, kind=replace(kind, goals=1))


def _lighter(task: Task) -> Iterator[Remedy]:
    """Fewer agents or fewer holes, the least change first."""
    for agents in reversed(AGENT_COUNTS[: AGENT_COUNTS.index(task.agents)]):
        yield "agents", f"agents.{agents} for agents.{task.agents}", replace(task, agents=agents)
    yield from _holed(task, fewer=True)


def _holed(task: Task, *, fewer: bool) -> Iterator[Remedy]:
    """Another share of holes, the least change first."""
    path = f"{cell_name(task.size)}.hole_ratio"
    for tenths in range(4, -1, -1) if fewer else range(1, 6):
        holes = round(tenths / 10 * task.size**2)
        if holes < min(task.holes) if fewer else holes > max(task.holes):
            yield path, f"{path} {tenths / 10:g}", replace(task, holes=(holes,))


def _remedies(waiting: set[Quota], effort: float, remedies: Iterable[Remedy]) -> list[str]:
    """Of each knob the first change that would do, with its solvable share."""
    found: dict[str, str] = {}
    solvable, hits = min(1.0, MARGIN * MIN_SOLVABLE_SHARE / effort), MARGIN / (MAX_DRAWS_PER_HIT * effort)
    for knob, name, other in remedies:
        if knob in found:
            continue
        share = _solvable_rate(other, waiting, solvable)
        if share >= solvable and _fills(other, waiting, hits):
            found[knob] = f"{name} ({share:.0%} solvable)"
    return list(found.values())


def _solvable_rate(task: Task, waiting: set[Quota], least: float) -> float:
    """The solvable share of a group as ``judge`` would count it; 0 if the wanted splits have next to no layouts, or
    once it is clear that it is far below ``least``."""
    tally = Tally()
    for count, (split, layout) in enumerate(islice(_drawn(task, waiting, tally), TRIAL_LAYOUTS), 1):
        tally.draws[split] = tally.draws.get(split, 0) + 1
        tally.unsolvable += isinstance(analysed(layout, TRIAL_LIMITS).makespan(), Unsolvable)
        share = tally.solvable_share()
        if count == TRIAL_LAYOUTS or (count >= HOPELESS_AFTER and MARGIN * share < least):
            return share
    return 0.0


def _fills(task: Task, waiting: set[Quota], least: float) -> bool:
    """Whether every quota that is still waiting would be hit often enough."""
    missing = {quota: max(1, ceil(least * QUOTA_TRIAL_LAYOUTS)) for quota in waiting}
    for split, layout in islice(_drawn(task, waiting, Tally()), QUOTA_TRIAL_LAYOUTS):
        analysis = analysed(layout, TRIAL_LIMITS)
        for quota in [quota for quota in missing if quota[0] == split]:
            missing[quota] -= _hits(analysis, quota[1])
            if missing[quota] == 0:
                del missing[quota]
        if not missing:
            return True
    return False


def _drawn(task: Task, waiting: set[Quota], tally: Tally) -> Iterator[tuple[str, Layout]]:
    """Layouts of the wanted splits, from a stream of the task's own; ``tally`` counts the places found."""
    rng = stream("remedy", task)
    wanted = {split for split, _ in waiting}
    for _ in range(TRIAL_DRAWS):
        layout = lay_out(rng, task.size, task.agents, task.holes[0], task.kind)
        if layout is None:
            tally.placeless += 1
            continue
        tally.layouts += 1
        split = split_of_hash(canonical_hash(task.size, task.size, layout.marks, layout.ends()))
        if split in wanted:
            yield split, layout


def _hits(analysis: Analysis, needs_wait: bool | None) -> bool:
    if needs_wait is None:
        return not isinstance(analysis.makespan(), LimitReached | Unsolvable)
    return analysis.needs_wait_soc() is needs_wait
