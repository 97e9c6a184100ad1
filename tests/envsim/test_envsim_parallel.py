"""Several processes give the bytes of one."""

from __future__ import annotations

import pytest

from envsim.api import EnvsimError, YieldError
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.instance import dump_instances
from envsim.parallel import ordered


def _config(**sizes: dict[str, float]) -> EnvConfig:
    lake = Lake()
    values = {f"{n}x{n}.data_ratio": 0.0 for n in range(3, 11) if f"{n}x{n}" not in sizes}
    values |= {f"{cell}.{knob}": value for cell, knobs in sizes.items() for knob, value in knobs.items()}
    return lake.with_values(EnvConfig(), values)


def test_the_same_bytes_for_any_number_of_processes() -> None:
    made = [Lake().generate(EnvConfig(), 60, 5, processes=processes) for processes in (1, 2, 3)]
    assert len({dump_instances(one.instances) for one in made}) == 1
    assert made[0].measurement == made[1].measurement == made[2].measurement


def test_the_first_error_in_order_comes_through_whole() -> None:
    crowded = {"hole_ratio": 0.5, "data_ratio": 0.5, "wait_ratio": 0.0}
    config = _config(**{"3x3": crowded, "4x4": crowded}).model_copy(update={"agents": {5: 1.0}})
    errors = []
    for processes in (1, 2):
        with pytest.raises(YieldError) as caught:
            Lake().generate(config, 400, 0, processes=processes)
        errors.append(caught.value)
    alone, together = errors
    assert (str(alone), alone.cell, alone.rate) == (str(together), together.cell, together.rate)
    assert alone.cell == "3x3"


@pytest.mark.parametrize("processes", [0, -1])
def test_no_process_is_an_error(processes: int) -> None:
    with pytest.raises(EnvsimError, match="expected at least 1"):
        list(ordered(str, [1, 2], processes=processes))


def test_results_keep_the_order_of_the_tasks_whatever_begins_first() -> None:
    assert list(ordered(str, [1, 2, 3], processes=2, weight=float)) == ["1", "2", "3"]
