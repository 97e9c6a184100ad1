"""Settings: what is refused, in which words."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import BaseModel, ValidationError, model_validator
from rich.console import Console

from agents.designers import get_designer
from agents.designers import own as own_source
from agents.schemas import CellEvidence, Evidence
from graph.prepare import prepare
from graph.rundir import open_run
from graph.session import new_work
from graph.settings import SettingsError, differences, explain, load_settings, parse_settings
from graph.timing import Clock


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


def test_a_profile_in_the_place_of_settings_is_called_one(profile: Path) -> None:
    with pytest.raises(SettingsError, match=f"{profile} is a profile, not a run's settings .*give it as 'profile'"):
        load_settings(profile, {})


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


def shown(root: Path, stages: int) -> None:
    """A finished run whose roles were shown evidence of the second environment at so many stages."""
    cells = [cell_of("short"), cell_of("long")]
    for stage in range(1, stages + 1):
        seen = EMPTY.model_copy(update={"stage": stage, "cells": cells})
        place = root / "stages" / f"{stage:03d}" / "evidence.json"
        place.parent.mkdir(parents=True)
        place.write_text(seen.model_dump_json())
    (root / "result.json").write_text("{}")


def cell_of(name: str) -> CellEvidence:
    return CellEvidence(
        cell=name,
        n=4,
        valid=0.5,
        optimal=0.5,
        change=None,
        top_fault=None,
        knobs={},
        outcomes={},
        mean_first_fault_step=1,
    )


EMPTY = Evidence(
    stage=1,
    model_sha256="0",
    macro_valid=0.5,
    macro_optimal=0.5,
    zero_variance_share=None,
    no_signal=False,
    cells=[],
    outcomes={},
    failures=[],
    anchor={},
    history=[],
)


@pytest.mark.parametrize(
    ("designer", "words"),
    [
        ({"name": "schedule", "file": "none.yaml"}, "designer schedule: cannot read none.yaml"),
        ({"name": "schedule", "file": "bad.yaml"}, "bad.yaml is no valid YAML"),
        ({"name": "schedule", "file": "list.yaml"}, "list.yaml: the file: "),
        (
            {"name": "schedule", "file": "unknown.yaml"},
            "stage 1: unknown knob 'short.noise'; did you mean 'short.noise_",
        ),
        ({"name": "schedule", "file": "high.yaml"}, "stage 1: short.noise_ratio = 2, expected 0..1"),
        ({"name": "schedule", "file": "few.yaml"}, "few.yaml has entries for 1 stages, and the run may have 3"),
        ({"name": "schedule"}, "is for the environment 'lake', not for 'parity'"),
        ({"name": "shuffled", "run": "none"}, "designer shuffled: run: none holds no stages"),
        ({"name": "shuffled", "run": "working"}, "designer shuffled: run: working is not finished"),
        ({"name": "shuffled", "run": "short"}, "run: short has 2 designed stages, and this run may have 3"),
        ("mine.py:Choosy", "designer entrypoint 'mine.py:Choosy': its check says ValueError: not on parity"),
    ],
)
def test_a_designer_that_could_not_do_its_part_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: Path, designer: Any, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    schedules = {
        "bad": "stages: [",
        "list": "- 1",
        "unknown": "environment: parity\nstages: [{short.noise: 0.1}, {}, {}]",
        "high": "environment: parity\nstages: [{short.noise_ratio: 2}, {}, {}]",
        "few": "environment: parity\nstages: [{short.noise_ratio: 0.3}]",
    }
    for name, text in schedules.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    shown(tmp_path / "short", 2)
    shown(tmp_path / "working", 3)
    (tmp_path / "working" / "result.json").unlink()
    (tmp_path / "mine.py").write_text(CHOOSY)
    given = {"environment": "parity:Parity", "profile": str(profile), "designer": designer}
    with pytest.raises(SettingsError) as error:
        prepare(parse_settings(given, "here"))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


CHOOSY = """
from agents.designers import Designer, proposal


class Choosy(Designer):
    def check(self, environment, config, stages):
        raise ValueError(f"not on {environment.name}")

    def propose(self, context):
        return proposal(context, "nothing", [])
"""


@pytest.mark.parametrize("kind", ["schedule", "shuffled", "own"])
def test_what_a_designer_reads_is_part_of_a_run(tmp_path: Path, profile: Path, kind: str) -> None:
    steps, other, own = tmp_path / "steps.yaml", tmp_path / "other", tmp_path / "calm.py"
    steps.write_text("environment: parity\nrepeat_last: true\nstages: [{short.noise_ratio: 0.3}]")
    shown(other, 3)
    own.write_text(CHOOSY.replace("raise ValueError", "print"))
    designer = {
        "schedule": {"name": "schedule", "file": str(steps)},
        "shuffled": {"name": "shuffled", "run": str(other)},
        "own": f"{own}:Choosy",
    }[kind]
    settings = parse_settings({"environment": "parity:Parity", "profile": str(profile), "designer": designer}, "here")
    begun = prepare(settings)
    with open_run(tmp_path / "run", begun.identity, resume=False):
        pass
    with open_run(tmp_path / "run", prepare(settings).identity, resume=True) as run:
        work = new_work(begun, run, Console(file=io.StringIO()), Clock())
        assert work.designer().name == get_designer(designer).name
        steps.write_text(steps.read_text().replace("0.3", "0.4"))
        evidence = other / "stages" / "002" / "evidence.json"
        evidence.write_text(evidence.read_text().replace('"stage":2', '"stage":3'))
        if kind == "own":
            # A process that has read a source goes on with it; another one sees that it is another.
            own.write_text(own.read_text() + "# changed\n")
            assert work.designer().name == "Choosy"
            del sys.modules[f"designer file {own}"], own_source._TEXTS[str(own)]
        with pytest.raises(SettingsError, match="was changed while the run was at work"):
            work.designer()
    changed = prepare(settings).identity
    with (
        pytest.raises(SettingsError, match=r"belongs to another configuration: designer_sha256 \(was "),
        open_run(tmp_path / "run", changed, resume=True),
    ):
        pass


def test_editable_must_be_a_list() -> None:
    with pytest.raises(SettingsError, match="editable = 'topology'"):
        parse_settings({"editable": "topology"}, "here")
