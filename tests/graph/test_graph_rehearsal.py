"""Roles that are rehearsed in training: the episodes of a run, what its stages make of them, and how it is told."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from loops import finish, settings_text, start
from rich.console import Console

from agents.episodes import episodes
from envsim import registry
from graph.describe import rehearsal_line
from graph.nodes import training_line
from graph.prepare import plan, prepare
from graph.rehearsal import role_episodes
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings, SettingsError
from graph.timing import Clock
from graph.work import Work
from trainer.checkpoint import load, resolve
from trainer.dataset import write_dataset
from trainer.imitation import answer_end, collate, row_of, summed_loss
from trainer.profile import ProfileError, load_profile, shipped_profiles, stage_spec
from trainer.role_rehearsal import read_episodes, write_episodes
from trainer.spec import ModelRef, StageResult
from trainer.stage import run_stage
from trainer.training_settings import RehearsalSettings

REHEARSAL = {"episodes": 24, "every": 2, "batch": 4, "weight": 0.5}


@pytest.fixture
def rehearsing(tmp_path: Path) -> Callable[..., Path]:
    """The seedling over the lake with stages of seconds."""

    def make(**changes: Any) -> Path:
        data = yaml.safe_load(shipped_profiles()["seedling"]) | {
            "name": "tiny",
            "grpo": {"steps": 4, "batch": 16, "group": 8, "learning_rate": 1e-3, "save_every": 2},
            "bounds": {"min_steps": 3, "max_steps": 5},
            "probe": {"tasks": 8, "samples": 4},
            "evaluation": {"anchor": 16, "validation": 16, "test": 16},
            "role_rehearsal": REHEARSAL,
        }
        data |= changes
        path = tmp_path / "rehearsing.yaml"
        path.write_text(yaml.safe_dump(data))
        return path

    return make


def work_of(root: Path, profile: Path, **changes: Any) -> Work:
    prepared = prepare(RunSettings(profile=str(profile), **changes))
    root.mkdir()
    return new_work(prepared, RunDir(root), Console(file=io.StringIO()), Clock())


def test_episodes_are_drawn_once_and_follow_from_the_seed_alone(
    rehearsing: Callable[..., Path], tmp_path: Path
) -> None:
    path = rehearsing()
    first, other = work_of(tmp_path / "a", path, designer="self"), work_of(tmp_path / "b", path, designer="random")
    data, same = role_episodes(first), role_episodes(other)
    assert data is not None
    assert same is not None
    assert (data.n, data.sha256) == (24, same.sha256), "arms of a study rehearse the same"
    assert data.path == str(tmp_path / "a/rehearsal/episodes.jsonl")
    read = read_episodes(data)
    said = {episode.messages[0]["content"] for episode in read}
    assert len(said) >= 3, "several roles"
    drawn = list(episodes(first.environment, 24, first.seed("rehearsal"), 0.0))
    assert [episode.messages for episode in read] == [row["messages"] for row in drawn]
    before = Path(data.path).stat().st_mtime_ns
    assert role_episodes(first) == data
    assert Path(data.path).stat().st_mtime_ns == before
    assert role_episodes(work_of(tmp_path / "c", path, seed=1)) != same
    assert role_episodes(work_of(tmp_path / "d", rehearsing(role_rehearsal=None))) is None


def test_only_what_there_are_episodes_of_can_be_rehearsed(rehearsing: Callable[..., Path]) -> None:
    with pytest.raises(SettingsError, match="profile tiny: role_rehearsal with style full, expected style compact"):
        plan(RunSettings(profile=str(rehearsing(style="full"))))
    with pytest.raises(SettingsError, match="compact prompts do not fit the environment 'parity': role 'config_desig"):
        plan(RunSettings(environment="parity:Parity", profile=str(rehearsing())))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 25}, "role_rehearsal: batch 25 exceeds episodes 24"),
        ({"every": 4}, r"role_rehearsal.every 4 exceeds bounds.min_steps 3"),
        ({"weight": 0}, r"role_rehearsal.weight = 0: Input should be greater than 0"),
        ({"evry": 4}, r"role_rehearsal.evry .*did you mean 'every'"),
    ],
)
def test_what_cannot_be_rehearsed_is_named(
    rehearsing: Callable[..., Path], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ProfileError, match=message):
        load_profile(rehearsing(role_rehearsal=REHEARSAL | changes))


def test_rehearsal_is_told() -> None:
    assert rehearsal_line(RehearsalSettings()) == "4 of 1,024 episodes every step, weight 0.25"
    result = StageResult(
        spec_hash="0", stage=0, steps=80, model=ModelRef(path="m", sha256="0"), weight_change=1.0, seconds={},
        attempt=1, generated_tokens=1, reward_first=0.1, reward_last=0.2, zero_variance_share=0.5,
        rehearsed={"episodes": 320, "loss_first": 0.25, "loss_last": 0.125},
    )  # fmt: skip
    assert training_line(result).endswith("; 320 role episodes rehearsed, loss 0.250 -> 0.125")


@pytest.mark.loop
def test_a_run_rehearses_in_every_stage_and_says_so(rehearsing: Callable[..., Path], tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    config.write_text(settings_text(rehearsing(), environment="lake", max_revisions=0))
    said = finish(start(tmp_path, "--config", config, "--run-dir", tmp_path / "run"))
    run = RunDir(tmp_path / "run")
    for stage in ("000", "001"):
        rehearsed = run.read(f"stages/{stage}/result.json")["rehearsed"]
        spec = run.read(f"stages/{stage}/attempt-1/spec.json")
        assert rehearsed["episodes"] == spec["grpo"]["steps"] // 2 * REHEARSAL["batch"]
        assert spec["role_rehearsal"]["data"]["sha256"] == run.read("rehearsal/episodes.json")["sha256"]
        told = f"{rehearsed['loss_first']:.3f} → {rehearsed['loss_last']:.3f}"
        page = run.path("report/index.html").read_text()
        assert f"{rehearsed['episodes']} role episodes rehearsed, loss {told}" in page
        rows = [json.loads(line) for line in run.path(f"stages/{stage}/attempt-1/metrics.jsonl").open()]
        assert [row["step"] for row in rows if "role_loss" in row] == list(range(2, len(rows) + 1, 2))
    assert "role episodes rehearsed, loss " in said


@pytest.mark.loop
def test_the_seedling_learns_the_roles_that_a_stage_rehearses(tmp_path: Path) -> None:
    environment = registry.get("lake")
    plain = load_profile("seedling")
    profile = plain.model_copy(
        update={
            "grpo": plain.grpo.model_copy(update={"batch": 16, "group": 4, "micro_batch": 8, "warmup_steps": 0}),
            "role_rehearsal": RehearsalSettings(episodes=16, every=1, batch=8),
            "bounds": plain.bounds.model_copy(update={"min_steps": 12}),
        }
    )
    data = write_episodes([json.dumps(row) for row in episodes(environment, 16, 5, 0.0)], tmp_path / "episodes.jsonl")
    tasks = environment.generate(environment.default_config(), 48, 3).instances
    spec = stage_spec(
        profile,
        environment="lake",
        stage=0,
        seed=0,
        init_model=resolve("seedling"),
        dataset=write_dataset(tasks, tmp_path / "tasks.jsonl"),
        steps=12,
        episodes=data,
    )
    result = run_stage(spec, tmp_path / "000")
    before, after = (role_loss(ref, data.path) for ref in (spec.init_model, result.model))
    assert after < 0.7 * before
    assert result.rehearsed is not None
    assert result.rehearsed.loss_last < result.rehearsed.loss_first


def role_loss(ref: ModelRef, path: str) -> float:
    """Nats a token of the episodes' answers."""
    model, tokenizer = load(ref)
    end = answer_end(model, tokenizer)
    rows = [
        row_of(tokenizer, row["messages"], row["answer"], end=end, template_arguments={})
        for row in map(json.loads, Path(path).read_text().splitlines())
    ]
    with torch.no_grad():
        loss, tokens, _ = summed_loss(model, collate(rows, tokenizer.pad_token_id))
    return float(loss) / tokens
