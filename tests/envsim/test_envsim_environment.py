"""The Environment protocol: the lake, and the second environment that the rest of the house is tried on."""

from __future__ import annotations

import json
from typing import Any, get_args
from xml.etree import ElementTree

import pytest

from envsim import registry
from envsim.api import Environment, EnvsimError, Style, Verdict
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.instance import make_instance
from envsim.lake.solver import analyse

LAKE = Lake()
SVG = "{http://www.w3.org/2000/svg}"
STYLES: tuple[Style, ...] = get_args(Style)
ROWS = ["...", ".@.", "..."]


def _instance(starts: Any, goals: Any, rows: list[str] = ROWS) -> Any:
    return make_instance(rows, starts, goals, analyse(rows, starts, goals).certificate())


CROSS = _instance([(0, 0), (0, 2)], [(0, 2), (0, 0)])


@pytest.fixture(params=["lake", "parity:Parity"])
def environment(request: pytest.FixtureRequest) -> Environment:
    return registry.get(request.param)


def test_protocol(environment: Environment) -> None:
    """What the rest of the house relies on, for any environment."""
    config = environment.default_config()
    assert environment.config_model.model_validate(json.loads(config.model_dump_json())) == config
    shares = environment.shares(config)
    assert list(shares) == environment.cells()
    assert sum(shares.values()) == pytest.approx(1)
    for path, knob in environment.knobs(config).items():
        assert path.split(".")[0] in environment.cells()
        assert knob.low <= knob.down <= knob.value <= knob.up <= knob.high
        moved = environment.with_values(config, {path: knob.up})
        assert environment.knobs(moved)[path].value >= knob.value
    with pytest.raises(EnvsimError):
        environment.with_values(config, {"nowhere.at_all": 0.1})
    made = environment.generate(config, 24, 5, split="validation")
    assert made == environment.generate(config, 24, 5, split="validation")
    assert sum(made.measurement.share.values()) == pytest.approx(1)
    for instance in made.instances:
        again = environment.instance_model.model_validate_json(instance.model_dump_json())
        assert again == instance
        assert environment.split_of(instance) == instance.split == "validation"
        assert environment.cell(instance) in environment.cells()
        assert 0 <= environment.difficulty(instance) <= 1
        assert environment.agents(instance) >= 0
        for style in STYLES:
            assert environment.prompt(instance, style)[-1]["role"] == "user"
            best = environment.reference_answer(instance, style)
            assert environment.score(instance, best) == environment.replay(instance, best).verdict
            assert environment.score(instance, best).outcome == "optimal"
            answers = environment.null_answers(instance, style, 3)
            assert set(answers) == {"empty", "all_stay", "random_legal", "each_alone"}
            assert answers == environment.null_answers(instance, style, 3)
            for answer in (*answers.values(), "garbage", best[: len(best) // 2]):
                replay = environment.replay(instance, answer)
                assert replay.verdict == environment.score(instance, answer)
                assert replay.verdict.outcome in environment.outcomes
                assert len(replay.states) == len(replay.actions) + 1 == len(replay.rewards) + 1
                assert ElementTree.fromstring(environment.film(instance, answer)).tag == f"{SVG}svg"
                assert sum(replay.rewards) == (1.0 if replay.verdict.valid and replay.actions else 0.0)
            assert not environment.score(instance, answers["empty"]).valid


def test_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    registry.register("other", "parity:Parity")
    assert registry.get("other").cells() == ["short", "long"]
    registry.register("other", "parity:Parity")
    with pytest.raises(EnvsimError, match="already"):
        registry.register("other", "another:Thing")
    with pytest.raises(EnvsimError, match="expected 'module:factory'"):
        registry.register("x", "parity")
    with pytest.raises(EnvsimError, match="did you mean 'lake'"):
        registry.get("lakes")
    with pytest.raises(EnvsimError, match="cannot load"):
        registry.get("parity:Missing")
    with pytest.raises(EnvsimError, match="cannot load"):
        registry.get("no_such_module:Thing")


def test_null_answers_meet_the_faults_they_are_made_for() -> None:
    outcomes = {name: LAKE.score(CROSS, answer).outcome for name, answer in LAKE.null_answers(CROSS, "full", 0).items()}
    assert outcomes["empty"] == "parse_error"
    assert outcomes["all_stay"] == "goal_not_reached"
    assert outcomes["each_alone"] == "vertex_conflict"
    assert CROSS.certificate.paths_collide


def test_each_alone_is_right_where_nobody_meets() -> None:
    apart = _instance([(0, 0), (2, 2)], [(0, 2), (2, 0)])
    assert LAKE.score(apart, LAKE.null_answers(apart, "compact", 0)["each_alone"]).outcome == "optimal"
    assert not apart.certificate.paths_collide


@pytest.mark.parametrize(
    ("answer", "outcome", "states", "actions"),
    [
        ("(0,0)(0,2)(0,1)(0,1)(0,2)(0,0)", "vertex_conflict", 2, [["right", "left"]]),
        ("(0,0)(0,2)(1,1)(0,2)", "illegal_move", 2, [["jump", "stay"]]),
        ("(0,1)(0,2)", "wrong_start", 1, []),
        ("(0,0)(0,2)(1,0)(0,2)", "goal_not_reached", 2, [["down", "stay"]]),
        ("", "parse_error", 1, []),
    ],
)
def test_replays_end_with_the_first_fault(answer: str, outcome: str, states: int, actions: list[list[str]]) -> None:
    replay = LAKE.replay(CROSS, answer)
    assert replay.verdict.outcome == outcome
    assert len(replay.states) == states
    assert replay.states[0] == [[0, 0], [0, 2]]
    assert replay.actions == actions
    assert not any(replay.rewards)


def test_replay_of_a_valid_plan_ends_with_the_makespan() -> None:
    answer = LAKE.reference_answer(CROSS, "compact")
    longer = answer + answer[-10:]
    replay = LAKE.replay(CROSS, longer)
    assert replay.verdict.outcome == "optimal"
    assert replay.states[-1] == [[0, 2], [0, 0]]
    assert len(replay.actions) == CROSS.certificate.makespan
    assert replay.rewards[-1] == 1.0


def test_measure_by_hand() -> None:
    apart = _instance([(0, 0), (2, 2)], [(0, 2), (2, 0)])
    measured = LAKE.measure([CROSS, apart])
    values = measured.quantities["3x3"]
    assert measured.coordination == values["conflict_share"] == 0.5
    assert values["hole_ratio"] == pytest.approx(1 / 9)
    assert values["optimal_makespan"] == (CROSS.certificate.makespan + 2) / 2
    assert values["coordination_cost"] == CROSS.certificate.coordination_cost / 2
    assert measured.difficulty == pytest.approx((LAKE.difficulty(CROSS) + LAKE.difficulty(apart)) / 2)
    assert LAKE.difficulty(apart) < LAKE.difficulty(CROSS)
    with pytest.raises(EnvsimError, match="nothing to measure"):
        LAKE.measure([])
    with pytest.raises(EnvsimError, match="no certificate"):
        LAKE.measure([CROSS.model_copy(update={"certificate": None})])


def test_a_valid_answer_without_a_certificate_cannot_be_scored() -> None:
    bare = CROSS.model_copy(update={"certificate": None})
    answer = LAKE.reference_answer(CROSS, "compact")
    with pytest.raises(EnvsimError, match="no certificate"):
        LAKE.score(bare, answer)
    assert LAKE.score(bare, "").outcome == LAKE.score(CROSS, "").outcome
    assert LAKE.replay(bare, answer).verdict.valid


def test_difficulty_rises_with_size_and_holes_and_waits() -> None:
    def mean(**values: float) -> float:
        base = {f"{n}x{n}.data_ratio": float(n == 5) for n in range(3, 11)} | {"5x5.wait_ratio": 0.0}
        config = LAKE.with_values(EnvConfig(), base | {path.replace("_x_", "."): v for path, v in values.items()})
        return LAKE.generate(config, 60, 0).measurement.difficulty

    easy = mean(**{"5x5.hole_ratio": 0.1})
    assert mean(**{"5x5.hole_ratio": 0.4}) > easy
    assert mean(**{"5x5.hole_ratio": 0.1, "5x5.wait_ratio": 0.5}) > easy
    assert mean(**{"5x5.hole_ratio": 0.1, "5x5.data_ratio": 0.01, "9x9.data_ratio": 1.0}) > easy


def test_unsolvable_instances_have_a_verdict_but_no_reference() -> None:
    blocked = _instance([(0, 0), (0, 1)], [(0, 3), (0, 2)], ["....."])
    assert not blocked.certificate.solvable
    assert LAKE.difficulty(blocked) == 1.0
    with pytest.raises(EnvsimError, match="proven unsolvable"):
        LAKE.reference_answer(blocked, "compact")
    verdict: Verdict = LAKE.score(blocked, "(0,0)(0,1)")
    assert verdict.outcome == "goal_not_reached"


def test_an_environment_opens_groups_of_knobs() -> None:
    config = EnvConfig()
    opened = LAKE.editing(["topology", "success_rate"])
    assert set(opened.knobs(config)) - set(LAKE.knobs(config)) == {
        *(f"topology.{name}" for name in ("random", "rooms", "corridor", "warehouse")),
        "success_rate",
    }
    assert opened.with_values(config, {"success_rate": 0.96}).success_rate == 0.96
    assert set(Lake(LAKE.knob_groups).knobs(config)) > set(opened.knobs(config))
    with pytest.raises(EnvsimError, match="not open"):
        LAKE.with_values(config, {"success_rate": 0.96})
    with pytest.raises(EnvsimError, match="did you mean 'topology'"):
        LAKE.editing(["topologie"])
