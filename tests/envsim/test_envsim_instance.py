"""Hash, split and id; files that say where they are wrong."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from envsim_cases import Layout, layouts
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from envsim.api import SPLITS, EnvsimError
from envsim.lake.grid import Cell
from envsim.lake.instance import (
    Labels,
    LakeInstance,
    check_layout,
    layout_from_json,
    make_instance,
    read_instances,
    split_of_hash,
    write_instances,
)
from envsim.lake.solver import analyse


def _made(layout: Layout) -> tuple[list[str], list[Cell], list[Cell]]:
    _, rows, starts, goals = layout
    n = len(rows)
    return rows, [divmod(v, n) for v in starts], [divmod(v, n) for v in goals]


@given(layouts(3, 6, (2, 4)), st.integers(0, 7), st.randoms(use_true_random=False))
def test_hash_is_the_same_for_all_symmetries_and_agent_orders(layout: Layout, symmetry: int, rng: object) -> None:
    rows, starts, goals = _made(layout)
    n = len(rows)

    def image(cell: Cell) -> Cell:
        r, c = cell
        if symmetry & 1:
            r = n - 1 - r
        if symmetry & 2:
            c = n - 1 - c
        return (c, r) if symmetry & 4 else (r, c)

    marks = {image((r, c)): rows[r][c] for r in range(n) for c in range(n)}
    turned = ["".join(marks[r, c] for c in range(n)) for r in range(n)]
    agents = [(image(s), image(g)) for s, g in zip(starts, goals, strict=True)]
    rng.shuffle(agents)  # type: ignore[attr-defined]
    one = make_instance(rows, starts, goals)
    other = make_instance(turned, [s for s, _ in agents], [g for _, g in agents])
    assert (one.hash, one.split) == (other.hash, other.split)
    same = (turned, [s for s, _ in agents], [g for _, g in agents]) == (rows, starts, goals)
    assert (one.id == other.id) == same


@pytest.mark.parametrize("symmetry", range(8))
def test_the_hash_of_a_rectangle(symmetry: int) -> None:
    """Ids of rectangles are in files of others, so they must stay; and a large one is hashed at once."""
    bay = make_instance([".....", "@.@@@"], [(0, 0), (0, 4)], [(0, 4), (0, 0)])
    assert bay.id == "2x5-2-6e4afb540b-393825"
    rng = random.Random(symmetry)
    rows = ["".join(rng.choices(".@", [9, 1], k=900)) for _ in range(600)]
    free = [(r, c) for r, row in enumerate(rows) for c, mark in enumerate(row) if mark == "."]
    ends = rng.sample(free, 4)

    def image(cell: Cell) -> Cell:
        r, c = cell
        r, c = (599 - r if symmetry & 1 else r), (899 - c if symmetry & 2 else c)
        return (c, r) if symmetry & 4 else (r, c)

    turned = [row[::-1] if symmetry & 2 else row for row in (rows[::-1] if symmetry & 1 else rows)]
    turned = ["".join(column) for column in zip(*turned, strict=True)] if symmetry & 4 else turned
    moved = [image(cell) for cell in ends]
    assert make_instance(rows, ends[:2], ends[2:]).hash == make_instance(turned, moved[:2], moved[2:]).hash


@given(layouts(3, 5, (2, 2)), st.integers(0, 7), st.booleans(), st.randoms(use_true_random=False))
def test_via_cells_enter_the_hash_and_turn_with_the_map(
    layout: Layout, symmetry: int, swapped: bool, rng: random.Random
) -> None:
    rows, starts, goals = _made(layout)
    n = len(rows)
    free = [(r, c) for r in range(n) for c in range(n) if rows[r][c] == "."]
    via = rng.sample(free, 2)

    def image(cell: Cell) -> Cell:
        r, c = cell
        if symmetry & 1:
            r = n - 1 - r
        if symmetry & 2:
            c = n - 1 - c
        return (c, r) if symmetry & 4 else (r, c)

    marks = {image((r, c)): rows[r][c] for r in range(n) for c in range(n)}
    turned = ["".join(marks[r, c] for c in range(n)) for r in range(n)]
    order = slice(None, None, -1) if swapped else slice(None)
    ends = [[image(cell) for cell in cells][order] for cells in (starts, goals, via)]
    one = make_instance(rows, starts, goals, via=via)
    assert make_instance(turned, ends[0], ends[1], via=ends[2]).hash == one.hash
    assert make_instance(rows, starts, goals).hash != one.hash
    assert make_instance(rows, starts, goals, via=via[::-1]).id != one.id


def test_hash_tells_start_from_goal_and_shape_from_shape() -> None:
    one = make_instance(["..."], [(0, 0)], [(0, 1)])
    assert make_instance(["..."], [(0, 1)], [(0, 0)]).hash != one.hash
    assert make_instance(["....", "...."], [(0, 0)], [(0, 1)]).hash != one.hash
    assert make_instance([".", ".", "."], [(2, 0)], [(1, 0)]).hash == one.hash


def test_splits_by_hash_modulo_16() -> None:
    names = [split_of_hash(f"{i:x}") for i in range(16)]
    assert names[:5] == ["anchor", "test", "validation", "probe", "benchmark"]
    assert Counter(names)["training"] == 11
    assert set(names) == set(SPLITS)


@pytest.mark.parametrize(
    ("rows", "starts", "goals", "words"),
    [
        ([], [(0, 0)], [(0, 0)], "the map is empty"),
        (["..", "."], [(0, 0)], [(0, 1)], "row 1 has 1 cells, expected 2"),
        (["S."], [(0, 0)], [(0, 1)], "row 0 is 'S.'"),
        ([".."], [(0, 0)], [], "1 starts and 0 goals"),
        (["@."], [(0, 1)], [(0, 0)], "goal of agent 0 is (0,0), a hole"),
        ([".."], [(0, 0)], [(1, 0)], "goal of agent 0 is (1,0), outside"),
        (["..."], [(0, 0), (0, 0)], [(0, 1), (0, 2)], "share a start"),
        (["..."], [(0, 0), (0, 1)], [(0, 2), (0, 2)], "share a goal"),
    ],
)
def test_unsound_layouts_are_refused_at_load(
    rows: list[str], starts: list[Cell], goals: list[Cell], words: str
) -> None:
    with pytest.raises(EnvsimError) as caught:
        check_layout(rows, starts, goals)
    assert words in str(caught.value)


def test_start_may_be_goal() -> None:
    check_layout(["..."], [(0, 0), (0, 1)], [(0, 0), (0, 2)])


def _instances() -> list[LakeInstance]:
    rows, starts, goals = ["...", ".@.", "..."], [(0, 0), (2, 2)], [(2, 0), (0, 2)]
    return [
        make_instance(rows, starts, goals, analyse(rows, starts, goals).certificate()),
        make_instance(["....", "@..."], [(0, 0)], [(1, 3)]),
    ]


def test_files_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "instances.jsonl"
    write_instances(path, _instances())
    assert list(read_instances(path)) == _instances()
    row = json.loads(path.read_text().splitlines()[0])
    expected = ["id", "hash", "split", "size", "agents", "rows", "starts", "goals", "certificate"]
    assert list(row) == expected


def test_opt_in_fields_round_trip_and_labels_do_not_enter_the_hash(tmp_path: Path) -> None:
    rows, starts, goals = ["...", ".@.", "..."], [(0, 0), (2, 2)], [(2, 0), (0, 2)]
    plain = make_instance(rows, starts, goals)
    labels: Labels = {"topology": "rooms", "placement": "far", "success_rate": 0.97, "shaping": 0.3}
    labelled = make_instance(rows, starts, goals, **labels)
    assert (labelled.id, labelled.hash) == (plain.id, plain.hash)
    both = make_instance(rows, starts, goals, via=[(0, 1), (1, 0)], **labels)
    path = tmp_path / "instances.jsonl"
    write_instances(path, [plain, labelled, both])
    assert list(read_instances(path)) == [plain, labelled, both]
    bare, *_, full = (json.loads(line) for line in path.read_text().splitlines())
    assert set(full) - set(bare) == {"via", *labels}
    assert layout_from_json(json.dumps(full), "x") == both


@pytest.mark.parametrize(
    ("via", "words"),
    [
        ([(0, 1)], "1 via cells for 2 agents"),
        ([(0, 1), (1, 1)], "via cell of agent 1 is (1,1), a hole"),
        ([(0, 1), (1, 3)], "via cell of agent 1 is (1,3), outside"),
    ],
)
def test_unsound_via_cells_are_refused(via: list[Cell], words: str) -> None:
    with pytest.raises(EnvsimError) as caught:
        make_instance(["...", ".@.", "..."], [(0, 0), (2, 2)], [(2, 0), (0, 2)], via=via)
    assert words in str(caught.value)


def test_bad_rows_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "instances.jsonl"
    write_instances(path, _instances())
    good = path.read_text().splitlines()
    moved = json.loads(good[0]) | {"starts": [[0, 0], [2, 1]]}
    for bad, words in (
        ("{", "not an instance"),
        (json.dumps(json.loads(good[0]) | {"colour": 1}), "colour"),
        (json.dumps(json.loads(good[0]) | {"agents": 3}), "agents is 3"),
        (json.dumps(moved), "hash"),
    ):
        path.write_text(f"{good[0]}\n{bad}\n")
        with pytest.raises(EnvsimError) as caught:
            list(read_instances(path))
        assert f"{path}:2" in str(caught.value)
        assert words in str(caught.value)


def test_bare_layouts_load_and_say_what_is_missing() -> None:
    assert layout_from_json('{"rows": [".."], "starts": [[0,0]], "goals": [[0,1]]}', "x").agents == 1
    for text, words in (('{"rows": [".."]}', "starts"), ("[]", "x:"), ('{"rows": 1, "starts": [], "goals": []}', "x:")):
        with pytest.raises(EnvsimError) as caught:
            layout_from_json(text, "x")
        assert words in str(caught.value)


def test_instances_are_frozen_and_closed() -> None:
    instance = _instances()[0]
    with pytest.raises(ValidationError):
        instance.size = 4  # type: ignore[misc]
    with pytest.raises(ValidationError):
        LakeInstance.model_validate(instance.model_dump() | {"size": 4})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"via": [[0]]}, "x: via.0.1: Field required"),
        ({"via": [[0, True]]}, "x: via.0.1: Input should be a valid integer (got True)"),
        ({"via": [[0, 9]]}, "x: via cell of agent 0 is (0,9), outside the 1x2 map"),
        ({"starts": 5}, "x: starts: Input should be a valid array (got 5)"),
        ({"success_rate": 2}, "x: success_rate: Input should be less than or equal to 1 (got 2.0)"),
        ({"topology": 3}, "x: topology: Input should be a valid string (got 3)"),
    ],
)
def test_bare_layouts_say_what_is_wrong_and_where(changes: dict[str, object], words: str) -> None:
    bare = {"rows": [".."], "starts": [[0, 0]], "goals": [[0, 1]], "name": "other keys are for others"}
    with pytest.raises(EnvsimError) as caught:
        layout_from_json(json.dumps(bare | changes), "x")
    assert str(caught.value) == words
