"""What a policy does, by cell and number of agents: read off its answers by the environment's own replay.

An action of an environment is any JSON; where each agent's is a word, words are counted. A *wait* is a stay that the
same agent follows by a move, so that resting at a goal is none. Whether a task needs one is what the environment
measures of it as ``wait_ratio``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agents.evidence.clusters import phase
from agents.schemas import CellStatistics
from envsim.api import Environment, Instance
from trainer.evaluate import Rollout

STAY = "stay"
NEEDS_WAIT = "wait_ratio"


def cell_statistics(
    environment: Environment,
    rows: Sequence[Rollout],
    instances: Mapping[str, Instance],
    silent: Mapping[tuple[str, int], float] = MappingProxyType({}),
) -> list[CellStatistics]:
    """One entry a cell and number of agents that the set has, in the environment's order of cells.

    ``silent`` is the share of the last stage's groups without signal, by cell and number of agents.
    """
    groups: dict[tuple[str, int], list[Rollout]] = defaultdict(list)
    for row in rows:
        groups[row.cell, environment.agents(instances[row.id])].append(row)
    order = {cell: place for place, cell in enumerate(environment.cells())}
    return [
        _statistics(environment, cell, agents, groups[cell, agents], instances).model_copy(
            update={"zero_variance": silent.get((cell, agents))}
        )
        for cell, agents in sorted(groups, key=lambda key: (order[key[0]], key[1]))
    ]


def _statistics(
    environment: Environment, cell: str, agents: int, rows: Sequence[Rollout], instances: Mapping[str, Instance]
) -> CellStatistics:
    played = [environment.replay(instances[row.id], row.answer).actions for row in rows]
    words = Counter(word for actions in played for step in actions for word in _words(step))
    needed = [_needs_wait(environment, instances[row.id]) for row in rows]
    used = [_waits(actions) for actions in played]
    known = [need for need in needed if need is not None]
    total = sum(words.values())
    return CellStatistics(
        cell=cell,
        agents=agents,
        n=len(rows),
        valid=_mean([row.valid for row in rows]),
        optimal=_mean([row.optimal for row in rows]),
        regret=_mean([row.regret for row in rows]),
        tokens=_mean([row.tokens for row in rows]),
        fault_step=dict(sorted(Counter(phase(row) for row in rows if not row.valid).items())),
        conflicts=_mean(["conflict" in row.outcome for row in rows]),
        actions={word: count / total for word, count in sorted(words.items())} if total else {},
        waits_needed=_mean(known) if known else None,
        waits_used=_share(used, [need is True for need in needed]),
        waits_idle=_share(used, [need is False for need in needed]),
    )


def _words(step: Any) -> list[str]:
    """The actions of one step that are words."""
    parts = step if isinstance(step, list) else [step]
    return [part for part in parts if isinstance(part, str)]


def _waits(actions: Sequence[Any]) -> bool:
    """Whether some agent stays and moves on later."""
    steps = [step if isinstance(step, list) else [step] for step in actions]
    for agent in range(min((len(step) for step in steps), default=0)):
        own = [step[agent] for step in steps]
        last = max((place for place, word in enumerate(own) if word != STAY), default=-1)
        if STAY in own[: max(last, 0)]:
            return True
    return False


def _needs_wait(environment: Environment, instance: Instance) -> bool | None:
    found = environment.measure([instance]).quantities.get(environment.cell(instance), {})
    return found[NEEDS_WAIT] > 0 if NEEDS_WAIT in found else None


def _share(values: Sequence[bool], chosen: Sequence[bool]) -> float | None:
    picked = [value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen]
    return _mean(picked) if picked else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
