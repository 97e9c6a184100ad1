"""Every topology has exactly the holes asked for, hangs together, and looks like what it is called."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.lake.chance import stream
from envsim.lake.config import TOPOLOGIES
from envsim.lake.grid import graph
from envsim.lake.topology import connected, free_cells

STRUCTURED = TOPOLOGIES[1:]
SHAPES = st.integers(3, 10).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n * n // 2)))


def drawn(topology: str, seed: int, size: int, holes: int) -> list[str]:
    free = free_cells(topology, stream("topology", seed), size, holes)
    return ["".join("." if free >> r * size + c & 1 else "@" for c in range(size)) for r in range(size)]


@given(st.sampled_from(TOPOLOGIES), SHAPES, st.integers(0, 10**9))
def test_the_number_of_holes_is_exact_and_a_seed_repeats(topology: str, shape: tuple[int, int], seed: int) -> None:
    rows = drawn(topology, seed, *shape)
    assert sum(row.count("@") for row in rows) == shape[1]
    assert drawn(topology, seed, *shape) == rows


@given(st.sampled_from(STRUCTURED), SHAPES, st.integers(0, 10**9))
def test_structures_are_connected(topology: str, shape: tuple[int, int], seed: int) -> None:
    assert nx.is_connected(graph(drawn(topology, seed, *shape)))


@given(SHAPES, st.integers(0, 10**9))
def test_connected_is_what_networkx_says(shape: tuple[int, int], seed: int) -> None:
    rows = drawn("random", seed, *shape)
    free = free_cells("random", stream("topology", seed), *shape)
    assert connected(shape[0], free) == nx.is_connected(graph(rows))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_seeds_differ(topology: str) -> None:
    assert len({tuple(drawn(topology, seed, 9, 30)) for seed in range(40)}) > 30


def open_blocks(rows: list[str]) -> int:
    """2 x 2 blocks without a hole: ground on which two agents pass each other anywhere."""
    n = len(rows)
    return sum(
        rows[r][c] == rows[r][c + 1] == rows[r + 1][c] == rows[r + 1][c + 1] == "."
        for r in range(n - 1)
        for c in range(n - 1)
    )


def narrow(rows: list[str]) -> int:
    """Cells that cut their lake in two, such as the doors of rooms and the cells of a corridor."""
    return len(list(nx.articulation_points(graph(rows))))


def longest_walls(rows: list[str]) -> int:
    """Cells of holes that stand in a straight row of at least three."""
    lines = [*rows, *map("".join, zip(*rows, strict=True))]
    return sum(len(run) for line in lines for run in line.split(".") if len(run) >= 3)


@pytest.mark.parametrize(("size", "holes"), [(10, 42), (10, 50), (7, 24)])
def test_corridors_leave_no_open_ground(size: int, holes: int) -> None:
    maps = [drawn("corridor", seed, size, holes) for seed in range(20)]
    plain = [drawn("random", seed, size, holes) for seed in range(20)]
    assert sum(map(open_blocks, maps)) == 0
    assert sum(map(open_blocks, plain)) > 0
    assert sum(map(narrow, maps)) > 1.5 * sum(map(narrow, plain))


def test_a_corridor_with_few_holes_is_a_maze_in_part() -> None:
    maps = [drawn("corridor", seed, 10, 25) for seed in range(20)]
    plain = [drawn("random", seed, 10, 25) for seed in range(20)]
    assert all(open_blocks(rows) > 0 for rows in maps)
    assert sum(map(narrow, maps)) > 1.2 * sum(map(narrow, plain))


@pytest.mark.parametrize(("size", "holes"), [(10, 20), (10, 33), (7, 12)])
def test_rooms_have_walls_with_doors(size: int, holes: int) -> None:
    maps = [drawn("rooms", seed, size, holes) for seed in range(20)]
    plain = [drawn("random", seed, size, holes) for seed in range(20)]
    assert sum(map(longest_walls, maps)) > 2 * sum(map(longest_walls, plain))
    for rows in maps:
        doors = [
            (r, c)
            for r in range(1, size - 1)
            for c in range(1, size - 1)
            if rows[r][c] == "."
            and ((rows[r - 1][c] == rows[r + 1][c] == "@") != (rows[r][c - 1] == rows[r][c + 1] == "@"))
        ]
        assert doors


@pytest.mark.parametrize(("size", "holes"), [(10, 20), (10, 40), (8, 20)])
def test_warehouses_have_straight_aisles_from_side_to_side(size: int, holes: int) -> None:
    for seed in range(20):
        rows = drawn("warehouse", seed, size, holes)
        columns = ["".join(column) for column in zip(*rows, strict=True)]
        assert "." * size in rows
        assert "." * size in columns


def test_bad_arguments() -> None:
    with pytest.raises(EnvsimError, match="did you mean 'rooms'"):
        free_cells("room", stream(0), 5, 3)
    with pytest.raises(EnvsimError, match="25 holes on a 5x5 lake"):
        free_cells("random", stream(0), 5, 25)
