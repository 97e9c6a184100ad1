"""Bounds, normalisation, hash and knobs of the lake's configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsim.api import EnvsimError
from envsim.lake.config import SIZES, EnvConfig, parse_config, shares
from envsim.lake.knobs import KNOB_GROUPS, check_groups, knobs, with_values

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
        ({"sizes": _sizes([1] * 8) | {"11": _sizes([1] * 8)["3"]}}, ["sizes [11]", "expected map sizes in [3, 4"]),
        ({"sizes": {}}, ["no map size is named"]),
        ({"sizes": 3}, ["sizes: expected a mapping like {5: {data_ratio: 1,", "(got 3)"]),
        ({"sizes": {"5": 2}}, ["sizes.5: expected a mapping like {data_ratio: 1,", "(got 2)"]),
        (
            {"sizes": {"5": {"data_ratio": 1}}},
            ["sizes.5.hole_ratio: is missing; a map size has data_ratio, hole_ratio"],
        ),
        ({"agents": 2}, ["agents: expected a mapping like {2: 0.5, 3: 0.5} (got 2)"]),
        ({"agents": {"x": 1}}, ["agents.x: expected a whole number (got 'x')"]),
        ({"goals": 2}, ["goals: expected a mapping like {1: 0.5, 2: 0.5} (got 2)"]),
        ({"topology": "rooms"}, ["topology: expected a mapping like {random: 0.5, rooms: 0.5} (got 'rooms')"]),
        ({"placement": "far"}, ["placement: expected a mapping like {uniform: 0.5, far: 0.5} (got 'far')"]),
        ({"success_rate": 0.5}, ["success_rate: expected at least 0.95 (got 0.5)"]),
        ({"shaping": "shaped"}, ["shaping: expected a number (got 'shaped')"]),
        ({"sizes": _sizes([0] * 8)}, ["sum to 0"]),
        ({"size": {}}, ["'size'", "did you mean 'sizes'? known are schema_version, sizes"]),
        ({"sizes": _sizes([1] * 8) | {"5": {"hole_rate": 0.1}}}, ["'hole_rate'", "did you mean 'hole_ratio'"]),
        (
            {"sizes": _sizes([1] * 8) | {"5": {"data_ratio": 1, "hole_ratio": 0.6, "wait_ratio": 0}}},
            ["sizes.5.hole_ratio", "0.5", "0.6"],
        ),
        ({"agents": {"6": 1}}, ["agents", "[6]"]),
        ({"agents": {"2": float("nan")}}, ["agents"]),
        ([], ["configuration: expected a mapping like {agents: {2: 1}}"]),
    ],
)
def test_errors_name_field_value_and_bound(data: Any, words: list[str]) -> None:
    with pytest.raises(EnvsimError) as caught:
        parse_config(data)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_sizes_named_in_part() -> None:
    """Those that are not named are as if they were named with data_ratio 0 and the default numbers."""
    five = {"data_ratio": 3, "hole_ratio": 0.3, "wait_ratio": 0.5}
    part = parse_config({"sizes": {"5": five}})
    rest = {str(n): {"data_ratio": 0, "hole_ratio": 0.2, "wait_ratio": 0.2} for n in SIZES}
    assert part == parse_config({"sizes": rest | {"5": five}})
    assert part.sizes[5].data_ratio == 1
    assert parse_config(part.model_dump(mode="json")) == part
    assert len(knobs(part)) == 24


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
    assert schema["properties"]["topology"]["propertyNames"]["enum"] == ["random", "rooms", "corridor", "warehouse"]
    assert schema["properties"]["goals"]["propertyNames"]["enum"] == ["1", "2"]
    assert all(schema["properties"][name]["description"] for name in KNOB_GROUPS)


DEFAULT_HASH = "7eed8d0cda48e84adbe19d0311fd15c3659affcc5366b891b6ac430d317889c3"


def test_opt_in_knobs_at_their_defaults_leave_dump_and_hash_as_they_were() -> None:
    assert set(EnvConfig().model_dump()) == {"schema_version", "sizes", "agents"}
    assert EnvConfig().canonical_hash() == DEFAULT_HASH
    spelt_out = _data(
        placement={"uniform": 3, "far": 0}, topology={"random": 1}, goals={"1": 1}, success_rate=1.0, shaping=0
    )
    assert parse_config(spelt_out).canonical_hash() == DEFAULT_HASH
    assert parse_config(_data(agents={"2": 1, "3": 0})).canonical_hash() == DEFAULT_HASH


OPT_IN = {
    "agents.3": 0.5,
    "placement.far": 0.25,
    "topology.rooms": 1.0,
    "topology.random": 0.0,
    "goals.2": 0.1,
    "success_rate": 0.97,
    "shaping": 0.2,
}


def test_opt_in_knobs_reach_the_configuration_and_survive_a_round_trip() -> None:
    config = with_values(EnvConfig(), OPT_IN, KNOB_GROUPS)
    assert config.agents == {2: 0.666667, 3: 0.333333}
    assert config.placement == {"uniform": 0.8, "far": 0.2}
    assert config.topology == {"rooms": 1.0}
    assert config.goals == {1: 0.909091, 2: 0.090909}
    assert (config.success_rate, config.shaping) == (0.97, 0.2)
    again = parse_config(json.loads(config.model_dump_json()))
    assert again == config
    assert again.canonical_hash() == config.canonical_hash() != DEFAULT_HASH
    assert knobs(config, ["topology"])["topology.random"].value == 0


def test_knobs_of_a_group_come_after_those_of_the_sizes_and_only_if_opened() -> None:
    assert len(knobs(EnvConfig())) == 24
    both = list(knobs(EnvConfig(), ["shaping", "topology"]))
    assert both[24:] == ["topology.random", "topology.rooms", "topology.corridor", "topology.warehouse", "shaping"]
    assert check_groups(["shaping", "agents", "shaping"]) == ("agents", "shaping")


def test_steps_of_opt_in_knobs() -> None:
    found = knobs(with_values(EnvConfig(), {"success_rate": 0.955, "shaping": 0.25}, KNOB_GROUPS), KNOB_GROUPS)
    assert (found["topology.rooms"].up, found["topology.rooms"].down) == (0.05, 0)
    assert (found["topology.random"].up, found["topology.random"].down) == (1, 0.5)
    assert (found["success_rate"].up, found["success_rate"].down) == (0.965, 0.95)
    assert (found["shaping"].up, found["shaping"].down) == (0.3, 0.15)
    for knob in found.values():
        assert knob.low <= knob.down <= knob.value <= knob.up <= knob.high


@given(st.sampled_from(sorted(knobs(EnvConfig(), KNOB_GROUPS))), st.sampled_from(["up", "down"]), st.integers(1, 8))
def test_every_step_leads_to_a_configuration(path: str, way: str, times: int) -> None:
    config = EnvConfig()
    for _ in range(times):
        knob = knobs(config, KNOB_GROUPS)[path]
        config = with_values(config, {path: getattr(knob, way)}, KNOB_GROUPS)
    assert parse_config(json.loads(config.model_dump_json())) == config
    if way == "up":
        assert knobs(config, KNOB_GROUPS)[path].value >= knobs(EnvConfig(), KNOB_GROUPS)[path].value


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"topology": {"room": 1}}, ["topology", "'room'", "did you mean 'rooms'"]),
        ({"placement": {"far": 0}}, ["placement", "sum to 0"]),
        ({"placement": {"far": -1}}, ["placement.far", "-1"]),
        ({"goals": {"3": 1}}, ["goals", "[3]", "[1, 2]"]),
        ({"goals": {"2": 1}, "agents": {"3": 1}}, ["goals.2", "agents.2", "[3]"]),
        ({"success_rate": 0.9}, ["success_rate", "0.95", "0.9"]),
        ({"shaping": 0.31}, ["shaping", "0.3", "0.31"]),
        ({"topolgy": {}}, ["did you mean 'topology'"]),
    ],
)
def test_errors_of_opt_in_fields_name_field_value_and_bound(data: Any, words: list[str]) -> None:
    with pytest.raises(EnvsimError) as caught:
        parse_config(data)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


WEIGHTS_OF_NOTHING = [{"rooms": "x"}, {"2.5": 1}, {"rooms": 10**400}, {"random": 1, "rooms": 1e308, "corridor": 1e308}]
ODD_WEIGHTS = [{"rooms": 1}, {"far": True}, {"2": 1}, {1: 1, 2: 0}, {"3": 1e-9, "2": 1}, {"random": 1, "rooms": 1e-300}]
NO_WEIGHTS: list[Any] = [None, True, 1, -1, 0.5, float("inf"), float("nan"), 10**400, "x", "1", [], {}, [1]]
ODD = st.sampled_from([*NO_WEIGHTS, *WEIGHTS_OF_NOTHING, *ODD_WEIGHTS])


@given(st.dictionaries(st.sampled_from([*KNOB_GROUPS, "sizes"]), ODD))
def test_odd_values_are_a_sound_configuration_or_one_line(data: dict[str, Any]) -> None:
    try:
        config = parse_config(data)
    except EnvsimError as error:
        lines = str(error).count("\n")
    else:
        lines = 0
        assert parse_config(json.loads(config.model_dump_json())) == config
    assert lines == 0


def test_a_knob_of_a_closed_group_says_which_group_to_open() -> None:
    with pytest.raises(EnvsimError, match=r"'topology\.rooms' is not open here; add 'topology'"):
        with_values(EnvConfig(), {"topology.rooms": 0.5})
    with pytest.raises(EnvsimError, match=r"did you mean 'topology\.rooms'"):
        with_values(EnvConfig(), {"topology.room": 0.5}, ["topology"])
    with pytest.raises(EnvsimError, match="unknown group of knobs 'topologies'; did you mean 'topology'"):
        knobs(EnvConfig(), ["topologies"])
    with pytest.raises(EnvsimError, match=r"goals\.2 is 1\.0 but agents has only \[3\]"):
        with_values(EnvConfig(), {"agents.2": 0, "agents.3": 1, "goals.2": 1, "goals.1": 0}, KNOB_GROUPS)
