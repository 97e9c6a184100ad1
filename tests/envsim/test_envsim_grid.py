"""The integer arrays are the networkx graph."""

from __future__ import annotations

import networkx as nx
from envsim_cases import Layout, layouts
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.lake.grid import Board, collide, graph

RECTANGLES = st.integers(1, 6).flatmap(
    lambda columns: st.lists(st.text(".@", min_size=columns, max_size=columns), min_size=1, max_size=6)
)


def _number(rows: list[str]) -> dict[tuple[int, int], int]:
    return {(r, c): r * len(rows[0]) + c for r in range(len(rows)) for c in range(len(rows[0]))}


@given(RECTANGLES)
def test_arrays_equal_the_graph(rows: list[str]) -> None:
    board, lake, number = Board.of(rows), graph(rows), _number(rows)
    assert {v for v in range(board.n) if board.free >> v & 1} == {number[cell] for cell in lake}
    for cell, v in number.items():
        expected = sorted(number[other] for other in lake.adj[cell]) if cell in lake else []
        assert list(board.neighbours[v]) == expected
        if cell in lake:
            assert board.spread(1 << v) == sum(1 << u for u in expected)


@given(RECTANGLES)
def test_distances_and_first_paths_equal_networkx(rows: list[str]) -> None:
    board, lake, number = Board.of(rows), graph(rows), _number(rows)
    for goal in lake:
        lengths = nx.single_source_shortest_path_length(lake, goal)
        distances = board.distances(number[goal])
        layers = board.layers(number[goal])
        for cell, v in number.items():
            assert distances[v] == lengths.get(cell, -1)
            path = board.first_path(v, layers) if cell in lake else None
            if cell in lengths:
                paths = sorted([number[c] for c in way] for way in nx.all_shortest_paths(lake, cell, goal))
                assert path == paths[0]
            else:
                assert path is None


@settings(max_examples=50)
@given(layouts())
def test_distances_around_blocked_cells(layout: Layout) -> None:
    board, rows, starts, goals = layout
    lake = graph(rows)
    columns = len(rows[0])
    lake.remove_node(divmod(starts[0], columns))
    blocked = board.distances(goals[0], blocked=1 << starts[0])
    lengths = nx.single_source_shortest_path_length(lake, divmod(goals[0], columns))
    assert all(blocked[v] == lengths.get(divmod(v, columns), -1) for v in range(board.n))


def test_collisions_see_swaps_and_those_who_stay() -> None:
    assert collide([[0, 1], [1, 0]])
    assert collide([[0, 1, 2], [2]])
    assert collide([[2], [0, 1, 2]])
    assert not collide([[0, 1], [1, 2]])
