"""Knobs that a run opens to its designer: changes, conditions, the trust region, evidence, prompts, the random rule."""

from __future__ import annotations

from typing import Any

import pytest
from agents_fakes import evidence_of

from agents import teacher
from agents.changes import apply_changes, check_conditions, describe_changes, mixtures
from agents.checks import semantic_checks
from agents.designers import DesignContext, get_designer
from agents.evidence.build import shared_knobs, training_evidence
from agents.gates import GateContext, run_gates
from agents.render import render_messages
from agents.rolespec import RoleSpec
from agents.schemas import MOST_CHANGES, Change, Critique, Evidence, GateReport, Proposal
from agents.structured import output_schema
from envsim import registry
from envsim.api import Environment, EnvsimError, Measurement, Style
from tools.probe_policy import ProbeTask

LAKE = registry.get("lake")
OPEN = LAKE.editing(LAKE.knob_groups)
START = LAKE.default_config()
RATES = (0.6, 0.4, 0.3, 0.2, 0.2, 0.1, 0.1, 0.1)
ROLES = ("failure_analyst", "config_designer", "safety_critic")


def change(path: str, op: str, value: float | None = None) -> Change:
    return Change.model_validate({"path": path, "op": op, "value": value})


def values(environment: Environment, config: Any) -> dict[str, float]:
    return {path: knob.value for path, knob in environment.knobs(config).items()}


def test_what_is_not_open_cannot_be_changed() -> None:
    with pytest.raises(EnvsimError, match=r"topology\.rooms: not an editable knob"):
        apply_changes(LAKE, START, [change("topology.rooms", "up")])
    with pytest.raises(EnvsimError, match="shaping: not an editable knob"):
        apply_changes(LAKE.editing(["topology"]), START, [change("shaping", "set", 0.2)])


def test_steps_and_numbers_reach_the_configuration() -> None:
    changes = [
        change("topology.rooms", "up"),
        change("agents.3", "set", 1.0),
        change("success_rate", "down"),
        change("shaping", "set", 0.25),
    ]
    after = apply_changes(OPEN, START, changes)
    assert values(OPEN, after)["topology.rooms"] == pytest.approx(0.05 / 1.05, abs=1e-6)
    assert values(OPEN, after)["agents.3"] == values(OPEN, after)["agents.2"] == 0.5
    assert (after.success_rate, after.shaping) == (0.99, 0.25)
    said = describe_changes(OPEN, START, after)
    assert "agents.3 0.000 -> 0.500" in said
    assert "success_rate 1.000 -> 0.990" in said
    assert all(line.partition(".")[0] in {"agents", "topology", "success_rate 1", "shaping 0"} for line in said)
    with pytest.raises(EnvsimError, match=r"shaping: value 0.4 is outside \[0, 0.3\]"):
        apply_changes(OPEN, START, [change("shaping", "set", 0.4)])


def test_schemas_and_checks_of_the_roles_list_the_open_paths() -> None:
    for style in ("compact", "full"):
        schema = output_schema(Critique, OPEN, START, style=style)
        paths = schema["properties"]["conditions"]["items"]["properties"]["path"]["enum"]
        assert {"topology.rooms", "success_rate", "5x5.data_ratio"} <= set(paths)
        closed = output_schema(Critique, LAKE, START, style=style)
        assert "topology.rooms" not in str(closed)
    wish = Critique(reason="slow down", verdict="revise", conditions=[change("shaping", "down")])
    assert semantic_checks(OPEN, START)(wish) == []
    assert semantic_checks(LAKE, START)(wish)


def test_a_critics_conditions_on_open_knobs_are_checked() -> None:
    base = OPEN.with_values(START, {"topology.rooms": 1.0, "topology.corridor": 0.5})
    proposal = apply_changes(OPEN, base, [change("topology.warehouse", "set", 1.0), change("shaping", "up")])
    # The others gave way in proportion: that is being kept. What was raised is not.
    assert check_conditions(OPEN, base, proposal, [change("topology.corridor", "keep")]) == []
    assert len(check_conditions(OPEN, base, proposal, [change("topology.warehouse", "keep")])) == 1
    less = apply_changes(OPEN, base, [change("topology.warehouse", "set", 0.2)])
    assert (
        check_conditions(OPEN, proposal, less, [change("topology.warehouse", "down"), change("shaping", "down")]) == []
    )
    assert len(check_conditions(OPEN, proposal, proposal, [change("shaping", "down")])) == 1
    assert check_conditions(OPEN, base, base, [change("success_rate", "up"), change("shaping", "down")]) == []


