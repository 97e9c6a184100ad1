"""Role files: what is shipped loads, and every fault is refused with a line that says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.__main__ import main
from agents.examples import example_inputs
from agents.places import stage_order
from agents.render import render_messages
from agents.role_checks import MOST_ROLES
from agents.roles import RoleError, load_roles, roles_hash
from agents.rolespec import PACKAGE, ExternalModel, RoleSpec
from envsim import registry as environments
from envsim.api import Message, Style

LAKE = environments.get("lake")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "roles"
    shutil.copytree(PACKAGE / "roles", target)
    return target


def edit(folder: Path, role: str, **changes: Any) -> None:
    file = folder / f"{role}.yaml"
    data = yaml.safe_load(file.read_text())
    data.update(changes)
    file.write_text(yaml.safe_dump(data))


def faults(folder: Path) -> str:
    with pytest.raises(RoleError) as caught:
        load_roles(folder, environment=LAKE)
    return str(caught.value)


def test_shipped_roles_stand_in_the_order_of_their_places(roles: dict[str, RoleSpec]) -> None:
    assert list(roles) == ["failure_analyst", "config_designer", "safety_critic", "trainer"]
    assert {role.on_failure for role in roles.values()} == {"rule"}


def test_a_copy_of_the_shipped_roles_is_the_same_set(folder: Path, roles: dict[str, RoleSpec]) -> None:
    assert roles_hash(load_roles(folder)) == roles_hash(roles)


def test_the_hash_sees_a_changed_prompt(folder: Path, roles: dict[str, RoleSpec]) -> None:
    own = folder / "prompts" / "compact"
    own.mkdir(parents=True)
    (own / "trainer.system.j2").write_text("another budget")
    assert roles_hash(load_roles(folder)) != roles_hash(roles)


@pytest.mark.parametrize(
    ("role", "changes", "expected"),
    [
        ("trainer", {"instrutions": "x"}, "trainer.yaml: instrutions: unknown key"),
        ("trainer", {"inptus": []}, "did you mean 'inputs'"),
        ("trainer", {"limits": {"max_repair": 1}}, "limits.max_repair: unknown key; did you mean 'max_repairs'"),
        ("trainer", {"limits": {"max_visits_per_stage": 2}}, "limits.max_visits_per_stage: unknown key"),
        ("trainer", {"limits": {"max_repairs": 99}}, "less than or equal to 5, got 99"),
        ("trainer", {"name": "Trainer One"}, "String should match pattern"),
        ("trainer", {"name": "coach"}, "differs from the file name; call the file coach.yaml"),
        ("trainer", {"schema_version": 2}, "schema_version: Input should be 1, got 2"),
        ("trainer", {"kind": "shell"}, "kind: Input should be 'llm' or 'python', got 'shell'"),
        ("trainer", {"model": "gpt"}, "got 'gpt'"),
        ("trainer", {"model": {"base_url": "ftp://x", "name": "m"}}, "got 'ftp://x'"),
        ("trainer", {"on_failure": "ignore"}, "on_failure: Input should be 'rule', 'stop' or 'skip', got 'ignore'"),
        ("trainer", {"approval": "maybe"}, "approval: Input should be 'never', 'on_doubt' or 'always', got 'maybe'"),
        (
            "trainer",
            {"inputs": ["evidenec", "proposal", "bounds"]},
            "unknown input 'evidenec'; did you mean 'evidence'",
        ),
        ("trainer", {"inputs": ["evidence", "evidence"]}, "'evidence' is listed twice"),
        ("trainer", {"inputs": ["evidence", "proposal"]}, "uses 'bounds', which the role does not declare"),
        ("trainer", {"inputs": ["evidence", "proposal", "bounds", "knobs"]}, "does not use the declared input 'knobs'"),
        ("trainer", {"output": "Budgte"}, "unknown output 'Budgte'; did you mean 'Budget'"),
        ("trainer", {"writes": "proposal"}, "'proposal' cannot hold a Budget; expected 'budget'"),
        ("trainer", {"tools": ["launch_stag"]}, "unknown tool 'launch_stag'; did you mean 'launch_stage'"),
        ("trainer", {"prompt": {"system": "no.system.j2", "user": "trainer.user.j2"}}, "no.system.j2: no such file"),
        ("trainer", {"place": {"after": ["safety_critc"]}}, "'safety_critc'; did you mean 'safety_critic'"),
        ("failure_analyst", {"place": {"after": ["trainer"]}}, "wait for one another"),
        (
            "safety_critic",
            {"enabled": False},
            "no enabled role writes 'critique', which the loop needs; safety_critic would, but enabled is false there",
        ),
        ("config_designer", {"enabled": False}, "no enabled role writes 'proposal', which the loop needs"),
        ("safety_critic", {"kind": "python", "entrypoint": "json:dumps"}, "could approve blindly; expected llm"),
        ("safety_critic", {"inputs": ["evidence", "proposal"]}, "a critic must read 'gate_report'"),
        ("safety_critic", {"inputs": ["evidence", "gate_report"]}, "a critic must read 'proposal'"),
        ("safety_critic", {"on_failure": "skip"}, "the stage needs what writes 'critique'; expected rule or stop"),
        ("safety_critic", {"place": {"before": ["gates"]}}, "safety_critic -> gates"),
        ("trainer", {"place": {"before": ["safety_critic"]}}, "wait for one another"),
        ("trainer", {"place": {"after": ["evaluate"]}}, "'evaluate' is outside of where roles speak"),
        ("trainer", {"place": {"after": ["dataset"]}}, "'dataset' is outside of where roles speak"),
        ("trainer", {"place": {"before": ["evidence"]}}, "'evidence' is outside of where roles speak"),
        ("trainer", {"place": {"after": ["trainer"]}}, "names the role itself"),
        ("trainer", {"place": {"after": []}}, "place.after: Tuple should have at least 1 item"),
        ("trainer", {"place": {"routes": {"approve": "x"}}}, "a role does not route, code does by gates and critic"),
        ("trainer", {"approval": "always"}, "on a role that speaks after the approval has no effect"),
        ("trainer", {"max_repairs": 1}, "max_repairs: unknown key; it belongs under 'limits'"),
        ("trainer", {"limits": {"tools": []}}, "limits.tools: unknown key; it belongs at the top of the file"),
        ("trainer", {"entrypoint": "json:dumps"}, "only a role of kind python has one"),
        ("trainer", {"model": {"name": "m"}}, "model.base_url: missing"),
        ("safety_critic", {"tools": ["launch_stage"]}, "'launch_stage' is only for the role that writes budget"),
        ("safety_critic", {"tools": ["read_history"]}, "'read_history' could never be called; expected 1 to 16"),
        ("safety_critic", {"limits": {"max_tool_calls": 2}}, "tools lists none to be called"),
        ("safety_critic", {"tools": ["read_history"] * 2, "limits": {"max_tool_calls": 1}}, "is listed twice"),
        ("trainer", {"tools_before": [{"tool": "launch_stage"}]}, "it cannot be called before; list it in tools"),
        ("trainer", {"tools_before": [{"tool": "read_histry"}]}, "unknown tool 'read_histry'; did you mean"),
        ("trainer", {"tools_before": [{"tool": "read_history"}] * 2}, "two results are called 'read_history'"),
        (
            "trainer",
            {"tools_before": [{"tool": "read_history", "args": {"lats": 1}}]},
            "read_history: args.lats: unknown key; did you mean 'last'",
        ),
        (
            "trainer",
            {"tools_before": [{"tool": "read_history", "args": {"last": 0}}]},
            "read_history: args.last: Input should be greater than or equal to 1, got 0",
        ),
        ("trainer", {"tools_before": [{"tool": "read_history"}]}, "does not use 'tools', the results of tools_before"),
        (
            "trainer",
            {"tools_before": [{"tool": "probe_policy", "args": {"n": 200}}] * 2},
            "tools_before: 400 answers of the policy are asked for (1 a task), and limits.max_rollouts is 256; lower n",
        ),
        (
            "failure_analyst",
            {"tools_before": [{"tool": "compare_configs", "args": {"second": {"base": "proposed"}}}]},
            "args.second.base: there is no 'proposed' configuration before the gates have made one",
        ),
        ("trainer", {"tools_before": [{"tool": "read_history"}] * 17}, "tools_before: Tuple should have at most 16"),
        ("config_designer", {"place": {"after": ["evidence"]}}, "nobody placed before it writes 'diagnosis'"),
    ],
)
def test_a_fault_is_refused(folder: Path, role: str, changes: dict[str, Any], expected: str) -> None:
    edit(folder, role, **changes)
    assert expected in faults(folder)


def test_a_missing_key_is_named(folder: Path) -> None:
    (folder / "coach.yaml").write_text("name: coach\ndescription: x\n")
    text = faults(folder)
    for key in ("inputs", "writes", "output", "place"):
        assert f"coach.yaml: {key}: missing" in text


HISTORIAN = {
    "name": "historian",
    "description": "Says what the stages did.",
    "prompt": "historian.j2",
    "inputs": ["evidence"],
    "writes": "history",
    "output": {
        "trend": {"type": "choice", "choices": ["rising", "flat", "falling"]},
        "lesson": {"type": "text", "max_length": 80},
    },
    "place": {"before": ["config_designer"]},
    "on_failure": "skip",
}


def new_role(folder: Path, text: str = "{{ evidence.history | json }}", **changes: Any) -> None:
    """A directory of no more than the one role and its one prompt."""
    (folder / "prompts").mkdir(parents=True)
    (folder / "historian.yaml").write_text(yaml.safe_dump(HISTORIAN | changes))
    (folder / "prompts" / "historian.j2").write_text(text)


def test_a_new_role_needs_one_yaml_and_one_prompt(tmp_path: Path) -> None:
    new_role(tmp_path)
    roles = load_roles(tmp_path)
    order = ["historian", "failure_analyst", "config_designer", "safety_critic", "trainer"]
    assert list(roles) == order
    role = roles["historian"]
    assert [message["role"] for message in example_messages(role, "compact")] == ["user"]
    assert example_messages(role, "compact") == example_messages(role, "full")
    note = role.output_type.model_validate({"trend": "flat", "lesson": "x"}, strict=True)
    assert note.model_dump() == {"trend": "flat", "lesson": "x"}


def example_messages(role: RoleSpec, style: Style) -> list[Message]:
    return render_messages(role, style, {"evidence": example_inputs(looks_back=True, later=True)["evidence"]})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"writes": "proposal"}, "'proposal' is a key of the loop and no place for a note"),
        ({"writes": "tools"}, "'tools' is a key of the loop"),
        ({"writes": "Big Key"}, "writes: String should match pattern"),
        ({"on_failure": "rule"}, "no rule can write a note in the role's place; expected skip"),
        ({"output": "Not"}, "unknown output 'Not'; did you mean 'Note'"),
        ({"output": {}}, "a form without fields"),
        ({"output": {f"f{i}": {"type": "boolean"} for i in range(13)}}, "13 fields, at most 12"),
        ({"output": {"verdict": {"type": "boolean"}}}, "cannot be called 'verdict'"),
        ({"output": {"copy": {"type": "boolean"}}}, "cannot be called 'copy'"),
        ({"output": {"A b": {"type": "boolean"}}}, "output.A b.[key]: String should match pattern"),
        ({"output": {"a": {"type": "txt"}}}, "output.a: Input tag 'txt' found using 'type' does not match"),
        ({"output": {"a": {}}}, "output.a: Unable to extract tag using discriminator 'type'"),
        ({"output": {"a": {"type": "text", "max_lenght": 3}}}, "unknown key; did you mean 'max_length'"),
        ({"output": {"a": {"type": "text", "max_length": 9999}}}, "output.a.max_length: Input should be less"),
        ({"output": {"a": {"type": "choice", "choices": ["x", "x"]}}}, "a choice is written twice"),
        ({"output": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}}, "minimum 3 exceeds maximum 2"),
        ({"output": {"a": {"type": "number", "minimum": float("nan"), "maximum": 2}}}, "output.a.minimum"),
        ({"inputs": ["evidence", "history"]}, "'history' is what the role itself writes"),
        ({"prompt": None}, "prompt: missing, a role of kind llm is asked by one"),
        ({"prompt": "../x.j2"}, "prompt.user: String should match pattern"),
        ({"prompt": "histrian.j2"}, "histrian.j2: no such file"),
        ({"kind": "python"}, "prompt: a role of kind python has none"),
        ({"place": {"after": ["safety_critic"], "before": ["config_designer"]}}, "wait for one another"),
        ({"inputs": ["evidence", "proposal"]}, "does not use the declared input 'proposal'"),
    ],
)
def test_a_fault_of_a_new_role_is_refused(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    new_role(tmp_path, **changes)
    assert expected in faults(tmp_path)


def test_a_role_reads_only_what_was_written_before_it(tmp_path: Path) -> None:
    new_role(tmp_path, text="{{ evidence.stage }} {{ proposal.rationale }}", inputs=["evidence", "proposal"])
    assert "nobody placed before it writes 'proposal'; 'config_designer' does" in faults(tmp_path)


def read_by_the_trainer(folder: Path, prompt: str) -> None:
    (folder / "trainer.yaml").write_text("inputs: [evidence, proposal, bounds, history]\n")
    (folder / "prompts" / "trainer.user.j2").write_text(f"{TRAINER} {prompt}")


def test_a_note_is_read_by_a_role_that_declares_it(tmp_path: Path) -> None:
    new_role(tmp_path)
    read_by_the_trainer(tmp_path, "{% if history %}{{ history.trend }}{% endif %}")
    assert load_roles(tmp_path)["trainer"].inputs[-1] == "history"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("{{ history.trend }}", "has no attribute 'trend'; rendered with example inputs of a first round, in which"),
        ("{% if history %}{{ history.tend }}{% endif %}", "has no attribute 'tend'; rendered with example inputs of a"),
    ],
)
def test_a_template_that_expects_more_of_a_note_is_refused(tmp_path: Path, prompt: str, expected: str) -> None:
    new_role(tmp_path)
    read_by_the_trainer(tmp_path, prompt)
    assert expected in faults(tmp_path)


def test_a_note_that_nobody_writes_is_refused(tmp_path: Path) -> None:
    new_role(tmp_path, enabled=False)
    read_by_the_trainer(tmp_path, "{{ history }}")
    assert "'history' is written by historian, which is not enabled" in faults(tmp_path)
    (tmp_path / "historian.yaml").unlink()
    assert "unknown input 'history'" in faults(tmp_path)


def test_a_place_after_its_reader_is_refused(tmp_path: Path) -> None:
    new_role(tmp_path, place={"after": ["trainer"]})
    read_by_the_trainer(tmp_path, "{{ history }}")
    assert "nobody placed before it writes 'history'; 'historian' does, so write place: {after: [historian]}" in faults(
        tmp_path
    )


@pytest.mark.parametrize("name", ["failure_analyst", "trainer"])
def test_a_role_that_the_loop_can_do_without_is_turned_off(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.yaml").write_text("enabled: false\n")
    assert name not in load_roles(tmp_path)


def test_whoever_stood_beside_a_role_that_is_off_moves_up(tmp_path: Path) -> None:
    new_role(tmp_path, place={"after": ["failure_analyst"]})
    (tmp_path / "failure_analyst.yaml").write_text("enabled: false\n")
    roles = load_roles(tmp_path)
    assert next(iter(roles)) == "historian"
    assert roles["historian"].place.after == ("evidence",)


def test_a_shipped_role_is_changed_by_what_differs(tmp_path: Path, roles: dict[str, RoleSpec]) -> None:
    model = {"base_url": "http://localhost:8000/v1", "name": "judge"}
    (tmp_path / "safety_critic.yaml").write_text(yaml.safe_dump({"model": model, "limits": {"max_repairs": 1}}))
    changed = load_roles(tmp_path)
    assert list(changed) == list(roles)
    critic, shipped = changed["safety_critic"], roles["safety_critic"]
    assert critic.model == ExternalModel(**model)
    assert critic.limits == shipped.limits.model_copy(update={"max_repairs": 1})
    for name in ("failure_analyst", "config_designer", "trainer"):
        assert changed[name].model_dump() == roles[name].model_dump()
    assert roles_hash(changed) != roles_hash(roles)


def test_a_place_never_leads_around_the_gates_or_the_critic(tmp_path: Path) -> None:
    for name, after in (("trainer", "evidence"), ("safety_critic", "evidence")):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"place": {"after": [after]}}))
    order = stage_order(load_roles(tmp_path))
    wanted = ["config_designer", "gates", "safety_critic", "approval", "settle", "trainer", "dataset"]
    assert [name for name in order if name in wanted] == wanted


def test_a_critic_may_be_replaced_by_one_that_reads(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "judge.j2").write_text("{{ proposal.rationale }} {{ gate_report.passed }}")
    (tmp_path / "safety_critic.yaml").write_text("enabled: false\n")
    judge = {"name": "judge", "description": "Judges.", "prompt": "judge.j2", "inputs": ["proposal", "gate_report"]}
    judge |= {"writes": "critique", "output": "Critique", "place": {"after": ["evidence"]}, "model": "base"}
    (tmp_path / "judge.yaml").write_text(yaml.safe_dump(judge))
    order = stage_order(load_roles(tmp_path))
    assert order[order.index("gates") : order.index("approval")] == ["gates", "judge"]


@pytest.mark.parametrize(
    ("entrypoint", "expected"),
    [
        ("no_such_module:f", "importing 'no_such_module' failed: ModuleNotFoundError"),
        ("json:dupms", "'json' has nothing of that name, expected a function"),
        ("json:JSONDecoder", "'json' has type, expected a function"),
        ("json:detect_encoding", None),
        ("operator:add", "'operator' has builtin_function_or_method, expected a function"),
        ("shutil:copy", "takes ['src', 'dst'], expected one argument"),
        ("nonsense", "entrypoint: String should match pattern"),
        (None, "entrypoint: missing, expected package.module:function"),
    ],
)
def test_an_entrypoint_is_looked_up(tmp_path: Path, entrypoint: str | None, expected: str | None) -> None:
    data = {name: value for name, value in HISTORIAN.items() if name != "prompt"} | {"kind": "python"}
    (tmp_path / "historian.yaml").write_text(yaml.safe_dump(data | {"entrypoint": entrypoint}))
    if expected is None:
        assert load_roles(tmp_path)["historian"].entrypoint == entrypoint
    else:
        assert expected in faults(tmp_path)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("coach.yml", "coach.yml: would not be read; role files lie at the top and end in .yaml: coach.yaml"),
        ("prompts/full/trainer.usr.j2", "prompts/full/trainer.usr.j2: no role has a prompt of this name"),
        ("prompts/ful/trainer.user.j2", "prompts/ful/trainer.user.j2: would not be read; prompts lie in"),
        ("prompts/full/trainer.user.jinja", "prompts/full/trainer.user.jinja: no role has a prompt of this name"),
        ("prompts/coach.yaml", "prompts/coach.yaml: no role has a prompt of this name"),
        ("coach.j2", "coach.j2: would not be read; prompts lie in prompts/, call it prompts/coach.j2"),
        ("prompt/coach.jinja", "prompt/coach.jinja: would not be read; prompts lie in prompts/"),
        ("roles/coach.yaml", "roles/coach.yaml: would not be read; role files lie at the top and end in .yaml"),
        ("coach.YAML", "coach.YAML: would not be read; role files lie at the top and end in .yaml: coach.yaml"),
    ],
)
def test_a_file_that_nobody_would_read_is_refused(tmp_path: Path, file: str, expected: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("x")
    (tmp_path / "prompts").mkdir(exist_ok=True)
    assert expected in faults(tmp_path)


def test_what_is_plainly_no_role_is_left_alone(tmp_path: Path) -> None:
    new_role(tmp_path)
    for file in ("README.md", "my_code.py", ".hidden.yaml", ".git/x.yml", "prompts/.old.j2", "key"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("x")
    assert "historian" in load_roles(tmp_path)


def test_an_empty_directory_is_most_likely_the_wrong_one(tmp_path: Path) -> None:
    assert "no *.yaml file and no prompts/ in it" in faults(tmp_path)


def test_too_many_roles_are_refused(tmp_path: Path) -> None:
    new_role(tmp_path)
    for number in range(MOST_ROLES):
        data = HISTORIAN | {"name": f"h{number}", "writes": f"w{number}"}
        (tmp_path / f"h{number}.yaml").write_text(yaml.safe_dump(data))
    assert f"{MOST_ROLES + 5} roles are enabled, at most {MOST_ROLES}" in faults(tmp_path)


def test_results_of_tools_are_read_in_the_template(tmp_path: Path) -> None:
    new_role(
        tmp_path,
        text="{{ evidence.stage }} {{ tools.past }}",
        tools_before=[{"tool": "read_history", "name": "past"}],
    )
    role = load_roles(tmp_path)["historian"]
    inputs = {"evidence": example_inputs(looks_back=True, later=True)["evidence"], "tools": {"past": "{}"}}
    assert render_messages(role, "full", inputs)[0]["content"].endswith(" {}")
    (tmp_path / "prompts" / "historian.j2").write_text("{{ evidence.stage }} {{ tools.pst }}")
    assert "has no attribute 'pst'" in faults(tmp_path)


@pytest.mark.parametrize(
    ("tool", "args", "expected"),
    [
        ("list_failures", {"cell": "33x3"}, "list_failures: args.cell: unknown cell '33x3'; did you mean '3x3'"),
        ("list_failures", {"outcome": "drowned"}, "args.outcome: unknown outcome 'drowned'; known: "),
        ("list_failures", {"outcome": "vertex_conflikt"}, "did you mean 'vertex_conflict'"),
        ("measure_config", {"values": {"3x3.holes": 0.1}}, "args.values: unknown knob '3x3.holes'; did you mean '3x3."),
        ("measure_config", {"values": {"3x3.hole_ratio": 0.9}}, "3x3.hole_ratio = 0.9 is out of bounds; expected 0 to"),
        ("probe_policy", {"values": {"x": 1}}, "args.values: unknown knob 'x'; known: "),
        ("compare_configs", {"second": {"values": {"3x3.holes": 0.1}}}, "args.second.values: unknown knob '3x3.holes'"),
        (
            "measure_config",
            {"values": {f"{cell}.data_ratio": 0.0 for cell in LAKE.cells()}},
            "args.values: ",
        ),
    ],
)
def test_a_fixed_call_that_no_stage_could_answer_is_refused(
    tmp_path: Path, tool: str, args: dict[str, Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [{"tool": tool, "args": args, "name": "seen"}]
    new_role(tmp_path, text="{{ evidence.stage }} {{ tools.seen }}", tools_before=before)
    assert main(["validate", str(tmp_path)]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("- ")]
    assert expected in line.replace("seen: ", f"{tool}: ")
    assert load_roles(tmp_path), "whose cells and knobs are meant is only known with an environment"


def test_a_fixed_call_on_knobs_that_a_run_may_open_is_allowed(tmp_path: Path) -> None:
    before = [{"tool": "measure_config", "args": {"values": {"topology.rooms": 0.5}}}]
    new_role(tmp_path, text="{{ evidence.stage }} {{ tools.measure_config }}", tools_before=before)
    assert main(["validate", str(tmp_path)]) == 0
    assert "unknown knob 'topology.rooms'" in faults(tmp_path)


def test_another_environment_has_other_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [{"tool": "list_failures", "args": {"cell": "short"}}]
    new_role(tmp_path, text="{{ evidence.stage }} {{ tools.list_failures }}", tools_before=before)
    assert main(["validate", str(tmp_path), "--environment", "parity:Parity"]) == 0
    assert main(["validate", str(tmp_path)]) == 2
    assert main(["validate", str(tmp_path), "--environment", "laek"]) == 2
    assert "unknown environment 'laek'; did you mean 'lake'" in capsys.readouterr().err


def test_every_model_of_a_role_file_is_strict() -> None:
    """No key is dropped silently, wherever it stands."""
    definitions = RoleSpec.model_json_schema()["$defs"] | {"RoleSpec": RoleSpec.model_json_schema()}
    assert len(definitions) > 10
    assert [name for name, part in definitions.items() if part.get("additionalProperties") is not False] == []


def test_a_key_written_twice_is_refused(folder: Path) -> None:
    file = folder / "trainer.yaml"
    file.write_text(file.read_text() + "name: other\n")
    assert "the key 'name' is written twice" in faults(folder)


def test_a_reserved_name_is_refused(folder: Path) -> None:
    (folder / "trainer.yaml").rename(folder / "gates.yaml")
    edit(folder, "gates", name="gates")
    assert "'gates' is reserved" in faults(folder)


def test_two_writers_of_one_key_are_refused(folder: Path) -> None:
    shutil.copy(folder / "trainer.yaml", folder / "coach.yaml")
    edit(folder, "coach", name="coach")
    assert "coach and trainer: both write 'budget'" in faults(folder)


def test_a_broken_template_is_refused(folder: Path) -> None:
    own = folder / "prompts" / "full"
    own.mkdir(parents=True)
    (own / "trainer.user.j2").write_text("{% if bounds %}")
    assert "prompt full/trainer.user.j2: line 1" in faults(folder)


def test_all_faults_are_told_at_once(folder: Path) -> None:
    edit(folder, "trainer", output="X", tools=["y"])
    text = faults(folder)
    assert "unknown output 'X'" in text
    assert "unknown tool 'y'" in text


@pytest.mark.parametrize("broken", [{"description": None}, {"limits": {"max_repairs": 99}}, {"inputs": None}])
def test_faults_of_the_set_are_told_beside_those_of_a_file(tmp_path: Path, broken: dict[str, Any]) -> None:
    """A file with a fault of its own still stands somewhere, and other files have faults of their own."""
    new_role(tmp_path, place={"before": ["failure_analyst"], "after": ["trainer"]}, **broken)
    (tmp_path / "trainer.yaml").write_text("approval: sometimes\n")
    (tmp_path / "config_designer.yaml").write_text("place: {after: [nowhere, evidence]}\ntools: [look]\n")
    text = faults(tmp_path)
    assert f"historian.yaml: {next(iter(broken))}" in text
    assert "trainer.yaml: approval: Input should be" in text
    assert "unknown tool 'look'" in text
    assert "unknown node 'nowhere'" in text
    (tmp_path / "config_designer.yaml").unlink()
    (tmp_path / "trainer.yaml").unlink()
    text = faults(tmp_path)
    assert f"historian.yaml: {next(iter(broken))}" in text
    assert "wait for one another" in text
    assert len(text.splitlines()) == 3, "and nothing that is only a consequence"


def test_a_file_that_cannot_be_read_is_one_fault(folder: Path) -> None:
    (folder / "config_designer.yaml").write_text("name: [")
    (folder / "safety_critic.yaml").write_text("place: {after: [config_designer]}\nname: {}")
    lines = faults(folder).splitlines()[1:]
    assert [line.partition(".yaml")[0] for line in lines] == ["- config_designer", "- safety_critic"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- a list", "trainer.yaml: holds list"),
        (b"", "trainer.yaml: holds NoneType"),
        (b"a: [1", "trainer.yaml is no valid YAML"),
        (b"\xff\x00", "trainer.yaml is no UTF-8 text"),
        (b"name: 2001-99-99", "trainer.yaml is no valid YAML: month must be"),
        (b"name: " + 6000 * b"9", "trainer.yaml is no valid YAML"),
        (b"? [a]\n: 1", "a key is no plain value"),
        (b"name: " + 900 * b"[", "trainer.yaml is nested more than 64 deep"),
        (b"1: x", "trainer.yaml: 1: Keys should be strings"),
    ],
)
def test_a_file_that_is_no_role_is_refused_in_one_line(
    folder: Path, content: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "trainer.yaml").write_bytes(content)
    assert main(["validate", str(folder)]) == 2
    assert any(words in line for line in capsys.readouterr().err.splitlines())


def test_a_role_that_is_no_file_is_refused(folder: Path) -> None:
    (folder / "coach.yaml").mkdir()
    (folder / "guide.yaml").symlink_to("nowhere")
    text = faults(folder)
    assert "coach.yaml: Is a directory" in text
    assert "guide.yaml: No such file" in text


@pytest.mark.parametrize(
    "url",
    ["http://", "http://[::1", "http://a:b", "http://a b", "http://a\0b"],
)
def test_a_url_that_leads_nowhere_is_refused(folder: Path, url: str) -> None:
    edit(folder, "trainer", model={"base_url": url, "name": "m"})
    assert "expected one such as 'http://127.0.0.1:8000/v1'" in faults(folder)


TRAINER = "{{ evidence.stage }} {{ proposal.rationale }} {{ bounds.steps_low }}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\x00", "no UTF-8 text"),
        (f"{TRAINER} {{{{ 1/0 }}}}".encode(), "division by zero"),
        (f"{TRAINER} {{{{ evidence.nope.x }}}}".encode(), "has no attribute 'nope'"),
        (f"{TRAINER} {{% include 'nope' %}}".encode(), "'include' is not supported"),
        (f"{TRAINER} {{% import 'nope' as x %}}".encode(), "'import' is not supported"),
        (f"{TRAINER} {{{{ 1 | nope }}}}".encode(), "No filter named 'nope'"),
        (f"{TRAINER} {{{{ {6000 * '9'} }}}}".encode(), "cannot be compiled"),
        (f"{{% if 0 %}}{TRAINER}{{% endif %}}".encode(), "renders empty"),
        (f"{TRAINER} {{{{ evidence.history[0].stage }}}}".encode(), "of a first round"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused(folder: Path, content: bytes, words: str) -> None:
    own = folder / "prompts" / "full"
    own.mkdir(parents=True)
    (own / "trainer.user.j2").write_bytes(content)
    text = faults(folder)
    assert "prompt full/trainer.user.j2" in text
    assert words in text


def test_a_template_may_speak_of_its_environment(folder: Path) -> None:
    own = folder / "prompts" / "full"
    own.mkdir(parents=True)
    named = "{{ evidence.anchor['9x9'] }} {{ evidence.cells[7].knobs.hole_ratio }}"
    (own / "trainer.user.j2").write_text(f"{TRAINER} {named}")
    assert load_roles(folder)


def test_a_template_link_that_leads_nowhere_is_refused(folder: Path) -> None:
    own = folder / "prompts" / "full"
    own.mkdir(parents=True)
    (own / "trainer.user.j2").symlink_to("nowhere")
    assert "trainer.user.j2: No such file" in faults(folder)


def test_validate_exits_with_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(folder)]) == 0
    assert "4 roles are sound" in capsys.readouterr().out
    assert main(["validate", str(folder / "nowhere")]) == 2
    assert "not a directory" in capsys.readouterr().err
