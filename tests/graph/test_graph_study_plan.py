"""Plans: what is refused and how, what their hash depends on, and who may run confirming seeds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from graph.settings import SettingsError
from graph.study.__main__ import main
from graph.study.plan import Plan, load_plan, read_plan, seeds_of
from graph.study.provenance import code_version, confirm

SHIPPED = sorted((Path(__file__).parents[2] / "studies").glob("*.yaml"))


def written(path: Path, **changes: Any) -> Path:
    data = {
        "name": "tiny",
        "question": "is it so?",
        "settings": {"budget": "profile", "token_budget": 1000, "stages": 2},
        "arms": {"a": {"designer": "teacher"}, "b": {"designer": "fixed"}},
        "seeds": {"n": 3},
        "fewer": {"b": 2},
        "primary": {"treatment": "a", "control": "b"},
    }
    path.write_text(yaml.safe_dump({key: value for key, value in {**data, **changes}.items() if value is not None}))
    return path


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return written(tmp_path / "plan.yaml")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_plans_are_plans(path: Path) -> None:
    plan = load_plan(path).plan
    assert plan.name == path.stem
    assert plan.primary is not None


def test_shipped_plans_confirm_on_seeds_of_their_own() -> None:
    plans = [Plan.model_validate(read_plan(path)[0]) for path in SHIPPED if path.stem != "main-qwen3-4b"]
    seeds = [seed for plan in plans for seed in plan.seeds.of("confirming", plan.seeds.n)]
    assert len(seeds) == len(set(seeds))
    assert len(plans) >= 6


def test_runs_go_seed_by_seed_and_some_arms_have_fewer(plan: Path) -> None:
    loaded = load_plan(plan)
    assert seeds_of(loaded.plan, "development") == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert seeds_of(loaded.plan, "confirming")[-1] == ("a", 1002)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"stages": 2}}, "expected 'budget: profile' and a token_budget"),
        ({"settings": {"budget": "role", "token_budget": 5}}, "token_budget is 5 and budget is 'role'"),
        ({"settings": {"budget": "profile", "token_budget": 5, "seed": 1}}, "settings.seed is the study's to set"),
        (
            {"settings": {"budget": "profile", "token_budget": 5, "profile": "nope"}},
            "no such file; expected a YAML file",
        ),
        ({"arms": {"a": {"designer": "fixed", "profile": "x"}, "b": {}}}, "arms.a.profile: all arms share it"),
        ({"arms": {"a": {"token_budget": 7}, "b": {}}}, "arms.a.token_budget: all arms share it"),
        ({"arms": {"a": {"desinger": "fixed"}, "b": {}}}, "did you mean 'designer'"),
        ({"arms": {"a b": {}}}, "string should match"),
        ({"arms": {}}, "at least 1 item"),
        ({"primary": {"treatment": "a", "control": "c"}}, "'c' is no arm; known are a, b"),
        ({"secondary": [{"treatment": "a", "control": "b"}]}, "more than once"),
        ({"primary": {"treatment": "a", "control": "b", "outcome": "wins"}}, "outcome"),
        ({"primary": {"treatment": "a", "control": "b", "outcome": "test_sampled"}}, "samples is 0, expected 1 to 9"),
        (
            {"primary": {"treatment": "a", "control": "b", "outcome": "benchmark_3"}},
            "benchmark is false, expected true",
        ),
        ({"samples": 10}, "samples"),
        ({"fewer": {"b": 3}}, "fewer.b is 3, expected 1 to 2"),
        ({"seeds": {"n": 3, "development": 98}}, "go beyond 99"),
        ({"seeds": {"n": 3, "confirming": 5}}, "confirming = 5"),
        ({"sedes": {"n": 3}}, "did you mean 'seeds'"),
        ({"question": None}, "question"),
    ],
)
def test_a_plan_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: str
) -> None:
    path = written(tmp_path / "plan.yaml", **changes)
    assert main(["--plan", str(path), "--directory", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["[1]", "a: [", ""])
def test_a_file_that_holds_no_plan_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    assert main(["--plan", str(path)]) == 2
    assert main(["--plan", str(tmp_path / "none.yaml")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--parallel", "0"], "--parallel 0, expected at least 1"),
        (["--seeds", "100"], "--seeds 100: development seeds are 0..99"),
        (["--seeds", "1000"], "confirming ones are run by --confirm"),
        (["--seeds", "1", "--confirm"], "the plan alone says which seeds confirm it"),
        (["--arms", "c"], "known are a, b"),
        (["--merge", "none.jsonl"], "--merge none.jsonl is no file"),
        (["--confirm"], "lies in no git repository"),
    ],
)
def test_bad_flags_are_one_line(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    assert main(["--plan", str(plan), "--directory", str(tmp_path / "out"), *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "out" / "rows.jsonl").exists()


def test_the_hash_is_of_what_is_compared_and_not_of_where_it_lies(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    elsewhere = written(tmp_path / "x" / "other.yaml")
    assert load_plan(elsewhere).hash == load_plan(plan).hash
    for changes in ({"seeds": {"n": 4}}, {"arms": {"a": {"designer": "self"}, "b": {}}}, {"question": "other"}):
        assert load_plan(written(elsewhere, **changes)).hash != load_plan(plan).hash


def test_the_hash_and_the_files_are_also_of_roles_and_of_what_designers_read(tmp_path: Path) -> None:
    roles = tmp_path / "mine"
    (roles / "prompts").mkdir(parents=True)
    (roles / "safety_critic.yaml").write_text("temperature: 0.5\n")
    steps = tmp_path / "steps.yaml"
    steps.write_text("environment: lake\nrepeat_last: true\nstages: [{3x3.hole_ratio: 0.1}]\n")
    arms = {"a": {"roles": str(roles)}, "b": {"designer": {"name": "schedule", "file": str(steps)}}}
    path = written(tmp_path / "plan.yaml", arms=arms)
    before = load_plan(path)
    assert set(before.files) == {path, roles / "safety_critic.yaml", steps}
    moved = roles.rename(tmp_path / "moved")
    arms["a"]["roles"] = str(moved)
    assert load_plan(written(path, arms=arms)).hash == before.hash
    (moved / "safety_critic.yaml").write_text("temperature: 0.6\n")
    other_role = load_plan(path)
    assert other_role.hash != before.hash
    steps.write_text(steps.read_text().replace("0.1", "0.2"))
    assert load_plan(path).hash != other_role.hash


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        (
            {"designer": {"name": "schedule", "file": "/no/steps.yaml"}},
            "arms.a: designer schedule: cannot read /no/steps",
        ),
        (
            {"designer": {"name": "shuffled", "run": "/no/run"}},
            "arms.a: designer shuffled: run: /no/run holds no stages",
        ),
        ({"designer": "/no/mine.py:Mine"}, "arms.a: designer entrypoint '/no/mine.py:Mine': /no/mine.py cannot be"),
        ({"roles": "/no/roles"}, "arms.a: the roles cannot be used"),
    ],
)
def test_an_arm_whose_files_are_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arm: dict[str, Any], words: str
) -> None:
    path = written(tmp_path / "plan.yaml", arms={"a": arm, "b": {"designer": "fixed"}})
    assert main(["--plan", str(path), "--directory", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line
    assert not (tmp_path / "out").exists()


def test_an_arm_whose_designer_could_not_do_a_stage_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = tmp_path / "steps.yaml"
    steps.write_text("environment: lake\nstages: [{}]\n")
    arms = {"a": {"designer": {"name": "schedule", "file": str(steps)}}, "b": {"designer": "fixed"}}
    path = written(tmp_path / "plan.yaml", arms=arms)
    assert main(["--plan", str(path), "--directory", str(tmp_path / "out"), "--dry-run"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "arms.a: designer schedule" in line
    assert "has entries for 1 stages, and the run may have 2" in line


def test_a_plan_extends_another(plan: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.yaml"
    longer.write_text(yaml.safe_dump({"extends": plan.name, "name": "longer", "settings": {"token_budget": 5000}}))
    loaded = load_plan(longer)
    assert loaded.plan.name == "longer"
    assert loaded.arms["a"].token_budget == 5000
    assert loaded.arms["a"].stages == 2
    assert set(loaded.files) == {longer, plan}


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_confirming_seeds_need_a_committed_plan_and_are_run_once(plan: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(SettingsError, match="no git repository with a commit"):
        confirm(load_plan(plan), "code")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    with pytest.raises(SettingsError, match="is not in git"):
        confirm(load_plan(plan), "code")
    git(tmp_path, "add", plan.name)
    with pytest.raises(SettingsError, match="differs from its commit"):
        confirm(load_plan(plan), "code")
    git(tmp_path, "commit", "-q", "-m", "plan")
    confirm(load_plan(plan), "code")
    confirm(load_plan(plan), "code")
    with pytest.raises(SettingsError, match="begun with code code, and this is other"):
        confirm(load_plan(plan), "other")
    written(plan, question="another one?")
    with pytest.raises(SettingsError, match="differs from its commit"):
        confirm(load_plan(plan), "code")
    git(tmp_path, "commit", "-aqm", "changed")
    with pytest.raises(SettingsError, match="they are made once"):
        confirm(load_plan(plan), "code")


def test_a_profile_beside_the_plan_must_be_committed_too(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "studies" / "profiles" / "seedling.yaml"
    (tmp_path / "own.yaml").write_text(shipped.read_text())
    settings = {"budget": "profile", "token_budget": 1000, "profile": "own.yaml"}
    plan = written(tmp_path / "plan.yaml", settings=settings)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "plan.yaml")
    git(tmp_path, "commit", "-qm", "plan alone")
    with pytest.raises(SettingsError, match=r"own\.yaml is not in git"):
        confirm(load_plan(plan), "code")


def test_the_version_of_the_code_is_one_of_the_sources() -> None:
    assert code_version() == code_version()
    assert len(code_version()) == 16