def gate(name: str, proposed: Any, current: Any = START) -> Any:
    given = OPEN.generate(START, 32, 3, split="probe").measurement
    tasks = [ProbeTask(id=str(i), cell=cell, successes=4, samples=8) for i, cell in enumerate(LAKE.cells() * 2)]
    context = GateContext(OPEN, current, given.difficulty, given, proposed=proposed, measured=given, probe=tasks)
    return next(finding for finding in run_gates(context).findings if finding.gate == name)


@pytest.mark.parametrize("group", ["agents", "placement", "topology", "goals"])
def test_a_mixture_does_not_jump_from_one_end_to_the_other(group: str) -> None:
    paths = mixtures(OPEN.knobs(START), LAKE.cells())[group]
    first, last = paths[0], paths[-1]
    end = OPEN.with_values(START, {first: 0.0 if group != "agents" else 1e-6, last: 1.0})
    if group == "goals":
        end = OPEN.with_values(START, {"goals.1": 0.0, "goals.2": 1.0})
    leap = gate("G6", end)
    assert not leap.passed
    assert leap.figure == pytest.approx(1, abs=1e-5)
    assert f"100% of {group} moves to other choices (at most 50%)" in leap.reason
    assert leap.cells == []
    half = gate("G6", OPEN.with_values(START, {last: 1.0}))
    assert half.passed
    assert half.figure == pytest.approx(0.5, abs=1e-5)
    back = gate("G6", START, current=end)
    assert not back.passed, "neither does it jump back"


def test_the_trust_region_without_open_mixtures_is_that_of_the_cells() -> None:
    moved = gate("G6", OPEN.with_values(START, {"3x3.data_ratio": 0.5, "shaping": 0.3, "success_rate": 0.95}))
    assert moved.passed
    assert moved.figure == pytest.approx(0.5 / 1.375 - 0.125, abs=1e-5)
    assert "moves to other choices" not in moved.reason


def design(environment: Environment, seed: int, config: Any = START) -> Proposal:
    seen = evidence_of(environment, RATES)
    context = DesignContext(environment, config, seen, teacher.diagnose(seen), stage=seed, seed=seed)
    return get_designer("random").propose(context)


def test_the_random_designer_draws_what_is_open_and_stays_in_the_trust_region() -> None:
    touched: set[str] = set()
    for seed in range(30):
        proposal = design(OPEN, seed)
        assert proposal == design(OPEN, seed)
        assert len(proposal.changes) <= MOST_CHANGES
        closed = design(LAKE, seed).changes
        assert proposal.changes[: len(closed)] == closed, "what is open changes nothing of the rest"
        assert len(proposal.changes) > len(closed)
        after = apply_changes(OPEN, START, proposal.changes)
        old, new = values(OPEN, START), values(OPEN, after)
        for group, paths in mixtures(old, LAKE.cells()).items():
            assert sum(abs(new[path] - old[path]) for path in paths) / 2 <= 0.5, group
        touched |= {change.path.partition(".")[0] for change in proposal.changes[len(closed) :]}
    assert touched == set(LAKE.knob_groups)


def noted(rooms: float) -> Measurement:
    """Half of the maps are 3x3, where there are no rooms; the others have twice as many as the whole."""
    measured = LAKE.generate(START, 16, 1).measurement
    return measured.model_copy(
        update={
            "share": {"3x3": 0.5, "4x4": 0.5},
            "quantities": {
                "3x3": {"hole_ratio": 0.2, "agents": 2, "topology.rooms": 0.0, "success_rate": 0.97},
                "4x4": {"hole_ratio": 0.2, "agents": 2, "topology.rooms": 2 * rooms, "success_rate": 0.97},
            },
        }
    )


