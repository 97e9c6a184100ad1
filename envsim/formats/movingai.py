"""MovingAI maps (``.map``) and scenarios (``.scen``) as layouts of the lake, and back.

Cells are (row, column) everywhere in this project; the files write ``x y`` = (column, row). The two functions ``_cell``
and ``_xy`` are the only place where one becomes the other. Terrain has nothing to do with FrozenLake's letters: here
``S`` is swamp and ``G`` is ground, both passable. Every error names the file and the line, and the cell if there is
one; an agent on a blocked cell is an error and never left out.

Format: https://movingai.com/benchmarks/formats.html
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import networkx as nx

from envsim.api import EnvsimError
from envsim.documents import read_text
from envsim.lake.grid import FREE, HOLE, Cell, graph
from envsim.lake.instance import LakeInstance, check_layout, make_instance

Passable = Literal[".GS", ".G", "."]
"""Marks that count as free. ``.GS`` is the format's own reading; tools for several agents often take fewer."""

TERRAIN = ".GS@OTW"
MOST = 999_999_999
"""More than any map has of anything."""
BUCKET = 4
"""A scenario's bucket is its length divided by this, rounded down."""

_COLUMNS = ("bucket", "map", "width", "height", "start x", "start y", "goal x", "goal y", "length")


def _cell(x: int, y: int) -> Cell:
    return y, x


def _xy(cell: Cell) -> tuple[int, int]:
    return cell[1], cell[0]


@dataclass(frozen=True, slots=True)
class _Line:
    """One agent of a scenario file and the line it stands in."""

    number: int
    map: str
    shape: tuple[int, int]
    start: Cell
    goal: Cell


def read_map(path: Path, free: Passable = ".GS") -> list[str]:
    """The rows of a ``.map`` file: ``.`` free, ``@`` hole.

    Header lines may come in any order before ``map``, and ``type`` may be missing; CRLF, a missing last newline and
    empty lines at the end are fine.

    Raises
    ------
    EnvsimError
        A header line, the number or length of the rows, or a mark is not what the format says.
    DocumentError
        The file cannot be read as text.
    """
    return ["".join([FREE if mark in free else HOLE for mark in row]) for row in _terrain(path)]


def write_map(rows: Sequence[str], path: Path) -> None:
    """Rows of ``.`` and ``@`` as a ``.map`` file."""
    head = f"type octile\nheight {len(rows)}\nwidth {len(rows[0])}\nmap\n"
    path.write_bytes((head + "".join(f"{row}\n" for row in rows)).encode())


def read_scenario(
    path: Path, agents: int | None = None, *, map_path: Path | None = None, free: Passable = ".GS"
) -> LakeInstance:
    """The first ``agents`` lines of a ``.scen`` file (all, if None) on their map, as one uncertified instance.

    The map is ``map_path`` or else the file that the scenario names: looked up from the scenario's directory as it is
    written, then by its bare name in that directory. As in files that people write by hand, the line ``version 1`` may
    be missing, and the columns width and height may be swapped, or both 0 for not said. The column of the single
    agent's length is not used: it holds the 8-connected length, only a bound for agents that move along sides.

    Raises
    ------
    EnvsimError
        A line is not what the format says; the map is missing or of another shape; an agent starts or ends outside the
        map, on a blocked cell, or where another one does; there are fewer lines than agents.
    DocumentError
        A file cannot be read as text.
    """
    path = Path(path)
    lines = _agents(path, agents)
    source = _find_map(path, lines, map_path)
    terrain = _terrain(source)
    shape = (len(terrain), len(terrain[0]))
    for line in lines:
        if line.shape not in (shape, shape[::-1], (0, 0)):
            raise EnvsimError(
                f"{path}:{line.number}: width and height are {line.shape[1]} and {line.shape[0]}, "
                f"but {source} is {shape[1]} wide and {shape[0]} high"
            )
    for what, cells in (("start", [line.start for line in lines]), ("goal", [line.goal for line in lines])):
        first: dict[Cell, int] = {}
        for agent, (line, cell) in enumerate(zip(lines, cells, strict=True)):
            where = f"{path}:{line.number}: the {what} of agent {agent} is {_shown(cell)}"
            if not (0 <= cell[0] < shape[0] and 0 <= cell[1] < shape[1]):
                raise EnvsimError(f"{where}, outside {source}, which is {shape[1]} wide and {shape[0]} high")
            mark = terrain[cell[0]][cell[1]]
            if mark not in free:
                raise EnvsimError(f"{where}, which is {mark!r} in {source}; expected a free cell, one of {free!r}")
            if cell in first:
                raise EnvsimError(f"{where}, as in line {first[cell]}; expected a {what} of its own for every agent")
            first[cell] = line.number
    rows = ["".join([FREE if mark in free else HOLE for mark in row]) for row in terrain]
    return make_instance(rows, [line.start for line in lines], [line.goal for line in lines])


