"""Pictures and films: what they show is what the verifier found, and they hold nothing that a page must fetch."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from envsim_cases import Layout, layouts, oracle
from hypothesis import given
from hypothesis import strategies as st

from envsim.lake import film as filming
from envsim.lake.draw import agent_name, draw_instance, draw_map, draw_replay, faulty_agents
from envsim.lake.environment import Lake
from envsim.lake.film import film
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.svg import CELL, MARGIN, svg
from envsim.lake.text import render

LAKE = Lake()
SVG = "{http://www.w3.org/2000/svg}"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
OPEN = [".........."] * 10


def _instance(layout: Layout) -> LakeInstance:
    _, rows, starts, goals = layout
    columns = len(rows[0])
    return make_instance(rows, [divmod(v, columns) for v in starts], [divmod(v, columns) for v in goals])


def _five(**fields: object) -> LakeInstance:
    return make_instance(OPEN, [(0, i) for i in range(5)], [(9, 9 - i) for i in range(5)], **fields)  # type: ignore[arg-type]


def _texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def _frames(picture: str, name: str) -> list[tuple[float, list[float]]]:
    """(percent, numbers) of a CSS animation, in order."""
    found = re.search(rf"@keyframes {name}\{{((?:[^{{}}]*\{{[^{{}}]*\}})*)\}}", picture)
    if found is None:
        return []
    frames = []
    for when, declared in re.findall(r"([^{}]+)\{([^{}]*)\}", found[1]):
        value = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", declared)]
        frames += [(100.0 if at == "to" else float(at.rstrip("%")), value) for at in when.split(",")]
    return frames


def _at(frames: list[tuple[float, list[float]]], percent: float) -> list[float]:
    """The value where a frame is, or between two equal ones."""
    for (before, value), (after, following) in pairwise(frames):
        if before - 0.006 <= percent <= after + 0.006:
            if abs(percent - before) < 0.006 or value == following:
                return value
            if abs(percent - after) < 0.006:
                return following
    raise AssertionError(f"no frame at {percent} in {frames}")


def _place(picture: str, agent: int) -> list[float]:
    """Where an agent is without animation."""
    found = re.search(rf'id="m{agent}" transform="translate\(([-\d.]+) ([-\d.]+)\)"', picture)
    assert found is not None
    return [float(found[1]), float(found[2])]


def _centre(instance: LakeInstance, cell: tuple[int, int]) -> list[float]:
    """Of a cell of a map at least three wide: narrower ones stand in the middle of a wider panel."""
    assert len(instance.rows[0]) >= 3
    return [MARGIN + (cell[1] + 0.5) * CELL, MARGIN + (cell[0] + 0.5) * CELL]


def _self_contained(picture: str) -> None:
    ElementTree.fromstring(picture)
    assert "<script" not in picture
    assert not re.findall(r"(?:href|src)=\"(?!#)", picture)
    assert "url(" not in picture.replace("url(#", "")
    assert picture.count("http") == 1, "only the namespace"


@given(layouts(3, 6, (1, 5)))
def test_a_picture_shows_every_hole_start_and_goal(layout: Layout) -> None:
    instance = _instance(layout)
    picture = svg(instance)
    _self_contained(picture)
    assert picture == svg(instance)
    assert picture.count('href="#w"') == "".join(instance.rows).count("@")
    texts = _texts(picture)
    for i, start in enumerate(instance.starts):
        assert texts.count(agent_name(i)) == 1
        assert texts.count(agent_name(i).upper()) == 1
        x, y = _centre(instance, start)
        assert f'cx="{x:g}" cy="{y:g}" r="12.5"' in picture


def test_first_goals_are_diamonds_with_their_own_letters() -> None:
    plain, rich = svg(_five()), svg(_five(via=[(5, i) for i in range(5)]))
    assert [text for text in _texts(rich) if text not in _texts(plain)] == ["A1", "B1", "C1", "D1", "E1"]
    _self_contained(rich)


def test_a_first_goal_left_out_is_named() -> None:
    """The agent is at its goal, so the picture has to say what is missing."""
    instance = make_instance(["...", "..."], [(0, 0), (1, 0)], [(0, 2), (1, 2)], via=[(0, 1), (0, 2)])
    picture = film(instance, LAKE.replay(instance, "(0,0)(1,0)(0,1)(1,1)(0,2)(1,2)"))
    assert _texts(picture)[-2:] == ["goal not reached", "agent b was never at B1"]
    assert 'class="ring"' in picture


def test_letters_stay_readable_where_ends_meet() -> None:
    """A goal under another agent's start keeps its letter, in a corner, and no two corners are the same."""
    instance = make_instance(["...", "..."], [(0, 0), (0, 1)], [(0, 1), (0, 0)], via=[(0, 1), (0, 1)])
    picture = svg(instance)
    places = re.findall(r'<text class="l\d" x="([\d.]+)" y="([\d.]+)" font-size="11.5">(\w+)<', picture)
    assert sorted(name for _, _, name in places) == ["A", "A1", "B", "B1"]
    assert len({(x, y) for x, y, _ in places}) == 4
    assert _texts(picture).count("A") == 1