def open_evidence() -> Evidence:
    config = OPEN.with_values(START, {"topology.rooms": 1.0, "shaping": 0.1})
    training = training_evidence(OPEN, stage=3, measured=noted(0.5625), success=0.8125, progress=0.3125)
    return evidence_of(LAKE, RATES, open_knobs=shared_knobs(OPEN, OPEN.knobs(config)), training=training)


def test_evidence_says_what_was_asked_for_and_what_was_generated() -> None:
    seen = open_evidence()
    assert seen.open_knobs["topology.rooms"] == 0.5
    assert seen.open_knobs["shaping"] == 0.1
    assert seen.training is not None
    assert (seen.training.n, seen.training.stage) == (16, 3)
    assert seen.training.knobs["topology.rooms"] == 0.5625
    assert seen.training.knobs["topology.random"] == pytest.approx(0.4375), "the default choice has the rest"
    assert seen.training.knobs["success_rate"] == pytest.approx(0.97)
    assert seen.training.knobs["agents.2"] == 1, "what is not measured is as by default"
    assert set(seen.training.knobs) >= set(seen.open_knobs)
    assert Evidence.model_validate_json(seen.model_dump_json()) == seen


def test_a_run_that_opens_nothing_has_the_evidence_of_ever() -> None:
    measured = LAKE.generate(START, 16, 1).measurement
    assert training_evidence(LAKE, stage=0, measured=measured, success=None, progress=None) is None
    assert shared_knobs(LAKE, LAKE.knobs(START)) == {}
    assert not {"open_knobs", "training"} & set(evidence_of(LAKE, RATES).model_dump(mode="json"))


def test_a_noisy_initial_configuration_is_told_of_though_nothing_is_open() -> None:
    found = training_evidence(LAKE, stage=0, measured=noted(0.25), success=0.9, progress=None)
    assert found is not None
    assert found.knobs == pytest.approx(
        {
            "topology.random": 0.75,
            "topology.rooms": 0.25,
            "topology.corridor": 0.0,
            "topology.warehouse": 0.0,
            "success_rate": 0.97,
        }
    )


def rendered(roles: dict[str, RoleSpec], name: str, style: Style, evidence: Evidence) -> str:
    role = roles[name]
    given = {
        "evidence": evidence,
        "diagnosis": teacher.diagnose(evidence),
        "proposal": Proposal(rationale="r", changes=[change("topology.rooms", "up")], predicted={}),
        "gate_report": GateReport(passed=True, findings=[], probe={}, probe_tokens=0)
        if role.writes == "critique"
        else None,
        "conditions": [],
    }
    messages = render_messages(role, style, {key: given[key] for key in role.inputs if key in given})
    return "\n".join(message["content"] for message in messages)


@pytest.mark.parametrize("name", ROLES)
def test_full_prompts_show_the_open_knobs_and_what_training_was_worth(roles: dict[str, RoleSpec], name: str) -> None:
    text = rendered(roles, name, "full", open_evidence())
    assert "topology.rooms" in text
    assert "0.562" in text, "the share that was really generated"
    if name != "safety_critic":
        assert "0.812" in text, "the success of its valid answers"
        assert "0.312" in text, "their progress"


@pytest.mark.parametrize("style", ["compact", "full"])
@pytest.mark.parametrize("name", ROLES)
def test_prompts_without_open_knobs_do_not_speak_of_them(roles: dict[str, RoleSpec], name: str, style: Style) -> None:
    text = rendered(roles, name, style, evidence_of(LAKE, RATES))
    for word in (
        "knob of all",
        "Knobs of all",
        "Knobs of the list",
        "the list under it",
        "knob topology",
        "generated in",
    ):
        assert word not in text


@pytest.mark.parametrize("name", ROLES)
def test_a_small_models_prompts_stay_as_it_learnt_them(roles: dict[str, RoleSpec], name: str) -> None:
    """The embedded model answers in a form of its own; lines that it has never seen cost it that form."""
    plain, opened = evidence_of(LAKE, RATES), open_evidence()
    assert rendered(roles, name, "compact", opened) == rendered(roles, name, "compact", plain)
