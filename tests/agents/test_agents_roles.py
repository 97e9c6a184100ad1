"""Role files: what is shipped loads, and every fault is refused with a line that says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.__main__ import main
from agents.roles import RoleError, load_roles, roles_hash
from agents.rolespec import PACKAGE, RoleSpec


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
        load_roles(folder)
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
        ("trainer", {"kind": "shell"}, "kind: Input should be 'llm', got 'shell'"),
        ("trainer", {"model": "gpt"}, "got 'gpt'"),
        ("trainer", {"model": {"base_url": "ftp://x", "name": "m"}}, "got 'ftp://x'"),
        ("trainer", {"on_failure": "ignore"}, "on_failure: Input should be 'rule' or 'stop', got 'ignore'"),
        ("trainer", {"approval": "maybe"}, "got 'maybe'"),
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
        ("trainer", {"place": {"after": ["gates"]}}, "nothing that writes 'critique' stands between 'gates' and it"),
        ("safety_critic", {"place": {"after": ["config_designer"]}}, "nothing that writes 'critique' stands between"),
        ("failure_analyst", {"place": {"after": ["trainer"]}}, "wait for one another"),
        ("failure_analyst", {"enabled": False}, "unknown or disabled node 'failure_analyst'"),
        ("safety_critic", {"enabled": False}, "unknown or disabled node 'safety_critic'"),
        ("trainer", {"enabled": False}, "no enabled role writes 'budget'"),
        ("config_designer", {"place": {"after": ["evidence"]}}, "nobody placed before it writes 'diagnosis'"),
    ],
)
def test_a_fault_is_refused(folder: Path, role: str, changes: dict[str, Any], expected: str) -> None:
    edit(folder, role, **changes)
    assert expected in faults(folder)


def test_a_missing_key_is_named(folder: Path) -> None:
    file = folder / "trainer.yaml"
    file.write_text(file.read_text().replace("writes: budget\n", ""))
    assert "trainer.yaml: writes: missing" in faults(folder)


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
    ("url", "words"),
    [
        ("http://", "names no host"),
        ("http://[::1", "no usable URL"),
        ("http://a:b", "no usable URL"),
        ("http://a b", "no spaces"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(folder: Path, url: str, words: str) -> None:
    edit(folder, "trainer", model={"base_url": url, "name": "m"})
    assert words in faults(folder)


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
