"""The order of a designed stage: nodes of code in fixed places, and the roles between them.

The code's nodes are a chain that no role can leave: evidence -> whoever writes the proposal -> gates -> whoever writes
the critique -> approval -> settle -> whoever writes the budget -> dataset. A role's place only adds to it, so that
nothing a role file says leads from a proposal to training around the gates or the critic.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

import networkx as nx

from agents.rolespec import RoleSpec

CODE_PLACES = ("evidence", "gates", "approval", "settle", "dataset")
"""Nodes of code between which roles stand, in their order; a role stands after the first and before the last."""
RESERVED = (*CODE_PLACES, "baseline", "train", "evaluate", "accept_or_roll_back", "report")
"""Names of all nodes of code."""
SKELETON = ("evidence", "proposal", "gates", "critique", "approval", "settle", "budget", "dataset")
"""Nodes of code, and between them the keys whose writers stand there."""

Part = Literal["design", "proposed", "review", "decided"]
"""Where a role stands: up to the designer, between it and the gates, up to the critic, or after the critic's word."""


class PlaceCycle(ValueError):
    """Places that wait for one another; ``nodes`` are they, the first one again at the end."""

    def __init__(self, nodes: list[str]) -> None:
        super().__init__(
            f"place: {' -> '.join(nodes)} wait for one another; remove one of these places "
            f"(the run's own order is {' -> '.join(SKELETON)}, with the roles that write these keys)"
        )
        self.nodes = nodes


def stage_graph(roles: Mapping[str, RoleSpec]) -> nx.DiGraph[str]:
    """An edge from every node to each that must come later. ``roles`` are the enabled ones."""
    writers = {role.writes: name for name, role in roles.items()}
    skeleton = [writers.get(node, node) for node in SKELETON if node in CODE_PLACES or node in writers]
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(pairwise(skeleton))
    for name, role in roles.items():
        graph.add_edges_from((before, name) for before in ("evidence", *role.place.after))
        graph.add_edges_from((name, after) for after in (*role.place.before, "dataset"))
    return graph


def stage_order(roles: Mapping[str, RoleSpec]) -> list[str]:
    """All nodes of a designed stage from ``evidence`` to ``dataset``, the roles among those of code.

    A role comes as early as its place allows: after code, before the writers of the loop's own keys, then by name.
    Raises PlaceCycle.
    """
    graph = stage_graph(roles)

    def rank(node: str) -> tuple[int, str]:
        return (0, node) if node not in roles else (1 if roles[node].writes_note else 2, node)

    try:
        return list(nx.lexicographical_topological_sort(graph, key=rank))
    except nx.NetworkXUnfeasible:
        cycle = [source for source, _ in nx.find_cycle(graph)]
        raise PlaceCycle([*cycle, cycle[0]]) from None


def part_of(roles: Mapping[str, RoleSpec], name: str) -> Part:
    """Where a role stands in the stage."""
    order = stage_order(roles)
    place = order.index(name)
    writers = {role.writes: other for other, role in roles.items()}
    bounds: tuple[tuple[Part, str], ...] = (
        ("design", writers["proposal"]),
        ("proposed", "gates"),
        ("review", writers["critique"]),
    )
    return next((part for part, last in bounds if place <= order.index(last)), "decided")


def without_disabled(roles: Mapping[str, RoleSpec]) -> dict[str, RoleSpec]:
    """The enabled roles; where one names a disabled role as its place, it gets that role's own place instead."""

    def resolved(names: tuple[str, ...], side: str, seen: frozenset[str]) -> tuple[str, ...]:
        found: list[str] = []
        for name in names:
            other = roles.get(name)
            if other is None or other.enabled:
                found.append(name)
            elif name not in seen:
                found.extend(resolved(getattr(other.place, side), side, seen | {name}))
        return tuple(dict.fromkeys(found))

    enabled = {}
    for name, role in roles.items():
        if role.enabled:
            place = role.place.model_copy(
                update={side: resolved(getattr(role.place, side), side, frozenset()) for side in ("after", "before")}
            )
            enabled[name] = role if place == role.place else role.model_copy(update={"place": place})
    return enabled
