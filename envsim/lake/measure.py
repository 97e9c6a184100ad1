"""What instances are: the quantities of each cell, and an index of difficulty that no policy enters.

Everything is read off the instances and their certificates, so generated, loaded and imported ones measure alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from envsim.api import EnvsimError
from envsim.lake.config import AGENT_COUNTS, MIXTURES
from envsim.lake.grid import HOLE
from envsim.lake.instance import Certificate, LakeInstance

Quantity = Callable[[LakeInstance], float]


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def certificate_of(instance: LakeInstance) -> Certificate:
    """The certificate. Raises EnvsimError if the instance has none."""
    if instance.certificate is None:
        raise EnvsimError(f"instance {instance.id} has no certificate; certify it first (envsim solve --certified)")
    return instance.certificate


def difficulty(instance: LakeInstance) -> float:
    """0.5 min(1, makespan/24) + 0.2 min(1, holes/50 %) + 0.2 min(1, coordination cost/6) + 0.1 [needs a wait].

    What is unknown for lack of the optimal sum of costs is bounded from below: coordination cost by the makespan's
    excess over the longest distance, the wait by the one for the makespan. An unsolvable instance has 1.
    """
    certificate = certificate_of(instance)
    if not certificate.solvable or certificate.makespan is None:
        return 1.0
    excess = certificate.makespan - max(certificate.distances)
    coordination = excess if certificate.coordination_cost is None else certificate.coordination_cost
    waits = certificate.needs_wait_soc
    waits = certificate.needs_wait_makespan if waits is None else waits
    return (
        0.5 * min(1.0, certificate.makespan / 24)
        + 0.2 * min(1.0, hole_ratio(instance) / 0.5)
        + 0.2 * min(1.0, coordination / 6)
        + 0.1 * bool(waits)
    )


def hole_ratio(instance: LakeInstance) -> float:
    """Share of the cells that are holes."""
    return sum(row.count(HOLE) for row in instance.rows) / (len(instance.rows) * len(instance.rows[0]))


def quantities(by_cell: Mapping[str, Sequence[LakeInstance]]) -> dict[str, dict[str, float]]:
    """The quantities of each cell.

    hole_ratio; wait_ratio (share that needs a wait for the sum of costs); conflict_share (first shortest paths
    collide); coordination_cost and optimal_makespan (means where known); duplicate_share (instances that repeat an
    earlier one up to symmetry). Where some instance of any cell is other than plain, in all cells: agents (mean
    number); agents.3, topology.rooms, placement.far, goals.2 and so on (share of instances); success_rate and shaping
    (means).
    """
    extra = _opt_in([instance for group in by_cell.values() for instance in group])
    return {
        cell: _plain(group) | {name: mean([of(instance) for instance in group]) for name, of in extra.items()}
        for cell, group in by_cell.items()
    }


def _plain(group: Sequence[LakeInstance]) -> dict[str, float]:
    certificates = [certificate_of(instance) for instance in group]
    return {
        "hole_ratio": mean([hole_ratio(instance) for instance in group]),
        "wait_ratio": mean([bool(c.needs_wait_soc) for c in certificates if c.needs_wait_soc is not None]),
        "conflict_share": mean([c.paths_collide for c in certificates]),
        "coordination_cost": mean([c.coordination_cost for c in certificates if c.coordination_cost is not None]),
        "optimal_makespan": mean([c.makespan for c in certificates if c.makespan is not None]),
        "duplicate_share": 1 - len({instance.hash for instance in group}) / len(group),
    }


def _opt_in(instances: Sequence[LakeInstance]) -> dict[str, Quantity]:
    """What to measure beyond a plain lake: only what some instance has."""
    found: dict[str, Quantity] = {}
    if any(instance.agents != AGENT_COUNTS[0] for instance in instances):
        found["agents"] = lambda instance: instance.agents
    for name, values in MIXTURES.items():
        present = {_part(instance, name) for instance in instances}
        found |= {f"{name}.{value}": _is_part(name, value) for value in values[1:] if value in present}
    if any(instance.success_rate != 1 for instance in instances):
        found["success_rate"] = lambda instance: instance.success_rate
    if any(instance.shaping for instance in instances):
        found["shaping"] = lambda instance: instance.shaping
    return found


def _part(instance: LakeInstance, mixture: str) -> int | str:
    """Which part of a mixture an instance belongs to."""
    if mixture == "goals":
        return 1 if instance.via is None else 2
    part: int | str = getattr(instance, mixture)
    return part


def _is_part(mixture: str, value: int | str) -> Quantity:
    return lambda instance: _part(instance, mixture) == value