def write_scenario(instance: LakeInstance, path: Path) -> Path:
    """An instance as ``path`` (``.scen``) and a ``.map`` of the same name beside it; returns the path of the map.

    The last column is what the format and the tools that check it expect: the length of the agent's shortest path
    alone with diagonal moves of sqrt(2) that cut no corner, or -1 where there is no path. The certificate is not
    written: the format has no place for it.

    Raises
    ------
    EnvsimError
        The name does not end in ``.scen``, or the instance has intermediate goals, which the format cannot say.
    """
    path = Path(path)
    if path.suffix != ".scen":
        raise EnvsimError(f"{path} ends in {path.suffix!r}; a scenario's name ends in '.scen'")
    if instance.via is not None:
        raise EnvsimError(f"instance {instance.id} has intermediate goals; a MovingAI scenario has one goal an agent")
    check_layout(instance.rows, instance.starts, instance.goals)
    map_path = path.with_suffix(".map")
    write_map(instance.rows, map_path)
    roads = _octile_graph(instance.rows)
    shape = f"{len(instance.rows[0])}\t{len(instance.rows)}"
    text = "version 1\n"
    for start, goal in zip(instance.starts, instance.goals, strict=True):
        length = _length(roads, start, goal)
        (x, y), (i, j) = _xy(start), _xy(goal)
        bucket = max(0, int(length // BUCKET))
        text += f"{bucket}\t{map_path.name}\t{shape}\t{x}\t{y}\t{i}\t{j}\t{length:.8f}\n"
    path.write_bytes(text.encode())
    return map_path


def _shown(cell: Cell) -> str:
    x, y = _xy(cell)
    return f"x={x} y={y} (row {cell[0]}, column {cell[1]})"


def _lines(path: Path) -> list[str]:
    """Lines without their ends, without empty ones at the end of the file."""
    return read_text(path).replace("\r\n", "\n").rstrip("\n").split("\n")


def _terrain(path: Path) -> list[str]:
    """The map's own marks, checked against its header."""
    lines = _lines(Path(path))
    height, width, head = _header(path, lines)
    rows = lines[head:]
    if len(rows) != height:
        raise EnvsimError(f"{path}:{len(lines)}: the map has {len(rows)} rows; its header says height {height}")
    for r, row in enumerate(rows):
        where = f"{path}:{head + 1 + r}"
        if len(row) != width:
            raise EnvsimError(f"{where}: row {r} has {len(row)} marks; the header says width {width}")
        for c, mark in enumerate(row):
            if mark not in TERRAIN:
                raise EnvsimError(f"{where}: {_shown((r, c))} is {mark!r}; expected one of {TERRAIN!r}")
    return rows


def _header(path: Path, lines: Sequence[str]) -> tuple[int, int, int]:
    """Height, width, and the number of lines up to and with ``map``."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        where, words = f"{path}:{number}", line.split()
        if words == ["map"]:
            for key in ("height", "width"):
                if key not in found:
                    raise EnvsimError(f"{where}: the header has no line {key!r} before 'map'")
            return int(found["height"]), int(found["width"]), number
        if len(words) != 2 or words[0] not in ("type", "height", "width") or words[0] in found:
            expected = "'type octile', 'height N' or 'width N', once each, and then 'map'"
            raise EnvsimError(f"{where}: is {line[:40]!r}; expected {expected}")
        key = words[0]
        found[key] = words[1]
        if key != "type":
            _number(words[1], key, where, least=1)
        elif words[1] != "octile":
            raise EnvsimError(f"{where}: the type is {words[1][:40]!r}; expected 'octile'")
    raise EnvsimError(f"{path}:{len(lines)}: the file ends without a line 'map'")


def _agents(path: Path, wanted: int | None) -> list[_Line]:
    """The first lines of a scenario, each checked by itself."""
    if wanted is not None and wanted < 1:
        raise EnvsimError(f"agents is {wanted}; expected at least 1")
    found = [(number, line) for number, line in enumerate(_lines(path), 1) if line.strip()]
    if found and found[0][1].startswith("version"):
        number, head = found.pop(0)
        if head.split() not in (["version", "1"], ["version", "1.0"]):
            raise EnvsimError(f"{path}:{number}: is {head[:40]!r}; expected 'version 1'")
    if not found or len(found) < (wanted or 1):
        raise EnvsimError(f"{path}: has {len(found)} agents, expected at least {wanted or 1}")
    lines = [_scenario_line(line, number, f"{path}:{number}") for number, line in found[:wanted]]
    for before, line in pairwise(lines):
        if before.map != line.map:
            raise EnvsimError(
                f"{path}:{line.number}: the map is {line.map!r}, that of the line before {before.map!r}; expected one "
                "map for all agents"
            )
    return lines


def _scenario_line(line: str, number: int, where: str) -> _Line:
    fields = [field.strip() for field in (line.split("\t") if "\t" in line else line.split())]
    if len(fields) != len(_COLUMNS):
        raise EnvsimError(f"{where}: has {len(fields)} columns; expected {len(_COLUMNS)}: {', '.join(_COLUMNS)}")
    named = dict(zip(_COLUMNS, fields, strict=True))
    if not _is_real(named["length"]):
        raise EnvsimError(f"{where}: the length is {named['length']!r}; expected a number")
    _number(named["bucket"], "bucket", where)
    x, y, i, j = (_number(named[key], key, where) for key in _COLUMNS[4:8])
    shape = (_number(named["height"], "height", where), _number(named["width"], "width", where))
    return _Line(number, named["map"], shape, _cell(x, y), _cell(i, j))


def _find_map(path: Path, lines: Sequence[_Line], given: Path | None) -> Path:
    if given is not None:
        return Path(given)
    named = Path(lines[0].map.replace("\\", "/"))
    tried = list(dict.fromkeys([path.parent / named, path.parent / named.name]))
    for candidate in tried:
        if _is_file(candidate):
            return candidate
    raise EnvsimError(
        f"{path}:{lines[0].number}: the map {lines[0].map[:80]!r} is not there; looked for "
        f"{' and '.join(ascii(str(place))[1:-1] for place in tried)}; put it there or give its path"
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name longer than the file system takes
        return False


def _number(text: str, what: str, where: str, least: int = 0) -> int:
    # No int() of a text that a person could write by mistake is slow.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) and int(text) >= least):
        raise EnvsimError(f"{where}: {what} is {text[:40]!r}; expected a whole number from {least} to {MOST}")
    return int(text)


def _is_real(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _octile_graph(rows: Sequence[str]) -> nx.Graph[Cell]:
    """The lake's graph with edges of cost 1 and, where both cells beside it are free, diagonals of cost sqrt(2)."""
    roads = graph(rows)
    nx.set_edge_attributes(roads, dict.fromkeys(roads.edges, 1.0), "cost")
    for r, c in list(roads):
        for side in (-1, 1):
            if {(r + 1, c), (r, c + side), (r + 1, c + side)} <= roads.nodes:
                roads.add_edge((r, c), (r + 1, c + side), cost=math.sqrt(2))
    return roads


def _length(roads: nx.Graph[Cell], start: Cell, goal: Cell) -> float:
    try:
        return float(nx.shortest_path_length(roads, start, goal, weight="cost"))
    except nx.NetworkXNoPath:
        return -1.0
