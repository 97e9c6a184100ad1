"""What generation costs, when that is too much, and what would do instead.

``judge`` refuses a group of instances by measured rates alone. Its error names the cell, the knobs that the group is
made by, the rates, and remedies: each is one knob changed, tried on draws of its own, and named only if it would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from envsim.api import YieldError
from envsim.lake.chance import stream
from envsim.lake.config import AGENT_COUNTS, cell_name
from envsim.lake.layout import Kind, Layout, lay_out
from envsim.lake.search import LimitReached, Unsolvable
from envsim.lake.solver import Analysis, Limits

MIN_SOLVABLE_SHARE = 0.3
MAX_DRAWS_PER_HIT = 200
JUDGE_SOLVABLE_AFTER = 100
JUDGE_DRAWS_AFTER = 2_000
TRIAL_DRAWS = 100
"""Draws on which a remedy for unsolvable mass is tried."""
WAIT_TRIAL_DRAWS = 400
TRIAL_LIMITS = Limits(makespan=2_000, soc=2_000)
"""A refusal should not cost more than what it saves; a trial that this leaves open counts as solvable."""
MARGIN = 1.5
"""A remedy is named if it is better than the bound by this factor: its rate is that of a sample."""

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
    least_solvable, most_draws = MIN_SOLVABLE_SHARE / effort, MAX_DRAWS_PER_HIT * effort
    drawn = sum(tally.draws.values()) + tally.placeless
    share = tally.solvable_share()
    cell = cell_name(task.size)
    if drawn >= JUDGE_SOLVABLE_AFTER and share < least_solvable:
        placeless = f" ({tally.placeless} of them found no place for the agents)" if tally.placeless else ""
        raise YieldError(
            f"{task}: {share:.1%} of {drawn} draws are solvable{placeless}, expected at least {least_solvable:.0%}; "
            + _solvable_remedies(task, least_solvable),
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
            left_open = f", {tally.open} left open by the solver's limit" if tally.open else ""
            raise YieldError(
                f"{task}: {hits} of {draws} draws {kind} ({hits / draws:.2%}{left_open}), expected at least 1 in "
                f"{most_draws:g}; {remedy}{_wait_remedies(task, quota[1], 1 / most_draws)}",
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
    for tenths in range(4, -1, -1):
        holes = round(tenths / 10 * task.size**2)
        if holes < min(task.holes):
            path = f"{cell_name(task.size)}.hole_ratio"
            yield path, f"{path} {tenths / 10:g}", replace(task, holes=(holes,))


def _solvable_remedies(task: Task, least: float) -> str:
    found: dict[str, str] = {}
    for knob, name, other in (*_plainer(task), *_lighter(task)):
        if knob not in found and (share := _solvable_rate(other)) >= min(1.0, MARGIN * least):
            found[knob] = f"{name} ({share:.0%} solvable)"
    cell = cell_name(task.size)
    if not found:
        return f"no single knob would do: change several, or leave {cell} out ({cell}.data_ratio 0)"
    return f"would do: {', or '.join(found.values())}, or leaving {cell} out ({cell}.data_ratio 0)"


def _solvable_rate(task: Task) -> float:
    rng = stream("remedy", task)
    solvable = 0
    for _ in range(TRIAL_DRAWS):
        layout = lay_out(rng, task.size, task.agents, task.holes[0], task.kind)
        solvable += layout is not None and not isinstance(analysed(layout, TRIAL_LIMITS).makespan(), Unsolvable)
    return solvable / TRIAL_DRAWS


def _wait_remedies(task: Task, needs_wait: bool | None, least: float) -> str:
    found = []
    for _, name, other in _plainer(task):
        share = _quota_rate(other, needs_wait)
        if share >= MARGIN * least:
            found.append(f"or {name} ({share:.1%})")
    return f", {', '.join(found)}" if found else ""


def _quota_rate(task: Task, needs_wait: bool | None) -> float:
    rng = stream("remedy", task)
    hits = 0
    for _ in range(WAIT_TRIAL_DRAWS):
        layout = lay_out(rng, task.size, task.agents, task.holes[0], task.kind)
        if layout is None:
            continue
        analysis = analysed(layout, TRIAL_LIMITS)
        if needs_wait is None:
            hits += not isinstance(analysis.makespan(), LimitReached | Unsolvable)
        else:
            hits += analysis.needs_wait_soc() is needs_wait
    return hits / WAIT_TRIAL_DRAWS
