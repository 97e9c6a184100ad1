"""Each placement keeps its promise, by an independent reading of it."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.lake.chance import stream
from envsim.lake.config import PLACEMENTS, TOPOLOGIES
from envsim.lake.grid import Board, Cell, graph
from envsim.lake.layout import Kind, Layout, lay_out
from envsim.lake.placement import FAR_PERCENT, place

SEEDS = st.integers(0, 10**9)


def drawn(placement: str, seed: int, size: int, agents: int, goals: int = 1, *, holes: float = 0.3) -> Layout | None:
    topology = TOPOLOGIES[seed % len(TOPOLOGIES)]
    kind = Kind(topology=topology, placement=placement, goals=goals)
    return lay_out(stream("placement", seed), size, agents, round(holes * size * size), kind)


def stops(layout: Layout) -> list[list[Cell]]:
    """Start, via if any, and goal of each agent as cells."""
    columns = layout.board.columns
    return [[divmod(v, columns) for v in ((e[0], e[2], e[1]) if len(e) == 3 else (e[0], e[1]))] for e in layout.ends()]


@given(st.sampled_from(PLACEMENTS), SEEDS, st.integers(3, 7), st.integers(2, 5), st.integers(1, 2))
def test_ends_are_distinct_reachable_and_repeat_by_seed(
    placement: str, seed: int, size: int, agents: int, goals: int
) -> None:
    layout = drawn(placement, seed, size, agents, goals)
    again = drawn(placement, seed, size, agents, goals)
    if layout is None:
        assert again is None
        return
    assert again is not None
    assert (again.marks, again.ends()) == (layout.marks, layout.ends())
    lake = graph(layout.rows())
    for cells in zip(*stops(layout), strict=True):
        assert len(set(cells)) == agents
    for agent in stops(layout):
        assert len(agent) == goals + 1
        assert len(set(agent)) == len(agent)
        assert all(nx.has_path(lake, a, b) for a, b in pairwise(agent))


@given(SEEDS, st.integers(3, 8), st.integers(2, 5), st.integers(1, 2))
def test_far_legs_are_in_the_top_part_of_what_the_map_allows(seed: int, size: int, agents: int, goals: int) -> None:
    layout = drawn("far", seed, size, agents, goals)
    if layout is None:
        return
    distance = dict(nx.all_pairs_shortest_path_length(graph(layout.rows())))
    longest = max(d for row in distance.values() for d in row.values())
    for agent in stops(layout):
        for a, b in pairwise(agent):
            assert 100 * distance[a][b] >= FAR_PERCENT * longest


def first_way(lake: nx.Graph[Cell], agent: list[Cell]) -> list[Cell]:
    way = agent[:1]
    for a, b in pairwise(agent):
        way += min(nx.all_shortest_paths(lake, a, b))[1:]
    return way


def collide(one: list[Cell], other: list[Cell]) -> bool:
    steps = max(len(one), len(other))
    p, q = ([*way, *[way[-1]] * (steps - len(way))] for way in (one, other))
    swaps = any(p[t] == q[t + 1] and q[t] == p[t + 1] for t in range(steps - 1))
    return swaps or any(a == b for a, b in zip(p, q, strict=True))


@settings(max_examples=60)
@given(SEEDS, st.integers(3, 6), st.integers(2, 5), st.integers(1, 2))
def test_crossing_ways_all_collide_with_another(seed: int, size: int, agents: int, goals: int) -> None:
    layout = drawn("crossing", seed, size, agents, goals)
    if layout is None:
        return
    lake = graph(layout.rows())
    ways = [first_way(lake, agent) for agent in stops(layout)]
    met = {i for pair in combinations(range(agents), 2) if collide(ways[pair[0]], ways[pair[1]]) for i in pair}
    assert met == set(range(agents))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("goals", [1, 2])
def test_maps_with_room_find_a_place_nearly_always(placement: str, goals: int) -> None:
    found = [drawn(placement, seed, 8, 2, goals, holes=0.2) is not None for seed in range(60)]
    assert sum(found) > 45


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_board_without_room_hosts_nobody(placement: str) -> None:
    for rows in (["...", "@@@", "@@@"], ["@.@", ".@.", "@.@"]):
        assert place(placement, stream(0), Board.of(rows), 4) is None
    with pytest.raises(EnvsimError, match="did you mean 'far'"):
        place("fare", stream(0), Board.of(["..."]), 2)