@pytest.mark.parametrize("rows", [["." * 12], ["."] * 12, ["..", ".."], ["." * 60] * 40])
def test_any_rectangle_fits_its_panel(rows: list[str]) -> None:
    last = (len(rows) - 1, len(rows[0]) - 1)
    instance = make_instance(rows, [(0, 0)], [last])
    for picture in (svg(instance), film(instance, LAKE.replay(instance, render([[(0, 0)]], "compact")))):
        root = ElementTree.fromstring(picture)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        ice = next(element for element in root.iter(f"{SVG}rect") if element.get("class") == "ice")
        x, y, across, down = (float(ice.attrib[name]) for name in ("x", "y", "width", "height"))
        assert (across, down) == (CELL * len(rows[0]), CELL * len(rows))
        assert 0 < x < x + across < width
        assert 0 < y < y + down < height
        assert x + across / 2 == pytest.approx(width / 2)


@given(layouts(3, 5, (2, 3)), st.integers(0, 10**6))
def test_a_film_is_the_replay(layout: Layout, seed: int) -> None:
    """At the time of each step every agent is where the replay has it, and the fault marked is the verifier's."""
    instance = _instance(layout)
    for answer in (*LAKE.null_answers(instance, "compact", seed).values(), _stray(instance, seed)):
        replay = LAKE.replay(instance, answer)
        picture = film(instance, replay)
        assert picture == film(instance, replay)
        _self_contained(picture)
        _shows(picture, instance, replay.states, apart=replay.verdict.outcome.endswith("conflict"))
        verdict, texts = LAKE.replay(instance, answer).verdict, _texts(picture)
        assert verdict.outcome.replace("_", " ").replace("valid suboptimal", "valid") in texts
        ring = re.search(r'class="ring" cx="([\d.]+)" cy="([\d.]+)"', picture)
        if verdict.fault is None or verdict.fault.agent is None:
            assert ring is None
            continue
        assert ring is not None
        x, y = _place(picture, verdict.fault.agent)
        assert abs(float(ring[1]) - x) + abs(float(ring[2]) - y) <= CELL / 2
        assert f"t = {verdict.fault.step}" in texts[-1]
        assert re.search(rf"\b{agent_name(verdict.fault.agent)}\b", texts[-1])


def _stray(instance: LakeInstance, seed: int) -> str:
    """Everybody walks straight towards the goal, over holes and through each other."""
    steps = [list(instance.starts)]
    while steps[-1] != list(instance.goals) and len(steps) < 20:
        steps.append(
            [(r + (y > r) - (y < r), c) if (r != y) else (r, c + (x > c) - (x < c))
             for (r, c), (y, x) in zip(steps[-1], instance.goals, strict=True)]
        )  # fmt: skip
    return render(list(zip(*steps, strict=True)), "compact")


def _shows(picture: str, instance: LakeInstance, states: list[list[list[int]]], *, apart: bool) -> None:
    steps = len(states) - 1
    moving = min(filming.STEP_SECONDS * steps, filming.MOST_SECONDS)
    whole = filming.BEFORE + moving + filming.AFTER
    for agent in range(instance.agents):
        frames = _frames(picture, f"m{agent}")
        assert not frames or frames[-1][1] == _place(picture, agent)
        for t, state in enumerate(states[:-1]):
            row, column = state[agent]
            percent = 100 * (filming.BEFORE + filming.STEP_SECONDS * t) / whole
            shown = _at(frames, percent) if frames else _place(picture, agent)
            assert shown == _centre(instance, (row, column))
        if not apart:
            row, column = states[-1][agent]
            assert _place(picture, agent) == _centre(instance, (row, column))


