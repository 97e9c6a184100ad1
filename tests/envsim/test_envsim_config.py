"""Bounds, normalisation, hash and knobs of the lake's configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.lake.config import SIZES, EnvConfig, knobs, parse_config, shares, with_values

WEIGHTS = st.lists(st.floats(0, 1), min_size=8, max_size=8).filter(lambda ws: sum(ws) > 1e-3)


def _data(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(EnvConfig().model_dump_json())
    return data | changes


def _sizes(weights: list[float]) -> dict[str, Any]:
    entries = zip(SIZES, weights, strict=True)
    return {str(size): {"data_ratio": w, "hole_ratio": 0.1, "wait_ratio": 0.3} for size, w in entries}


def test_default_is_uniform() -> None:
    config = EnvConfig()
    assert shares(config) == {f"{n}x{n}": 0.125 for n in range(3, 11)}
    assert {(e.hole_ratio, e.wait_ratio) for e in config.sizes.values()} == {(0.2, 0.2)}
    assert config.agents == {2: 1.0}


@given(WEIGHTS)
def test_weights_sum_to_one_in_millionths_and_survive_a_round_trip(weights: list[float]) -> None:
    config = parse_config({"sizes": _sizes(weights)})
    micro = [entry.data_ratio * 1e6 for entry in config.sizes.values()]
    assert sum(round(m) for m in micro) == 1_000_000
    assert all(abs(m - round(m)) < 1e-6 for m in micro)
    again = parse_config(json.loads(config.model_dump_json()))
    assert again == config
    assert again.canonical_hash() == config.canonical_hash()


@given(WEIGHTS, st.sampled_from([0.5, 0.25, 0.125]))
def test_hash_ignores_the_scale_of_the_weights(weights: list[float], scale: float) -> None:
    one = parse_config({"sizes": _sizes(weights)})
    other = parse_config({"sizes": _sizes([scale * w for w in weights])})
    assert one.canonical_hash() == other.canonical_hash()


def test_hash_sees_what_is_above_the_rounding_and_not_what_is_below() -> None:
    base = EnvConfig().canonical_hash()
    assert with_values(EnvConfig(), {"5x5.hole_ratio": 0.2000000001}).canonical_hash() == base
    assert with_values(EnvConfig(), {"5x5.hole_ratio": 0.20001}).canonical_hash() != base


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"sizes": _sizes([1] * 8) | {"11": _sizes([1] * 8)["3"]}}, ["sizes", "unknown [11]"]),
        ({"sizes": {k: v for k, v in _sizes([1] * 8).items() if k != "4"}}, ["missing [4]", "data_ratio 0"]),
        ({"sizes": _sizes([0] * 8)}, ["sum to 0"]),
        ({"size": {}}, ["'size'", "did you mean 'sizes'"]),
        ({"sizes": _sizes([1] * 8) | {"5": {"hole_rate": 0.1}}}, ["'hole_rate'", "did you mean 'hole_ratio'"]),
        (
            {"sizes": _sizes([1] * 8) | {"5": {"data_ratio": 1, "hole_ratio": 0.6, "wait_ratio": 0}}},
            ["sizes.5.hole_ratio", "0.5", "0.6"],
        ),
        ({"agents": {"6": 1}}, ["agents", "[6]"]),
        ({"agents": {"2": float("nan")}}, ["agents"]),
        ([], ["configuration"]),
    ],
)
def test_errors_name_field_value_and_bound(data: Any, words: list[str]) -> None:
    with pytest.raises(EnvsimError) as caught:
        parse_config(data)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_knob_steps() -> None:
    config = with_values(EnvConfig(), {"3x3.data_ratio": 0.0, "4x4.hole_ratio": 0.45, "4x4.wait_ratio": 0.05})
    found = knobs(config)
    assert len(found) == 24
    zero = found["3x3.data_ratio"]
    assert (zero.up, zero.down) == (0.05, 0.0)
    one = found["5x5.data_ratio"]
    assert one.up == pytest.approx(2 * one.value, abs=1e-6)
    assert one.down == pytest.approx(one.value / 2, abs=1e-6)
    assert (found["4x4.hole_ratio"].up, found["4x4.hole_ratio"].down) == (0.5, 0.35)
    assert (found["4x4.wait_ratio"].up, found["4x4.wait_ratio"].down) == (0.25, 0.0)


@given(WEIGHTS)
def test_steps_stay_in_bounds_and_down_never_reaches_zero(weights: list[float]) -> None:
    for path, knob in knobs(parse_config({"sizes": _sizes(weights)})).items():
        assert knob.low <= knob.down <= knob.value <= knob.up <= knob.high
        if path.endswith("data_ratio") and knob.value > 0:
            assert knob.down > 0
            assert knob.down >= min(knob.value, 0.02)


def test_with_values_renormalises_and_keeps_the_rest() -> None:
    config = with_values(EnvConfig(), {"3x3.data_ratio": 1.0})
    assert config.sizes[3].data_ratio == pytest.approx(1 / 1.875, abs=1e-6)
    assert config.sizes[4].data_ratio == pytest.approx(0.125 / 1.875, abs=1e-6)
    assert config.sizes[3].hole_ratio == 0.2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"5x5.hole_ratoi": 0.1}, ["'5x5.hole_ratoi'", "did you mean '5x5.hole_ratio'"]),
        ({"5x5.wait_ratio": 1.5}, ["5x5.wait_ratio", "1.5", "0.0 to 1.0"]),
        ({"5x5.data_ratio": float("nan")}, ["5x5.data_ratio", "nan"]),
        ({f"{n}x{n}.data_ratio": 0.0 for n in range(3, 11)}, ["sum to 0"]),
    ],
)
def test_with_values_errors(values: dict[str, float], words: list[str]) -> None:
    with pytest.raises(EnvsimError) as caught:
        with_values(EnvConfig(), values)
    for word in words:
        assert word in str(caught.value)


def test_schema_is_closed() -> None:
    schema = EnvConfig.model_json_schema()
    assert schema["additionalProperties"] is False
    assert schema["properties"]["sizes"]["propertyNames"]["enum"] == [str(n) for n in SIZES]
