"""Roles of a user in the graph: whatever their files say, nothing leads around the gates or the critic."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.graph import END, START
from rich.console import Console
from role_sets import HISTORIAN, HISTORIAN_PROMPT, with_historian, write_role

from agents import role_checks
from agents.places import RESERVED, PlaceCycle, stage_order, without_disabled
from agents.role_checks import set_errors
from agents.roles import load_roles
from agents.rolespec import ExternalModel, RoleSpec
from graph import inputs
from graph.build import CODE, NODES_A_STAGE, build
from graph.prepare import prepare
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings, SettingsError
from graph.speaking import played_by
from graph.state import RunState
from graph.summary import token_table, tokens_read
from graph.tables import time_table
from graph.timing import CATEGORIES, Clock
from graph.toolbox import evaluated
from graph.work import Work

SHIPPED = load_roles()
COUNTERS = {"safety_critic", "accept_or_roll_back"}
"""The nodes that count revisions and stages."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, profile: Path) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile)))
    return new_work(prepared, RunDir(tmp_path_factory.mktemp("run")), Console(file=io.StringIO()), Clock())


def drawn(roles: dict[str, RoleSpec], work: Work) -> nx.DiGraph:
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_edges_from((edge.source, edge.target) for edge in build(roles, work).compile().get_graph().edges)
    return graph


def assert_sound(roles: dict[str, RoleSpec], work: Work) -> None:
    """What langgraph does not check itself, read from what it compiled."""
    graph = drawn(roles, work)
    assert set(graph) == {START, END, *CODE, *roles}
    assert nx.descendants(graph, START) == set(graph) - {START}
    assert nx.ancestors(graph, END) == set(graph) - {END}
    designer, critic = (
        next(name for name, role in roles.items() if role.writes == key) for key in ("proposal", "critique")
    )
    written_by_a_person = ("gates", "approval")
    assert graph.has_edge(*written_by_a_person)
    for guard in ("gates", critic, "approval"):
        without = nx.DiGraph(graph.subgraph(set(graph) - {guard}))
        if guard == critic:
            without.remove_edge(*written_by_a_person)
        assert "train" not in nx.descendants(without, designer), f"a proposal reaches training around {guard}"
    for cycle in nx.simple_cycles(graph):
        # Every edit takes a person's word, and a round of its own.
        assert {critic, "accept_or_roll_back", "approval"} & set(cycle), f"{cycle} passes no counter"
    compiled = build(roles, work)
    static = {source for source, _ in compiled.edges}
    assert not static & set(compiled.branches), "a router with a static edge beside it runs both"


def test_the_names_of_code_are_reserved() -> None:
    assert set(RESERVED) == set(CODE)
    assert len(CODE) + role_checks.MOST_ROLES == NODES_A_STAGE


def test_the_shipped_roles_are_sound(work: Work) -> None:
    assert_sound(SHIPPED, work)


NAMES = ("alpha", "beta", "gamma")
PLACES = (*SHIPPED, *NAMES, "evidence", "gates", "approval", "settle", "dataset")


@st.composite
def role_sets(draw: st.DrawFn) -> dict[str, RoleSpec]:
    """The shipped roles with places of their own, and up to three more, anywhere."""
    roles = {}
    for name, role in SHIPPED.items():
        after = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2))
        before = draw(st.lists(st.sampled_from(PLACES), max_size=1))
        place = {"after": tuple(after), "before": tuple(before)} if draw(st.booleans()) else {}
        enabled = draw(st.booleans()) if name in ("failure_analyst", "trainer") else True
        roles[name] = role.model_copy(
            update={"place": role.place.model_copy(update=place), "enabled": True} if enabled else {"enabled": False}
        )
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        place = {"after": draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2))}
        place["before"] = draw(st.lists(st.sampled_from(PLACES), max_size=2))
        data = HISTORIAN | {"name": name, "writes": f"{name}_note", "place": place}
        roles[name] = RoleSpec.model_validate(data)
    return roles