@pytest.mark.parametrize(
    "case",
    [case for case in oracle("validator_cases") if all(case["rows"][r][c] == "." for r, c in case["goals"])],
    ids=lambda case: case["name"],
)
def test_published_faults_are_named(case: dict[str, object]) -> None:
    rows, starts, goals = case["rows"], case["starts"], case["goals"]
    instance = make_instance(rows, [tuple(c) for c in starts], [tuple(c) for c in goals])  # type: ignore[arg-type, attr-defined]
    answer = render(case["plan"], "full")  # type: ignore[arg-type]
    picture = film(instance, LAKE.replay(instance, answer))
    _self_contained(picture)
    outcome = LAKE.replay(instance, answer).verdict.outcome
    assert ("ring" in re.sub(r"<style>.*?</style>", "", picture)) == (
        outcome not in ("valid_suboptimal", "optimal", "parse_error", "wrong_agent_count")
    )


CROSS = make_instance(["...", "..."], [(0, 0), (0, 2)], [(0, 2), (0, 0)])
VERTEX = "(0,0)(0,2)(0,1)(0,1)"
SWAP = "(0,0)(0,2)(0,1)(0,2)(0,2)(0,1)"


def test_two_in_one_cell_are_both_seen() -> None:
    picture = film(CROSS, LAKE.replay(CROSS, VERTEX))
    (x, y), (u, v) = _place(picture, 0), _place(picture, 1)
    assert y == v == _centre(CROSS, (0, 1))[1]
    assert CELL / 2 < u - x < CELL
    assert (x + u) / 2 == pytest.approx(_centre(CROSS, (0, 1))[0])
    assert "agents a and b at (0,1), t = 1" in _texts(picture)


def test_a_swap_freezes_where_the_two_meet() -> None:
    replay = LAKE.replay(CROSS, SWAP)
    assert faulty_agents(replay) == [0, 1]
    picture = film(CROSS, replay)
    (x, y), (u, v) = _place(picture, 0), _place(picture, 1)
    assert y == v == _centre(CROSS, (0, 1))[1]
    assert (x + u) / 2 == pytest.approx((_centre(CROSS, (0, 1))[0] + _centre(CROSS, (0, 2))[0]) / 2)
    assert _centre(CROSS, (0, 1))[0] < x < u < _centre(CROSS, (0, 2))[0], "they have not passed each other"
    assert "edge conflict" in _texts(picture)
    assert "a and b swap (0,1), (0,2), t = 2" in _texts(picture)


@pytest.mark.parametrize(
    ("answer", "outcome", "details"),
    [
        ("no", "parse error", "no plan to replay"),
        ("(0,0)(0,2)(0,1)", "parse error", "no plan to replay"),
        ("(1,0)(0,2)", "wrong start", "agent a at (1,0), t = 0"),
        ("(0,0)(0,2)(-1,0)(0,2)", "out of bounds", "agent a at (-1,0), t = 1"),
        ("(0,0)(0,2)(900,0)(0,2)", "out of bounds", "agent a at (900,0), t = 1"),
        ("(0,0)(0,2)(0,0)(1,1)", "illegal move", "agent b at (1,1), t = 1"),
        ("(0,0)(0,2)(1,0)(0,2)", "goal not reached", "agent a at (1,0), t = 1"),
    ],
)
def test_every_way_to_fail_has_its_film(answer: str, outcome: str, details: str) -> None:
    picture = film(CROSS, LAKE.replay(CROSS, answer))
    assert _texts(picture)[-2:] == [outcome, details]
    _, _, width, height = map(float, ElementTree.fromstring(picture).attrib["viewBox"].split())
    for agent in (0, 1):
        x, y = _place(picture, agent)
        assert 0 <= x <= width, "whoever leaves the map stays in the picture"
        assert 0 <= y <= height
    assert outcome in draw_replay(CROSS, LAKE.replay(CROSS, answer))


def test_the_chance_of_a_plan_is_said_where_moves_may_slip() -> None:
    slippery = CROSS.model_copy(update={"success_rate": 0.95})
    answer = LAKE.reference_answer(CROSS, "compact")
    chance = LAKE.replay(slippery, answer).verdict.success
    assert chance is not None
    assert f"4 steps, succeeds with {100 * chance:.1f} %" in _texts(film(slippery, LAKE.replay(slippery, answer)))
    assert "0.95" in draw_instance(slippery)
    assert "4 steps" in _texts(film(CROSS, LAKE.replay(CROSS, answer)))


