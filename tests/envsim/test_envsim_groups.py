"""The opt-in knobs in generation: shares, labels, measured quantities, and refusals that say what would do."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsim.api import YieldError
from envsim.lake.config import AGENT_COUNTS, GOALS, PLACEMENTS, SIZES, TOPOLOGIES, EnvConfig, parse_config
from envsim.lake.environment import Lake
from envsim.lake.generate import groups
from envsim.lake.grid import Board
from envsim.lake.instance import LakeInstance, dump_instances, make_instance
from envsim.lake.layout import Kind
from envsim.lake.solver import Analysis, Limits
from envsim.lake.yields import Quota, Tally, Task, judge

LAKE = Lake(Lake.knob_groups)


def opted(values: dict[str, float], size: int | None = None) -> EnvConfig:
    only = {} if size is None else {f"{n}x{n}.data_ratio": float(n == size) for n in SIZES}
    return LAKE.with_values(EnvConfig(), only | values)


WEIGHT = st.sampled_from([0.0, 0.02, 0.05, 0.3, 1.0])


@st.composite
def mixtures(draw: st.DrawFn) -> EnvConfig:
    data = {}
    for name, parts in (
        ("agents", AGENT_COUNTS),
        ("placement", PLACEMENTS),
        ("topology", TOPOLOGIES),
        ("goals", GOALS),
    ):
        data[name] = {part: draw(WEIGHT) for part in parts} | {parts[0]: draw(st.sampled_from([0.1, 1.0]))}
    return parse_config(data)


@settings(max_examples=60, deadline=None)
@given(mixtures(), st.integers(1, 700))
def test_groups_keep_sizes_exact_and_every_mixture_near_its_shares(asked: EnvConfig, n: int) -> None:
    found = list(groups(asked, n))
    assert sum(group.count for group in found) == n
    by: dict[str, Counter[object]] = {name: Counter() for name in ("size", "agents", "topology", "placement", "goals")}
    for group in found:
        assert 0 <= group.waiting <= group.count > 0
        by["size"][group.size] += group.count
        by["agents"][group.agents] += group.count
        by["topology"][group.kind.topology] += group.count
        by["placement"][group.kind.placement] += group.count
        if group.agents == 2:
            by["goals"][group.kind.goals] += group.count
        else:
            assert group.kind.goals == 1
    for size in SIZES:
        assert abs(by["size"][size] - n / 8) < 1
        waiting = sum(group.waiting for group in found if group.size == size)
        assert abs(waiting - 0.2 * by["size"][size]) <= 0.5 + 1e-9
    for name in ("agents", "topology", "placement"):
        for part, share in getattr(asked, name).items():
            assert abs(by[name][part] - share * n) < 2
    for part, share in asked.goals.items():
        assert abs(by["goals"][part] - share * asked.agents[2] * n) < 2


def test_a_plain_group_is_the_same_whatever_else_there_is() -> None:
    plain = LAKE.generate(opted({}, 5), 20, 4).instances
    mixed = LAKE.generate(opted({"topology.rooms": 1.0, "placement.far": 1.0}, 5), 80, 4).instances
    kept = [i for i in mixed if (i.topology, i.placement) == ("random", "uniform")]
    assert len(kept) == 20
    assert {i.id for i in kept} == {i.id for i in plain}


def analysis(instance: LakeInstance) -> Analysis:
    columns = len(instance.rows[0])
    starts, goals, via = (
        None if cells is None else [r * columns + c for r, c in cells]
        for cells in (instance.starts, instance.goals, instance.via)
    )
    limits = Limits.affordable(instance.agents)
    return Analysis(Board.of(instance.rows), instance.rows, starts or [], goals or [], limits, via=via)


RICH = {
    "agents.3": 0.5,
    "placement.far": 0.5,
    "placement.crossing": 0.5,
    "topology.rooms": 0.5,
    "topology.corridor": 0.25,
    "topology.warehouse": 0.25,
    "goals.2": 1.0,
    "success_rate": 0.97,
    "shaping": 0.2,
}


def test_every_knob_reaches_instances_and_is_measured() -> None:
    asked = opted(RICH | {"5x5.hole_ratio": 0.35, "5x5.wait_ratio": 0.25}, 5)
    made = LAKE.generate(asked, 96, 11)
    assert dump_instances(made.instances) == dump_instances(LAKE.generate(asked, 96, 11).instances)
    for instance in made.instances:
        assert sum(row.count("@") for row in instance.rows) == round(0.35 * 25)
        assert (instance.success_rate, instance.shaping) == (0.97, 0.2)
        assert instance.via is None or instance.agents == 2
        again = make_instance(instance.rows, instance.starts, instance.goals, via=instance.via)
        assert (again.id, again.hash) == (instance.id, instance.hash)
        assert instance.certificate == analysis(instance).certificate()
        assert LAKE.score(instance, LAKE.reference_answer(instance, "compact")).outcome == "optimal"
        if instance.placement == "crossing":
            assert instance.certificate.paths_collide
    measured = made.measurement.quantities["5x5"]
    assert measured["wait_ratio"] == 0.25
    for name in ("agents", "topology", "placement"):
        for part, share in list(getattr(asked, name).items())[1:]:
            assert measured[f"{name}.{part}"] == pytest.approx(share, abs=2 / 96)
    assert measured["agents"] == pytest.approx(2 + 1 / 3, abs=2 / 96)
    assert measured["goals.2"] == pytest.approx(0.5 * 2 / 3, abs=2 / 96)
    assert measured["success_rate"] == pytest.approx(0.97)
    assert measured["shaping"] == pytest.approx(0.2)


def test_a_plain_lake_measures_what_it_ever_did() -> None:
    made = LAKE.generate(opted({}, 4), 10, 0)
    assert list(made.measurement.quantities["4x4"]) == [
        "hole_ratio",
        "wait_ratio",
        "conflict_share",
        "coordination_cost",
        "optimal_makespan",
        "duplicate_share",
    ]


def test_noise_and_shaping_change_no_layout() -> None:
    plain = LAKE.generate(opted({}, 4), 20, 6).instances
    noisy = LAKE.generate(opted({"success_rate": 0.96, "shaping": 0.3}, 4), 20, 6).instances
    assert [i.id for i in plain] == [i.id for i in noisy]


@pytest.mark.parametrize(
    ("size", "values", "words"),
    [
        (3, {"agents.5": 1, "agents.2": 0, "3x3.hole_ratio": 0.45}, ["5 agents and 4 holes", "agents.2 for agents.5"]),
        (
            3,
            {"placement.far": 1, "placement.uniform": 0, "3x3.hole_ratio": 0.45, "agents.4": 1, "agents.2": 0},
            ["placement.far", "found a place", "3x3.hole_ratio 0.1 ("],
        ),
        (
            3,
            {"placement.crossing": 1, "placement.uniform": 0, "topology.rooms": 1, "topology.random": 0},
            ["placement.uniform for placement.crossing", "topology.random for topology.rooms"],
        ),
        (
            3,
            {"goals.2": 1, "goals.1": 0, "topology.rooms": 1, "topology.random": 0, "3x3.hole_ratio": 0.45},
            ["goals.2", "3x3.hole_ratio"],
        ),
        (
            3,
            {"topology.corridor": 1, "topology.random": 0, "3x3.hole_ratio": 0.45, "agents.3": 1, "agents.2": 0},
            ["topology.corridor", "agents.2 for agents.3", "3x3.hole_ratio"],
        ),
    ],
)
def test_a_refusal_names_cell_knob_rate_and_what_would_do(
    size: int, values: dict[str, float], words: list[str]
) -> None:
    with pytest.raises(YieldError) as caught:
        LAKE.generate(opted(values, size), 40, 1)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.cell == f"{size}x{size}"
    assert f"{caught.value.rate:.1%}" in message
    for word in words:
        assert word in message


def test_the_remedy_that_a_refusal_names_does() -> None:
    refused = {"placement.crossing": 1.0, "placement.uniform": 0.0, "topology.rooms": 1.0, "topology.random": 0.0}
    for cure in (
        {"placement.uniform": 1.0, "placement.crossing": 0.0},
        {"topology.random": 1.0, "topology.rooms": 0.0},
    ):
        assert len(LAKE.generate(opted(refused | cure, 3), 40, 1).instances) == 40


def test_a_wait_that_does_not_occur_names_the_knob_that_brings_it() -> None:
    task = Task(5, 2, (8,), Kind(placement="far", topology="warehouse"), Limits())
    tally = Tally(draws={"training": 2000}, layouts=2000, hits={("training", True): 3})
    with pytest.raises(YieldError) as caught:
        judge(tally, {("training", True)}, task, 1.0)
    message = str(caught.value)
    assert "5x5 with 2 agents and 8 holes of topology.warehouse, placement.far" in message
    assert "3 of 2000 layouts of split training need a wait" in message
    assert "lower wait_ratio of 5x5" in message
    assert "or placement.uniform for placement.far (" in message
    judge(tally, {("training", True)}, task, 5.0)


def test_places_are_judged_on_all_draws_and_solvability_on_the_wanted_layouts() -> None:
    task = Task(3, 2, (0,), Kind(), Limits())
    waiting: set[Quota] = {("probe", False)}
    # A sixteenth of the layouts is of the split: beside all draws without a place, these say nothing.
    judge(Tally(draws={"probe": 120}, layouts=1920, placeless=2400, unsolvable=24), waiting, task, 1.0)
    judge(Tally(draws={"probe": 9}, layouts=144, placeless=190, unsolvable=9), waiting, task, 1.0)
    judge(Tally(draws={"probe": 1}, layouts=12, placeless=80), waiting, task, 1.0)
    with pytest.raises(
        YieldError, match=r"40.0% of 120 layouts are solvable and 44.4% of 4320 draws found a place"
    ) as c:
        judge(Tally(draws={"probe": 120}, layouts=1920, placeless=2400, unsolvable=72), waiting, task, 1.0)
    assert c.value.rate == pytest.approx(0.4 * 1920 / 4320)
    with pytest.raises(YieldError, match=r"20.0% of 100 draws found a place") as c:
        judge(Tally(draws={"probe": 1}, layouts=20, placeless=80), waiting, task, 1.0)
    assert c.value.rate == 0.2


def test_a_split_without_layouts_ends() -> None:
    task = Task(3, 2, (4,), Kind(topology="corridor", placement="far"), Limits())
    tally = Tally(layouts=70_000, hits={("anchor", False): 0})
    with pytest.raises(YieldError, match="0 of 70000 layouts of any split are of split anchor and need no wait"):
        judge(tally, {("anchor", False)}, task, 1.0)


@pytest.mark.parametrize("split", ["training", "probe"])
def test_what_finds_a_place_often_enough_is_generated_for_every_split(split: str) -> None:
    asked = opted({"agents.4": 1, "agents.2": 0, "placement.far": 1, "placement.uniform": 0, "3x3.hole_ratio": 0.2}, 3)
    for seed in range(3):
        assert len(LAKE.generate(asked, 4, seed, split=split).instances) == 4


@pytest.mark.parametrize("split", ["training", "probe"])
def test_every_remedy_that_a_refusal_names_does(split: str) -> None:
    base = {"agents.3": 1.0, "agents.2": 0.0, "topology.corridor": 1.0, "topology.random": 0.0, "3x3.hole_ratio": 0.45}
    with pytest.raises(YieldError) as caught:
        LAKE.generate(opted(base, 3), 40, 1, split=split)
    named = re.findall(r"(\S+) (?:for (\S+)|([0-9.]+)) \(\d+% solvable\)", str(caught.value))
    assert named
    for knob, instead, value in named:
        cure = {knob: 1.0, instead: 0.0} if instead else {knob: float(value)}
        for seed in (2, 3):
            assert len(LAKE.generate(opted(base | cure, 3), 40, seed, split=split).instances) == 40


def test_a_size_without_room_may_be_left_out() -> None:
    """What is refused at 3x3 is made without 3x3, as the message says."""
    config = EnvConfig.model_validate({"topology": {"rooms": 1}, "agents": {"5": 1}})
    with pytest.raises(YieldError, match=r"or leave 3x3 out \(3x3\.data_ratio 0\)"):
        LAKE.generate(config, 10, 0)
    without = LAKE.with_values(config, {"3x3.data_ratio": 0.0})
    assert len(LAKE.generate(without, 7, 0).instances) == 7
