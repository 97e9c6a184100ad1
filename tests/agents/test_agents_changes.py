"""Changes and conditions on the real lake."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.changes import apply_changes, check_conditions, describe_changes
from agents.schemas import Change
from envsim import registry
from envsim.api import Environment, EnvsimError

LAKE = registry.get("lake")
PATHS = sorted(LAKE.knobs(LAKE.default_config()))


def change(path: str, op: str, value: float | None = None) -> Change:
    return Change.model_validate({"path": path, "op": op, "value": value})


changes_lists = st.lists(
    st.tuples(st.sampled_from(PATHS), st.sampled_from(["up", "down", "keep"])),
    max_size=8,
    unique_by=lambda item: item[0],
)


@given(changes_lists)
@settings(max_examples=100, deadline=None)
def test_changes_move_as_their_op_says(items: list[tuple[str, str]]) -> None:
    config = LAKE.default_config()
    after = apply_changes(LAKE, config, [change(path, op) for path, op in items])
    assert sum(LAKE.shares(after).values()) == pytest.approx(1)
    for path, op in items:
        if path.endswith("data_ratio"):
            continue
        old, new = LAKE.knobs(config)[path], LAKE.knobs(after)[path]
        assert new.value == {"up": old.up, "down": old.down, "keep": old.value}[op]
    touched = {line.split()[0] for line in describe_changes(LAKE, config, after)}
    moved = {path for path, op in items if op != "keep"}
    assert {path for path in moved if not path.endswith("data_ratio")} <= touched


def test_keeping_everything_changes_nothing(lake: Environment) -> None:
    config = lake.default_config()
    after = apply_changes(lake, config, [change(path, "keep") for path in PATHS[:16]])
    assert describe_changes(lake, config, after) == []


def test_a_change_reads_as_one_line(lake: Environment) -> None:
    config = lake.default_config()
    after = apply_changes(lake, config, [change("5x5.hole_ratio", "set", 0.35)])
    assert describe_changes(lake, config, after) == ["5x5.hole_ratio 0.200 -> 0.350"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("5x5.hole_ration", "up", None)], "5x5.hole_ration: not an editable knob; did you mean '5x5.hole_ratio'"),
        ([("reward.valid", "set", 9.0)], "reward.valid: not an editable knob"),
        ([("5x5.hole_ratio", "set", 0.9)], "5x5.hole_ratio: value 0.9 is outside [0, 0.5]"),
        ([("5x5.hole_ratio", "set", None)], "op 'set' has no value; expected a number in [0, 0.5]"),
        ([("5x5.hole_ratio", "up", 0.3)], "op 'up' takes no value, got 0.3"),
        ([("5x5.hole_ratio", "up", None), ("5x5.hole_ratio", "down", None)], "changed twice"),
    ],
)
def test_a_faulty_change_is_named(lake: Environment, changes: list[Any], expected: str) -> None:
    with pytest.raises(EnvsimError) as caught:
        apply_changes(lake, lake.default_config(), [change(*item) for item in changes])
    assert expected in str(caught.value)


@given(st.sampled_from(PATHS), st.sampled_from(["up", "down"]))
@settings(max_examples=60, deadline=None)
def test_doing_what_a_condition_asks_meets_it(path: str, op: str) -> None:
    config = LAKE.default_config()
    condition = change(path, op)
    assert check_conditions(LAKE, config, apply_changes(LAKE, config, [condition]), [condition]) == []
    opposite = apply_changes(LAKE, config, [change(path, "down" if op == "up" else "up")])
    assert len(check_conditions(LAKE, config, opposite, [condition])) == 1
    assert len(check_conditions(LAKE, config, config, [condition])) == 1


def test_set_and_keep_conditions(lake: Environment) -> None:
    config = lake.default_config()
    revised = apply_changes(lake, config, [change("5x5.hole_ratio", "set", 0.3), change("9x9.data_ratio", "down")])
    met = [change("5x5.hole_ratio", "set", 0.3), change("4x4.data_ratio", "keep"), change("3x3.hole_ratio", "keep")]
    assert check_conditions(lake, config, revised, met) == []
    unmet = [change("5x5.hole_ratio", "set", 0.4), change("9x9.data_ratio", "keep"), change("5x5.hole_ratio", "keep")]
    assert len(check_conditions(lake, config, revised, unmet)) == 3


def test_a_knob_at_its_bound_cannot_go_further(lake: Environment) -> None:
    config = lake.with_values(lake.default_config(), {"3x3.hole_ratio": 0.0})
    assert check_conditions(lake, config, config, [change("3x3.hole_ratio", "down")]) == []


def test_steps_never_give_a_cell_up_but_set_can(lake: Environment) -> None:
    config = lake.default_config()
    for _ in range(6):
        steps = [change(f"{cell}.data_ratio", "up" if cell == "3x3" else "down") for cell in lake.cells()]
        config = apply_changes(lake, config, steps)
        assert min(lake.shares(config).values()) >= 0.02 - 2e-6
    assert lake.shares(config)["10x10"] == pytest.approx(0.02, abs=2e-6)
    again = apply_changes(lake, config, [change("10x10.data_ratio", "down")])
    assert check_conditions(lake, config, again, [change("10x10.data_ratio", "down")]) == []
    given_up = apply_changes(lake, config, [change("10x10.data_ratio", "set", 0.0)])
    assert lake.shares(given_up)["10x10"] == 0


@given(st.lists(st.sampled_from(["up", "down", "keep"]), min_size=8, max_size=8))
@settings(deadline=None)
def test_a_share_lowered_to_the_floor_stays_there_though_the_others_give_way(ops: list[str]) -> None:
    """Before, they raised it again, and a critic's condition on it could not be met by any steps."""
    cells = LAKE.cells()
    shares = dict(zip(cells, (0.24, 0.24, 0.24, 0.12, 0.06, 0.06, 0.02, 0.02), strict=True))
    config = LAKE.with_values(LAKE.default_config(), {f"{cell}.data_ratio": share for cell, share in shares.items()})
    steps = [change(f"{cell}.data_ratio", op) for cell, op in zip(cells, ops, strict=True)]
    after = apply_changes(LAKE, config, steps)
    assert sum(LAKE.shares(after).values()) == pytest.approx(1)
    lowered = [one for one in steps[-2:] if one.op == "down"]
    assert check_conditions(LAKE, config, after, lowered) == []
    assert all(LAKE.shares(after)[one.path.split(".")[0]] == pytest.approx(0.02, abs=2e-6) for one in lowered)


def test_a_step_already_taken_cannot_be_asked_for_twice(lake: Environment) -> None:
    base = lake.default_config()
    down = change("9x9.data_ratio", "down")
    criticised = apply_changes(lake, base, [down, change("3x3.data_ratio", "up")])
    revised = apply_changes(lake, base, [down])
    assert lake.shares(revised)["9x9"] > lake.shares(criticised)["9x9"]
    assert len(check_conditions(lake, criticised, revised, [down])) == 1
    assert check_conditions(lake, criticised, revised, [down], base=base) == []
    assert len(check_conditions(lake, criticised, base, [down], base=base)) == 1
