"""Scenarios as people write them by hand: the forms that docs/envsim.md says are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsim.formats.movingai import read_scenario

MAP = "type octile\nheight 2\nwidth 3\nmap\n...\n@.@\n"
SCENARIO = "version 1\n0\tm.map\t3\t2\t0\t0\t2\t0\t2\n"


@pytest.mark.parametrize(
    ("map_", "scenario"),
    [
        (MAP, SCENARIO.removeprefix("version 1\n")),
        (MAP, SCENARIO.replace("\t3\t2\t", "\t2\t3\t", 1)),
        (MAP, SCENARIO.replace("\t3\t2\t", "\t0\t0\t", 1)),
        (MAP, SCENARIO.replace("\t2\n", "\t-7.5\n")),
        (MAP, SCENARIO.replace("\t", " ")),
        (MAP.replace("\n", "\r\n") + "\r\n", SCENARIO.replace("\n", "\r\n") + "\r\n"),
        (MAP.replace("type octile\nheight 2\nwidth 3", "width 3\nheight 2"), SCENARIO),
    ],
)
def test_forms_that_are_read(map_: str, scenario: str, tmp_path: Path) -> None:
    (tmp_path / "m.map").write_bytes(map_.encode())
    (tmp_path / "m.scen").write_bytes(scenario.encode())
    found = read_scenario(tmp_path / "m.scen")
    assert (found.rows, found.starts, found.goals) == (["...", "@.@"], [(0, 0)], [(0, 2)])
