"""The out-of-distribution set in the shape of the paper: valid / optimal in percent by number of agents and cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envsim.api import Environment
from envsim.tables import columns
from trainer.evaluate import Rollout


def benchmark_tables(
    environment: Environment, instances: Sequence[Any], takes: Mapping[str, Sequence[Rollout]]
) -> list[dict[str, Any]]:
    """One table a number of agents: a row a checkpoint, a column a cell, and their mean over all instances."""
    agents = {instance.id: environment.agents(instance) for instance in instances}
    tables = []
    for n in sorted(set(agents.values())):
        parts = {name: [row for row in rows if agents[row.id] == n] for name, rows in takes.items()}
        present = {row.cell for rows in parts.values() for row in rows}
        cells = [cell for cell in environment.cells() if cell in present]
        lines = []
        for name, rows in parts.items():
            figures = [f"{found.acc:.2f} / {found.opt:.2f}" for found in columns(rows, cells)]
            lines.append({"name": name, "figures": figures})
        tables.append({"name": f"{n} agents" if n else "all", "cells": cells, "rows": lines})
    return tables
