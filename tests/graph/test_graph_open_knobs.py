"""A real tiny run of the embedded model whose designer may edit every opt-in knob of the lake."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml
from loops import finish, start

from envsim import registry
from envsim.lake.instance import LakeInstance, read_instances
from graph.rundir import RunDir
from trainer.metrics import read_attempt

pytestmark = pytest.mark.loop

GROUPS = ["agents", "placement", "topology", "goals", "success_rate", "shaping"]
LAKE = registry.get("lake").editing(GROUPS)
PROFILE = {
    "name": "tiny",
    "model": "seedling",
    "style": "compact",
    "threads": 1,
    "grpo": {"steps": 3, "batch": 64, "group": 8, "micro_batch": 32, "learning_rate": 5e-5, "save_every": 3},
    "bounds": {"min_steps": 3, "max_steps": 4},
    "generation": {"max_new_tokens": 96},
    "roles": {"max_new_tokens": 512},
    "evaluation": {"anchor": 16, "validation": 16, "test": 8},
    "probe": {"tasks": 16, "samples": 4},
}
SETTINGS = {
    "designer": "random",
    "editable": GROUPS,
    "stages": 2,
    "max_revisions": 8,
    # Noise and shaping from the first stage on, so that what they pay is there whatever is drawn.
    "initial_config": {"success_rate": 0.96, "shaping": 0.2},
    # A probe of sixteen tasks cannot tell what these gates ask; yield and trust region are as ever.
    "gates": {
        "g2": {"min_effective": 0.0, "min_success": 0.0, "max_success": 1.0},
        "g3": {"max_trivial": 1.0},
        "g4": {"max_hopeless": 1.0},
        "g5": {"floor": 0.0, "max_fall": 1.0},
        "g7": {"min_ratio": 0.0},
    },
    "acceptance": {"standard_errors": 10.0},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("open")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(PROFILE))
    (folder / "run.yaml").write_text(yaml.safe_dump({**SETTINGS, "profile": str(folder / "tiny.yaml")}))
    finish(start(folder, "--config", "run.yaml", "--run-dir", "run"))
    return RunDir(folder / "run")


def shared(run: RunDir, stage: int) -> dict[str, float]:
    """The opt-in knobs that a stage was generated with."""
    config = LAKE.config_model.model_validate(run.read(f"stages/{stage:03d}/config.json"))
    return {path: knob.value for path, knob in LAKE.knobs(config).items() if "x" not in path.partition(".")[0]}


def tasks(run: RunDir, stage: int) -> list[LakeInstance]:
    return list(read_instances(run.path(f"stages/{stage:03d}/dataset.jsonl")))


def test_the_opened_knobs_reach_data_rewards_and_evidence(run: RunDir) -> None:
    """What the designer edits is in the tasks on disk, in what GRPO is paid, and in what the next designer reads."""
    assert run.read("stages/001/plan.json")["source"] == "random"
    configs = [shared(run, stage) for stage in range(3)]
    assert configs[0]["success_rate"] == 0.96
    assert configs[0]["topology.random"] == 1
    assert configs[1] != configs[0], "the designer edited them"
    for stage, asked in enumerate(configs):
        drawn = tasks(run, stage)
        assert_data_is_as_asked(drawn, asked)
        assert_rewards_are_paid(run, stage, asked)
    for stage in (1, 2):
        assert_evidence_names(run, stage, configs)


def kinds(task: LakeInstance) -> dict[str, str]:
    """Which choice of each mixture a task is."""
    goals = "1" if task.via is None else "2"
    return {"agents": str(task.agents), "placement": task.placement, "topology": task.topology, "goals": goals}


def assert_data_is_as_asked(drawn: list[LakeInstance], asked: dict[str, float]) -> None:
    for group in ("agents", "placement", "topology", "goals"):
        counts = Counter(f"{group}.{kinds(task)[group]}" for task in drawn)
        assert all(asked[path] > 0 for path in counts), "only what was asked for"
        # Of a few tasks split over eight sizes a small weight may get none; the largest never.
        weights = {path: value for path, value in asked.items() if path.startswith(f"{group}.")}
        assert counts[max(weights, key=weights.__getitem__)] > 0
    assert {task.success_rate for task in drawn} == {asked["success_rate"]}
    assert {task.shaping for task in drawn} == {asked["shaping"]}


def assert_rewards_are_paid(run: RunDir, stage: int, asked: dict[str, float]) -> None:
    """Each step's mean reward is what the definition pays: success of the valid, progress of all, half for optimal."""
    rows = read_attempt(run.path(f"stages/{stage:03d}/attempt-1"))
    assert len(rows) >= 3
    for row in rows:
        noisy = asked["success_rate"] < 1 and row.valid > 0
        assert (row.success is not None) == noisy
        assert (row.progress is not None) == (asked["shaping"] > 0)
        success = 1.0 if row.success is None else row.success
        paid = row.valid * success + asked["shaping"] * (row.progress or 0.0) + 0.5 * row.optimal
        assert row.reward == pytest.approx(paid, abs=1e-4)
        if noisy:
            assert 0 < success < 1
        if asked["shaping"]:
            assert row.valid <= (row.progress or 0.0) < 1, "invalid answers got somewhere too"


def assert_evidence_names(run: RunDir, stage: int, configs: list[dict[str, float]]) -> None:
    evidence: dict[str, Any] = run.read(f"stages/{stage:03d}/evidence.json")
    decided = run.read(f"stages/{stage - 1:03d}/decision.json")["accepted"]
    assert evidence["open_knobs"] == configs[stage - 1] or not decided
    training = evidence["training"]
    drawn = tasks(run, stage - 1)
    assert (training["stage"], training["n"]) == (stage - 1, len(drawn))
    for path, value in training["knobs"].items():
        group, _, kind = path.partition(".")
        if kind:
            assert value == pytest.approx(sum(kinds(task)[group] == kind for task in drawn) / len(drawn)), path
    assert training["knobs"]["success_rate"] == pytest.approx(configs[stage - 1]["success_rate"])
    assert training["knobs"]["shaping"] == pytest.approx(configs[stage - 1]["shaping"])
    result = run.read(f"stages/{stage - 1:03d}/result.json")
    assert training["success"] == result.get("success")
    assert training["progress"] == result.get("progress")


def test_the_run_remembers_what_it_opened(run: RunDir) -> None:
    assert yaml.safe_load(run.path("run.yaml").read_text())["settings"]["editable"] == GROUPS
    lines = [event["text"] for event in run.events() if event["event"] == "line"]
    trained = [line for line in lines if line.startswith("trained")]
    assert "success of valid plans" in trained[0]
    assert "progress" in trained[0]