def test_trails_are_the_ways_gone() -> None:
    """Beside the middle of the cells by a little, so that two on one way are both seen; drawn as far as gone."""
    picture = film(CROSS, LAKE.replay(CROSS, "(0,0)(0,2)(0,0)(1,2)(1,0)(1,1)(1,0)(0,1)"))
    found = re.findall(r'<path id="p(\d)" class="trail s\d" d="M([^"]*)" stroke-dasharray="(\S+) (\S+)"', picture)
    assert [agent for agent, *_ in found] == ["0", "1"]
    for (_, path, length, _), cells in zip(found, ([(0, 0), (1, 0)], [(0, 2), (1, 2), (1, 1), (0, 1)]), strict=True):
        points = [tuple(map(float, point.split())) for point in path.split("L")]
        assert len(points) == len(cells)
        for (x, y), cell in zip(points, cells, strict=True):
            u, v = _centre(CROSS, cell)
            assert 0 < abs(x - u) == abs(y - v) < 3
        assert float(length) == CELL * (len(cells) - 1)
    (_, first), *_, (_, last) = _frames(picture, "p1")
    assert (first, last) == ([3 * CELL], [0])


def test_the_counter_jumps_a_line_a_step() -> None:
    picture = film(CROSS, LAKE.replay(CROSS, LAKE.reference_answer(CROSS, "compact")))
    lines = [float(one.attrib["y"]) for one in ElementTree.fromstring(picture).iter(f"{SVG}tspan")]
    assert len(lines) == 5
    assert re.search(r"#n\{animation:n \S+s steps\(4\) infinite\}", picture)
    (_, first), *_, (_, last) = _frames(picture, "n")
    assert first == [0]
    assert last == [pytest.approx(lines[0] - lines[-1], abs=0.02)]
    assert re.search(rf'id="n" class="label" transform="translate\(0 {last[0]:g}\)"', picture)


def test_pictures_have_a_dark_side() -> None:
    for picture in (svg(CROSS), film(CROSS, LAKE.replay(CROSS, VERTEX))):
        assert "@media (prefers-color-scheme:dark){.panel{fill:" in picture


def test_films_are_small() -> None:
    """The largest generated size, at its longest: back and forth, and a plan longer than a film shows."""
    instance = _five()
    for steps in (filming.LONGEST, 1000):
        there = [[(t % 2 * 5, i) for i in range(5)] for t in range(steps)]
        walk = [[(min(t % 18, 18 - t % 18), i) for i in range(5)] for t in range(steps)]
        for plan in (there[:1], walk):
            replay = LAKE.replay(instance, render(list(zip(*plan, strict=True)), "compact"))
            assert len(film(instance, replay).encode()) < 60_000
    picture = film(instance, replay)
    numbers = [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}tspan")]
    assert numbers == [str(t) for t in range(999 - filming.LONGEST, 1000)]
    assert len(picture.encode()) < 60_000


def test_without_animation_a_film_shows_its_end() -> None:
    picture = film(CROSS, LAKE.replay(CROSS, VERTEX))
    assert "prefers-reduced-motion:reduce){*{animation:none!important}}" in picture
    times, shown = zip(*_frames(picture, "e"), strict=True)
    assert shown == ([0.0], [0.0], [1.0], [1.0]), "the verdict appears at the end, and stays"
    end = 100 * (filming.BEFORE + filming.STEP_SECONDS) / (filming.BEFORE + filming.STEP_SECONDS + filming.AFTER)
    assert times[1] == pytest.approx(end, abs=0.01)
    assert 'opacity="0"' not in picture


def test_colours_change_no_letter_of_the_text() -> None:
    instance = _five(via=[(5, i) for i in range(5)])
    replay = LAKE.replay(instance, render([[start] for start in instance.starts], "compact"))
    for plain, coloured in (
        (draw_instance(instance), draw_instance(instance, colour=True)),
        (draw_replay(instance, replay), draw_replay(instance, replay, colour=True)),
    ):
        assert "\x1b" not in plain
        assert "\x1b" in coloured
        assert ANSI.sub("", coloured) == plain


def test_text_shows_who_is_where_and_what_they_do() -> None:
    assert draw_map(["..", ".@"], [(0, 0)], [(0, 0)], [(1, 0)]).splitlines() == [
        "     0  1",
        "  0 aA  .",
        "  1 A1  @",
    ]
    drawn = draw_replay(CROSS, LAKE.replay(CROSS, VERTEX))
    assert "step 1: a right, b left\n" in drawn
    assert drawn.endswith("vertex conflict: agents a and b at (0,1), t = 1")
    alone = make_instance(["...", "..."], [(0, 0)], [(0, 2)])
    drawn = draw_replay(alone, LAKE.replay(alone, "(0,0)(0,1)(0,2)"))
    assert " aA" in drawn
    assert len({len(line) for line in drawn.splitlines() if re.match(r" +\d", line)}) == 1, "columns keep their width"
    assert agent_name(25) == "z"
    assert agent_name(26) == "a2"
