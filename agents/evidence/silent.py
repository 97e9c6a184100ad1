"""Where training had no signal: groups whose answers all earned the same, by cell and number of agents.

Read off the completions that a stage keeps. A store that had to drop some steps says which only by the clock, so a
stage that is not there whole tells nothing here; its share over all groups stands in its result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from envsim.api import Environment, Instance
from trainer.completions import CompletionsError, files, read_completions

SAME = 1e-6
"""Rewards that lie no further apart are the same."""


def silent_shares(
    environment: Environment, instances: Iterable[Instance], stage: Path, steps: int
) -> dict[tuple[str, int], float]:
    """The share of such groups in a stage's directory; ``instances`` are those that it trained on.

    Empty if one of its ``steps`` is not kept, or a file is damaged.
    """
    try:
        table = (
            read_completions(files(stage), columns=("step", "instance_id", "cell", "reward")) if files(stage) else None
        )
    except CompletionsError:
        table = None
    if table is None or set(table["step"].to_pylist()) != set(range(1, steps + 1)):
        return {}
    agents = {instance.id: environment.agents(instance) for instance in instances}
    rewards: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for row in table.to_pylist():
        rewards[row["step"], row["instance_id"], row["cell"]].append(row["reward"])
    groups: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for (_, name, cell), earned in rewards.items():
        if name not in agents:
            return {}
        groups[cell, agents[name]].append(max(earned) - min(earned) <= SAME)
    return {key: sum(silent) / len(silent) for key, silent in groups.items()}
