"""Pictures of a study: sound SVG for any numbers, and what they are to show is there."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.study.figures import Bar, Curve, forest, heat_map, learning_curves, ticks
from graph.study.pictures import LETTER, MARGIN, standalone

numbers = st.floats(-100, 100)


@given(numbers, numbers)
def test_ticks_cover_the_interval_with_round_steps(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high)
    assert len(found) >= 2
    assert found == sorted(set(found))
    span = max(high - low, 1e-9)
    assert found[0] <= low + 1e-6 * span + 1e-9
    assert found[-1] >= high - 1e-6 * span - 1e-9


@given(st.lists(st.tuples(numbers, st.one_of(st.none(), st.floats(0, 50))), max_size=6))
def test_a_forest_has_a_mark_an_effect(effects: list[tuple[float, float | None]]) -> None:
    bars = [
        Bar(f"<{n}>", delta, None if half is None else delta - half, None if half is None else delta + half, n == 0)
        for n, (delta, half) in enumerate(effects)
    ]
    svg = forest(bars)
    if not bars:
        assert svg == ""
        return
    root = ElementTree.fromstring(svg)
    assert len(root.findall("circle")) == len(bars)
    whiskers = [line for line in root.findall("line") if "whisker" in line.get("class", "")]
    assert len(whiskers) == sum(half is not None for _, half in effects)


@pytest.mark.parametrize(("low", "high", "tone"), [(0.1, 2, "good"), (-2, -0.1, "bad"), (-1, 1, "even")])
def test_an_effect_has_the_colour_of_its_interval(low: float, high: float, tone: str) -> None:
    assert f'class="whisker {tone}"' in forest([Bar("a - b", (low + high) / 2, low, high, True)])


def test_curves_have_a_line_and_a_band_each() -> None:
    curves = [
        Curve(name, "#000", [0, 1, 2], [20, 25, 30], [19, 23, 27], [21, 27, 33]) for name in ("self & co", "random")
    ]
    root = ElementTree.fromstring(learning_curves(curves, "tokens", "valid, %"))
    assert len(root.findall("polyline")) == len(root.findall("polygon")) == 2
    assert root.find("polyline/title") is not None
    bare = ElementTree.fromstring(learning_curves([curves[0], curves[1]._replace(low=[], high=[])], "tokens", "%"))
    assert (len(bare.findall("polyline")), len(bare.findall("polygon"))) == (2, 1)
    assert learning_curves([], "x", "y") == ""


def test_a_heat_map_has_a_square_a_known_value() -> None:
    root = ElementTree.fromstring(heat_map(["3x3", "4x4"], ["000", "001"], [[0.1, None], [0.9, 0.5]], 0.9))
    squares = root.findall("rect")
    assert len(squares) == 3
    depths = [float(square.get("fill-opacity", "")) for square in squares]
    assert depths[1] == 1
    assert depths[0] < depths[2] < depths[1]


@given(st.lists(st.text("abc-", min_size=1, max_size=30), max_size=12))
def test_a_picture_of_its_own_has_room_for_its_key(names: list[str]) -> None:
    svg = standalone(heat_map(["3x3"], ["000"] * 8, [[0.5] * 8], 1.0), [(name, "#123456") for name in names])
    root = ElementTree.fromstring(svg)
    left, top, width, height = (float(number) for number in root.get("viewBox", "").split())
    assert (left, top) == (-MARGIN, -MARGIN)
    key = [one for one in root if one.tag.endswith("text")][-len(names) :] if names else []
    assert [one.text for one in key] == names
    for one in key:
        x, y = float(one.get("x", "nan")), float(one.get("y", "nan"))
        assert y < top + height - MARGIN + 1
        assert x == 16 or x + LETTER * len(one.text or "") < left + width


def test_a_picture_without_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an SVG with a viewBox"):
        standalone("<svg></svg>")