@given(every=role_sets())
@settings(max_examples=400, deadline=None)
def test_no_places_lead_around_the_gates_or_the_critic(work: Work, every: dict[str, RoleSpec]) -> None:
    roles = without_disabled(every)
    if set_errors(roles, every):
        return
    order = stage_order(roles)
    assert_sound({name: roles[name] for name in order if name in roles}, work)


@given(every=role_sets())
@settings(max_examples=200, deadline=None)
def test_every_set_has_an_order_or_a_cycle_that_is_named(every: dict[str, RoleSpec]) -> None:
    roles = without_disabled(every)
    try:
        order = stage_order(roles)
    except PlaceCycle as cycle:
        first, *_, last = cycle.nodes
        assert first == last
        return
    for name, role in roles.items():
        assert all(order.index(other) < order.index(name) for other in role.place.after if other in order)
        assert all(order.index(other) > order.index(name) for other in role.place.before if other in order)


def test_the_order_depends_on_no_luck() -> None:
    names = [*SHIPPED]
    for seed in range(20):
        shuffled = names[:]
        random.Random(seed).shuffle(shuffled)
        assert stage_order({name: SHIPPED[name] for name in shuffled}) == stage_order(SHIPPED)


def settings_of(profile: Path, roles: Path, **changes: Any) -> RunSettings:
    return RunSettings(environment="parity:Parity", profile=str(profile), roles=str(roles), **changes)


def test_bad_roles_are_bad_input(tmp_path: Path, profile: Path) -> None:
    write_role(tmp_path, "safety_critic", enabled=False)
    with pytest.raises(SettingsError, match="no enabled role writes 'critique', which the loop needs"):
        prepare(settings_of(profile, tmp_path))


def test_the_set_of_roles_is_part_of_a_runs_identity(tmp_path: Path, profile: Path) -> None:
    folder = with_historian(tmp_path / "roles")
    before = prepare(settings_of(profile, folder)).identity["roles_sha256"]
    (folder / "prompts" / "curriculum_historian.j2").write_text(HISTORIAN_PROMPT + "more")
    assert prepare(settings_of(profile, folder)).identity["roles_sha256"] != before


