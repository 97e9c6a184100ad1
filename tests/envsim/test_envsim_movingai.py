"""MovingAI files: other people's quirks, (x, y) against (row, column), every kind of error, and the round trip."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.documents import DocumentError
from envsim.formats.movingai import read_map, read_scenario, write_map, write_scenario
from envsim.lake.instance import LakeInstance, make_instance

MAP = "type octile\nheight 2\nwidth 4\nmap\n.G@.\nT.S.\n"
SCENARIO = "version 1\n0\tm.map\t4\t2\t3\t0\t0\t0\t4.0\n1\tm.map\t4\t2\t1\t1\t3\t1\t2.0\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "m.map").write_text(MAP)
    (tmp_path / "s.scen").write_text(SCENARIO)
    return tmp_path


def test_a_map_that_is_neither_square_nor_symmetric(files: Path) -> None:
    assert read_map(files / "m.map") == ["..@.", "@..."]
    instance = read_scenario(files / "s.scen")
    assert instance.rows == ["..@.", "@..."]
    # x is the column: (3,0) in the file is row 0, column 3.
    assert instance.starts == [(0, 3), (1, 1)]
    assert instance.goals == [(0, 0), (1, 3)]


def test_which_terrain_is_free(files: Path) -> None:
    assert read_map(files / "m.map", free=".G") == ["..@.", "@.@."]
    assert read_map(files / "m.map", free=".") == [".@@.", "@.@."]


@pytest.mark.parametrize(
    "text",
    [
        MAP.replace("\n", "\r\n"),
        MAP.rstrip("\n"),
        MAP + "\n\n",
        "type octile\nwidth 4\nheight 2\nmap\n.G@.\nT.S.",
        "height 2\nwidth 4\nmap\n.G@.\nT.S.\n",
    ],
)
def test_quirks_of_maps(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.map").write_bytes(text.encode())
    assert read_map(tmp_path / "m.map") == ["..@.", "@..."]


@pytest.mark.parametrize(
    "text",
    [
        SCENARIO.replace("\n", "\r\n"),
        SCENARIO.rstrip("\n"),
        SCENARIO.replace("version 1", "version 1.0"),
        SCENARIO.replace("\t4\t2\t", "\t2\t4\t"),
        SCENARIO.replace("\t4\t2\t", "\t0\t0\t"),
        SCENARIO.replace("version 1\n", ""),
        SCENARIO.replace("\t", " "),
        SCENARIO.replace("m.map", "maps/m.map"),
        SCENARIO.replace("m.map", "maps\\m.map"),
    ],
)
def test_quirks_of_scenarios(files: Path, text: str) -> None:
    expected = read_scenario(files / "s.scen")
    (files / "quirk.scen").write_bytes(text.encode())
    assert read_scenario(files / "quirk.scen") == expected


def test_the_first_lines_are_the_agents(files: Path) -> None:
    assert read_scenario(files / "s.scen", agents=1).starts == [(0, 3)]
    assert read_scenario(files / "s.scen", agents=2) == read_scenario(files / "s.scen")


@pytest.mark.parametrize("name", ["n" * 300 + ".map", "\0.map"])
def test_a_map_name_that_no_file_can_have(files: Path, name: str) -> None:
    (files / "s.scen").write_text(SCENARIO.replace("m.map", name))
    with pytest.raises(EnvsimError, match=r"s\.scen:2: the map .* is not there"):
        read_scenario(files / "s.scen")


def test_a_map_given_by_hand(files: Path, tmp_path: Path) -> None:
    (files / "m.map").rename(files / "other.map")
    with pytest.raises(EnvsimError, match=r"s\.scen:2: the map 'm\.map' is not there; looked for .*m\.map"):
        read_scenario(files / "s.scen")
    assert read_scenario(files / "s.scen", map_path=files / "other.map").agents == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("\t3\t0\t0\t0\t", "\t2\t0\t0\t0\t"),
            r"s\.scen:2: the start of agent 0 is x=2 y=0 \(row 0, column 2\), .*'@'",
        ),
        (("\t3\t1\t2.0", "\t0\t1\t2.0"), r"s\.scen:3: the goal of agent 1 is x=0 y=1 \(row 1, column 0\), .*'T'"),
        (("\t3\t1\t2.0", "\t1\t3\t2.0"), r"s\.scen:3: the goal of agent 1 is x=1 y=3 .*outside .*4 wide and 2 high"),
        (("\t3\t1\t2.0", "\t0\t0\t2.0"), r"s\.scen:3: the goal of agent 1 is x=0 y=0 .*as in line 2"),
        (("1\tm.map", "1\tn.map"), r"s\.scen:3: the map is 'n\.map', that of the line before 'm\.map'"),
        (("1\tm.map\t4", "1\tm.map\t5"), r"s\.scen:3: width and height are 5 and 2"),
        (("version 1", "version 2"), r"s\.scen:1: is 'version 2'; expected 'version 1'"),
        (("\t4.0", ""), r"s\.scen:2: has 8 columns; expected 9"),
        (("\t4.0", "\tfar"), r"s\.scen:2: the length is 'far'; expected a number"),
        (("\t4.0", "\tnan"), r"s\.scen:2: the length is 'nan'"),
        (("\t3\t0\t0\t0\t", "\t-3\t0\t0\t0\t"), r"s\.scen:2: start x is '-3'; expected a whole number"),
        (("\t3\t0\t0\t0\t", "\t³\t0\t0\t0\t"), r"s\.scen:2: start x is '³'"),
        (("0\tm.map", "x\tm.map"), r"s\.scen:2: bucket is 'x'"),
    ],
)
def test_errors_of_scenarios(files: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in SCENARIO
    (files / "s.scen").write_text(SCENARIO.replace(*change, 1), encoding="utf-8")
    with pytest.raises(EnvsimError, match=message):
        read_scenario(files / "s.scen")


def test_too_few_lines(files: Path) -> None:
    with pytest.raises(EnvsimError, match=r"s\.scen: has 2 agents, expected at least 3"):
        read_scenario(files / "s.scen", agents=3)
    with pytest.raises(EnvsimError, match="agents is 0; expected at least 1"):
        read_scenario(files / "s.scen", agents=0)
    (files / "s.scen").write_text("version 1\n")
    with pytest.raises(EnvsimError, match="has 0 agents, expected at least 1"):
        read_scenario(files / "s.scen")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("type octile", "type tile"), r"m\.map:1: the type is 'tile'; expected 'octile'"),
        (("height 2\n", ""), r"m\.map:3: the header has no line 'height'"),
        (("height 2", "height 2 3"), r"m\.map:2: is 'height 2 3'; expected"),
        (("height 2", "width 4"), r"m\.map:3: is 'width 4'; expected .*once each"),
        (("height 2", "height 3"), r"m\.map:6: the map has 2 rows; its header says height 3"),
        (("height 2", "height 0"), r"m\.map:2: height is '0'; expected a whole number from 1 to 999999999"),
        (("height 2", "height 99999999999"), r"height is '99999999999'; expected a whole number from 1 to 999999999"),
        (("width 4", "width 5"), r"m\.map:5: row 0 has 4 marks; the header says width 5"),
        ((".S.", ".F."), r"m\.map:6: x=2 y=1 \(row 1, column 2\) is 'F'; expected one of"),
        (("map\n", ""), r"m\.map:4: is '\.G@\.'; expected"),
    ],
)
def test_errors_of_maps(files: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in MAP
    (files / "m.map").write_text(MAP.replace(*change, 1))
    with pytest.raises(EnvsimError, match=message):
        read_scenario(files / "s.scen")


def test_files_that_are_no_text(files: Path) -> None:
    (files / "m.map").write_bytes(b"type octile\nheight \xff")
    with pytest.raises(DocumentError, match=r"m\.map is no UTF-8 text"):
        read_map(files / "m.map")
    with pytest.raises(DocumentError, match="cannot read"):
        read_map(files / "none.map")
    (files / "m.map").write_text("")
    with pytest.raises(EnvsimError, match=r"m\.map:1: is ''; expected"):
        read_map(files / "m.map")


def test_what_is_written(tmp_path: Path) -> None:
    instance = make_instance(["....", ".@..", "...@"], [(0, 0), (2, 0)], [(2, 2), (0, 3)])
    assert write_scenario(instance, tmp_path / "a.scen") == tmp_path / "a.map"
    assert (tmp_path / "a.map").read_bytes() == b"type octile\nheight 3\nwidth 4\nmap\n....\n.@..\n...@\n"
    # No diagonal cuts the corner of the hole, so (0,0) -> (2,2) takes its four steps; (2,0) -> (0,3) has one diagonal.
    long = 2 + 1 + math.sqrt(2)
    assert (tmp_path / "a.scen").read_text() == (
        f"version 1\n1\ta.map\t4\t3\t0\t0\t2\t2\t4.00000000\n1\ta.map\t4\t3\t0\t2\t3\t0\t{long:.8f}\n"
    )


def test_no_path_is_minus_one(tmp_path: Path) -> None:
    instance = make_instance([".@."], [(0, 0)], [(0, 2)])
    write_scenario(instance, tmp_path / "a.scen")
    assert (tmp_path / "a.scen").read_text().endswith("0\ta.map\t3\t1\t0\t0\t2\t0\t-1.00000000\n")
    assert read_scenario(tmp_path / "a.scen") == instance


def test_a_scenario_has_its_own_ending(tmp_path: Path) -> None:
    instance = make_instance(["..."], [(0, 0)], [(0, 2)])
    with pytest.raises(EnvsimError, match=r"ends in '\.map'; a scenario's name ends in '\.scen'"):
        write_scenario(instance, tmp_path / "a.map")
    assert list(tmp_path.iterdir()) == []


def test_intermediate_goals_are_not_dropped(tmp_path: Path) -> None:
    instance = make_instance(["..."], [(0, 0)], [(0, 2)], via=[(0, 1)])
    with pytest.raises(EnvsimError, match="has intermediate goals; a MovingAI scenario has one goal an agent"):
        write_scenario(instance, tmp_path / "a.scen")


@st.composite
def rectangles(draw: st.DrawFn) -> LakeInstance:
    height, width = draw(st.integers(1, 7)), draw(st.integers(2, 9))
    marks = draw(st.lists(st.sampled_from("...@"), min_size=height * width, max_size=height * width))
    free = [divmod(v, width) for v, mark in enumerate(marks) if mark == "."]
    if not free:
        marks[0], free = ".", [(0, 0)]
    agents = draw(st.integers(1, min(5, len(free))))
    starts, goals = (draw(st.permutations(free))[:agents] for _ in range(2))
    return make_instance(["".join(marks[r * width : (r + 1) * width]) for r in range(height)], starts, goals)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rectangles())
def test_round_trip(tmp_path: Path, instance: LakeInstance) -> None:
    write_scenario(instance, tmp_path / "a.scen")
    assert read_scenario(tmp_path / "a.scen") == instance


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rectangles(), st.data())
def test_damaged_files_are_read_or_refused(tmp_path: Path, instance: LakeInstance, data: st.DataObject) -> None:
    write_scenario(instance, tmp_path / "a.scen")
    damaged = tmp_path / data.draw(st.sampled_from(["a.scen", "a.map"]))
    content = bytearray(damaged.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        content = content or bytearray(b"\n")
    damaged.write_bytes(content)
    try:
        said = repr(read_scenario(tmp_path / "a.scen"))
    except (EnvsimError, DocumentError) as error:
        said = str(error)
    assert "\n" not in said
    assert said.startswith("LakeInstance(") or ".scen" in said or ".map" in said


def test_a_large_map(tmp_path: Path) -> None:
    rows = ["." * 200] * 100
    write_map(rows, tmp_path / "l.map")
    assert read_map(tmp_path / "l.map") == rows
