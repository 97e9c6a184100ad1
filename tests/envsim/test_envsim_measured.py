"""What the opt-in knobs came to in a set of instances."""

from __future__ import annotations

import pytest

from envsim.api import Measurement
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, make_instance
from envsim.lake.measured import measured_knobs

LAKE = Lake()
ROWS = ["...", "...", "..."]
STARTS, GOALS = [(0, 0), (2, 2)], [(0, 2), (2, 0)]


def task(**labels: object) -> LakeInstance:
    return make_instance(ROWS, STARTS, GOALS, **labels)  # type: ignore[arg-type]


def test_plain_lakes_measure_nothing_and_read_as_ever() -> None:
    assert measured_knobs([task(), task()]) == {}
    measured = LAKE.generate(LAKE.default_config(), 16, 1).measurement
    assert "knobs" not in measured.model_dump(mode="json")
    assert Measurement.model_validate_json(measured.model_dump_json()) == measured


def test_shares_and_means_by_path() -> None:
    three = make_instance(ROWS, [*STARTS, (1, 0)], [*GOALS, (1, 2)])
    found = measured_knobs(
        [task(topology="rooms"), task(via=[(1, 1), (1, 0)], success_rate=0.96), three, task(shaping=0.2)]
    )
    assert found["topology.rooms"] == 0.25
    assert found["topology.random"] == 0.75
    assert found["topology.corridor"] == 0
    assert (found["agents.2"], found["agents.3"], found["goals.2"]) == (0.75, 0.25, 0.25)
    assert found["success_rate"] == pytest.approx(0.99)
    assert found["shaping"] == pytest.approx(0.05)
    assert not any(path.startswith("placement") for path in found), "all at the default"
    for group in ("topology", "agents", "goals"):
        assert sum(value for path, value in found.items() if path.startswith(f"{group}.")) == 1


def test_kinds_of_imported_maps_are_named_too() -> None:
    found = measured_knobs([task(topology="maze"), task()])
    assert list(found)[-1] == "topology.maze"
    assert found["topology.maze"] == 0.5


def test_generated_agents_are_measured() -> None:
    config = LAKE.editing(["agents"]).with_values(LAKE.default_config(), {"agents.3": 1.0})
    small = LAKE.with_values(config, {f"{n}x{n}.data_ratio": 0.0 for n in range(5, 11)})
    measured = LAKE.generate(small, 24, 2).measurement
    assert measured.knobs["agents.3"] == 0.5
