"""Settings: what is refused, in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import BaseModel, ValidationError, model_validator

from graph.prepare import prepare
from graph.settings import SettingsError, differences, explain, load_settings, parse_settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stagess: 3", "unknown key 'stagess', did you mean 'stages'"),
        ("acceptance: {alfa: 0.1}", "unknown key 'acceptance.alfa', did you mean 'alpha'"),
        ("zzz: 1", "known keys: acceptance, approval"),
        ("stages: -1", "stages = -1"),
        ("seed: many", "seed = 'many'"),
        ("approval: sometimes", "'never', 'on_doubt' or 'always'"),
        ("reward: {valid: -1}", "reward.valid = -1"),
        ("acceptance: {standard_errors: .inf}", "acceptance.standard_errors = inf"),
        ("- 1", "expected a mapping"),
        ("a: [1", "no valid YAML"),
        ("stages: true", "stages = True"),
        ("stages: '3'", "stages = '3'"),
        ("acceptance: {alpha: true}", "acceptance.alpha = True"),
        ("seed: 2001-99-99", "no valid YAML: month must be"),
        ("seed: " + 6000 * "9", "no valid YAML"),
        ("seed: 1\nseed: 2", "'seed' is written twice"),
        ("a: " + 900 * "[", "nested more than 64 deep"),
        ("reward: {qq: 1}", "known keys in 'reward': optimal, valid"),
        ("\n".join(f"q{number}: 1" for number in range(50)), "and 42 more"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_settings(path, {})
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", "stages: 3".encode("utf-16"), "seed: \u00e9".encode("latin-1")])
def test_a_file_in_another_encoding_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(data)
    with pytest.raises(SettingsError, match=r"run\.yaml is no UTF-8 text"):
        load_settings(path, {})


def test_a_path_with_a_null_byte_is_refused() -> None:
    with pytest.raises(SettingsError, match="null byte"):
        load_settings(Path("a\0b"), {})


def test_the_known_keys_are_told_once() -> None:
    with pytest.raises(SettingsError) as error:
        parse_settings({"zzz": 1, "yyy": 2, "stagess": 3}, "here")
    line = str(error.value)
    assert line.count("known keys:") == 1
    assert line.startswith("here: unknown key 'zzz'; unknown key 'yyy'; unknown key 'stagess', did you mean 'stages'?;")


class Whole(BaseModel):
    """A configuration with a check of its own."""

    a: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        raise ValueError("a and b\ndiffer")


@pytest.mark.parametrize(
    ("data", "line"),
    [({}, "initial_config: a and b differ"), ({"a": "x" * 99}, f"initial_config.a = '{36 * 'x'}...: input should be")],
)
def test_a_problem_of_the_whole_is_named_without_its_value(data: dict[str, str], line: str) -> None:
    with pytest.raises(ValidationError) as error:
        Whole.model_validate(data)
    assert explain(error.value, Whole, "initial_config").startswith(line)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*nowhere\.yaml"):
        load_settings(tmp_path / "nowhere.yaml", {})


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("stages: 5\nseed: 3\n")
    settings = load_settings(path, {"seed": 9})
    assert (settings.stages, settings.seed) == (5, 9)


def test_differences_name_the_keys() -> None:
    old, new = {"a": 1, "b": {"c": [1], "d": 2}}, {"a": 1, "b": {"c": [2], "d": 2}, "e": 3}
    assert differences(old, new) == ["b.c (was [1], now [2])", "e (was None, now 3)"]


@pytest.fixture
def lake_settings(profile: Path) -> dict[str, Any]:
    return {"environment": "lake", "profile": str(profile), "designer": "random"}


def test_editable_groups_are_part_of_a_run_and_absent_without_any(lake_settings: dict[str, Any]) -> None:
    plain = prepare(parse_settings(lake_settings, "here"))
    assert "editable" not in plain.identity["settings"]
    opened = prepare(parse_settings({**lake_settings, "editable": ["topology", "shaping"]}, "here"))
    assert differences(plain.identity, opened.identity) == ["settings.editable (was None, now ['topology', 'shaping'])"]
    config = opened.environment.default_config()
    assert {"topology.rooms", "shaping"} <= set(opened.environment.knobs(config))
    assert "success_rate" not in opened.environment.knobs(config)
    assert parse_settings(opened.identity["settings"], "run.yaml") == opened.settings


@pytest.mark.parametrize(
    ("environment", "groups", "words"),
    [
        ("lake", ["topologie"], "editable: unknown group of knobs 'topologie'; did you mean 'topology'?"),
        ("lake", ["agents", "zzz"], "editable: unknown group of knobs 'zzz'; known are agents, placement"),
        ("parity:Parity", ["agents"], "editable: unknown group 'agents'; the environment 'parity' has no groups"),
    ],
)
def test_an_unknown_group_is_bad_input(
    lake_settings: dict[str, Any], environment: str, groups: list[str], words: str
) -> None:
    settings = parse_settings({**lake_settings, "environment": environment, "editable": groups}, "here")
    with pytest.raises(SettingsError) as error:
        prepare(settings)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_editable_must_be_a_list() -> None:
    with pytest.raises(SettingsError, match="editable = 'topology'"):
        parse_settings({"editable": "topology"}, "here")