def test_a_python_roles_code_is_part_of_it_too(tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    code = tmp_path / "own_role_of_a_test.py"
    code.write_text("def note(inputs):\n    return {'text': 'one'}\n")
    data = {key: value for key, value in HISTORIAN.items() if key not in ("prompt", "output")}
    write_role(
        tmp_path / "roles",
        "curriculum_historian",
        **data | {"kind": "python", "entrypoint": "own_role_of_a_test:note", "output": "Note"},
    )
    before = prepare(settings_of(profile, tmp_path / "roles")).identity["roles_sha256"]
    code.write_text(code.read_text().replace("one", "two"))
    assert prepare(settings_of(profile, tmp_path / "roles")).identity["roles_sha256"] != before


def test_settings_name_the_directory(tmp_path: Path, profile: Path) -> None:
    folder = with_historian(tmp_path / "roles")
    roles = prepare(settings_of(profile, folder)).roles
    assert list(roles)[:3] == ["curriculum_historian", "failure_analyst", "config_designer"]
    assert yaml.safe_load((folder / "config_designer.yaml").read_text()).keys() == {"inputs"}


READERS = {
    "first": {"before": ["config_designer"]},
    "second": {"after": ["config_designer"], "before": ["gates"]},
    "third": {"after": ["gates"], "before": ["safety_critic"]},
    "fourth": {"after": ["safety_critic"], "before": ["approval"]},
    "fifth": {"after": ["settle"]},
}
"""A role at every part of a stage."""


def test_a_role_reads_what_was_said_before_it_in_its_round(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "read_evidence", lambda *_: None)
    prompt = "{{ evidence.stage }}{{ gate_report }}{{ critique }}{{ conditions }}"
    keys = ["evidence", "gate_report", "critique", "conditions"]
    for name, place in READERS.items():
        late = name in ("third", "fourth", "fifth")
        data = HISTORIAN | {"name": name, "writes": f"{name}_note", "place": place, "prompt": f"{name}.j2"}
        data["inputs"] = [*keys, *(["proposal", "first_note", "second_note"] if late else [])]
        more = "{{ proposal.rationale }}{{ first_note }}{{ second_note }}" if late else ""
        write_role(tmp_path / "roles", name, prompt + more, **data)
    prepared = prepare(settings_of(profile, tmp_path / "roles"))
    run = RunDir(tmp_path / "run")
    work = new_work(prepared, run, Console(file=io.StringIO()), Clock())
    order = [name for name in stage_order(prepared.roles) if name in READERS]
    assert order == list(READERS)
    run.write("initial.json", work.environment.default_config().model_dump(mode="json"))
    run.write("stages/001/notes/first_note.json", {"parsed": {"trend": "flat"}})
    for revision in (0, 1):
        folder = f"stages/001/proposals/{revision}"
        proposal = {"rationale": f"proposal {revision}", "changes": [], "predicted": {}}
        run.write(f"{folder}/proposal.json", {"parsed": proposal})
        run.write(f"{folder}/gates.json", {"passed": False, "findings": [], "probe": {}, "probe_tokens": revision})
        critique = {"reason": f"critique {revision}", "verdict": "revise", "conditions": []}
        run.write(f"{folder}/critique.json", {"parsed": critique})
        run.write(f"{folder}/notes/second_note.json", {"parsed": {"trend": f"round {revision}"}})
    state = RunState(stage=1, revision=1, review="revise", config="initial.json")
    seen = {name: inputs.role_inputs(work, state, prepared.roles[name]) for name in READERS}
    assert [one["gate_report"].probe_tokens for one in seen.values()] == [0, 0, 1, 1, 1]
    assert [one["critique"].reason[-1] for one in seen.values()] == ["0", "0", "0", "1", "1"]
    assert [one["proposal"] and one["proposal"].rationale[-1] for one in seen.values()] == [None, "1", "1", "1", "1"]
    assert [one.get("first_note") for one in seen.values()] == [None, None, *[{"trend": "flat"}] * 3]
    assert [one.get("second_note") for one in seen.values()] == [None, None, *[{"trend": "round 1"}] * 3]


def test_tokens_of_notes_and_of_tools_are_booked_once(work: Work) -> None:
    """Both lie in files, so that a resumed run counts nothing twice."""
    before = token_table(work.run, [])
    note = {"by": "curriculum_historian", "tokens": 7, "tool_calls": [{"tokens": 40}, {"tokens": 2}]}
    note["cost"] = {"input_tokens": 90, "output_tokens": 7}
    for place in ("stages/001/notes", "stages/001/proposals/0/notes"):
        work.run.write(f"{place}/curriculum_history.json", note)
        work.run.write(f"{place}/curriculum_history.tools.json", {"results": {}, "tool_calls": [{"tokens": 100}]})
        work.run.write(f"{place}/made_from.json", {"curriculum_history.json": "0"})
    after = token_table(work.run, [])
    assert after["roles"] - before["roles"] == 2 * 7
    assert tokens_read(work.run) == 2 * 90
    assert after["probes"] - before["probes"] == 2 * 142


def test_the_closing_table_tells_what_roles_read_and_what_they_wrote() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(time_table(dict.fromkeys(CATEGORIES, 1.0), {"training": 9, "roles": 14}, 180))
    rows = {line.strip(" │").partition("│")[0].strip(): line for line in console.export_text().splitlines()}
    assert " 14 " in rows["tokens generated: roles"]
    assert " 180 " in rows["tokens read: roles"]


@pytest.mark.parametrize("sealed", ["test", "benchmark", "probe"])
def test_a_runs_tools_evaluate_open_sets_alone(work: Work, sealed: str) -> None:
    with pytest.raises(ValueError, match=f"the set '{sealed}' is sealed to roles"):
        evaluated(work, RunState(stage=1), sealed)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("inherit", {}),
        ("base", {"model": "base"}),
        (
            ExternalModel(base_url="http://localhost:1/v1", name="judge"),
            {"model": "judge at http://localhost:1/v1"},
        ),
    ],
)
def test_an_answer_says_which_other_model_gave_it(model: str | ExternalModel, told: dict[str, str]) -> None:
    role = SHIPPED["safety_critic"].model_copy(update={"model": model})
    assert played_by(role) == told
