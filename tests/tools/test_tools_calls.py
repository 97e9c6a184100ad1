"""Tools: typed arguments, JSON back, every call counted, refusals readable, sealed sets out of reach."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from envsim import registry as environments
from envsim.api import EnvsimError, Message
from tools.log import ToolLog
from tools.probe_policy import probe
from tools.registry import get, known_tools
from trainer.policy import Completion
from trainer.spec import GenerationSettings, ModelRef, StageResult

LAKE = environments.get("lake")
INSTANCES = LAKE.generate(LAKE.default_config(), 16, 4, split="validation").instances
GENERATION = GenerationSettings()


class EverySecond:
    """Solves a task in every second sample."""

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.known = {LAKE.prompt(task, "compact")[-1]["content"]: task for task in INSTANCES}

    def generate(
        self, prompts: Sequence[list[Message]], *, samples: int = 1, seed: int = 0, **_: Any
    ) -> list[list[Completion]]:
        self.seeds.append(seed)
        right = [LAKE.reference_answer(self.known[p[-1]["content"]], "compact") for p in prompts]
        return [
            [
                Completion(text=text if i % 2 == 0 else "", prompt_tokens=30, tokens=10, finish_reason="stop")
                for i in range(samples)
            ]
            for text in right
        ]


def result_of(log: ToolLog, tool: Any, **arguments: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(tool.invoke(arguments))
    assert log.calls[-1].name == tool.name
    return data


def test_every_known_tool_has_a_factory_and_the_nearest_name_is_suggested() -> None:
    for name in known_tools():
        assert callable(get(name))
    with pytest.raises(KeyError, match="did you mean 'probe_policy'"):
        get("probe_polcy")


def test_a_configuration_is_measured() -> None:
    log = ToolLog()
    tool = get("measure_config")(log, environment=LAKE, config=LAKE.default_config, seed=1)
    data = result_of(log, tool, values={"3x3.hole_ratio": 0.0}, n=16)
    assert data["n"] == 16
    assert data["quantities"]["3x3"]["hole_ratio"] == 0
    assert result_of(log, tool, values={"3x3.hole_ratio": 0.0}, n=16) == data
    assert log.calls[0].result_sha256 == log.calls[1].result_sha256
    assert log.calls[0].args == {"values": {"3x3.hole_ratio": 0.0}, "n": 16}


def test_a_refusal_is_readable_and_counted() -> None:
    log = ToolLog()
    tool = get("measure_config")(log, environment=LAKE, config=LAKE.default_config, seed=1)
    assert "3x3.hole_ratio" in result_of(log, tool, values={"3x3.hole_ratio": 0.9})["error"]
    assert log.calls[0].error is not None


@pytest.mark.parametrize("arguments", [{"n": 0}, {"n": 10_000}, {"values": {"3x3.hole_ratio": "many"}}])
def test_arguments_are_typed(arguments: dict[str, Any]) -> None:
    log = ToolLog()
    tool = get("measure_config")(log, environment=LAKE, config=LAKE.default_config, seed=1)
    with pytest.raises(ValidationError):
        tool.invoke(arguments)
    assert log.calls == []


def test_a_policy_is_probed() -> None:
    policy, done = EverySecond(), []
    result = probe(
        LAKE,
        policy,
        INSTANCES,
        style="compact",
        generation=GENERATION,
        samples=4,
        seed=3,
        progress=lambda now, whole: done.append((now, whole)),
    )
    assert [(task.id, task.successes, task.success) for task in result.tasks] == [(i.id, 2, 0.5) for i in INSTANCES]
    assert set(result.by_cell().values()) == {0.5}
    assert result.tokens == 16 * 4 * 10
    assert done == [(16, 16)]
    with pytest.raises(EnvsimError, match="nothing to probe"):
        probe(LAKE, policy, [], style="compact", generation=GENERATION, samples=4, seed=3)


def test_probe_tool_counts_tokens() -> None:
    log = ToolLog()
    policy = EverySecond()
    drawn = LAKE.generate(LAKE.default_config(), 8, 5, split="probe").instances
    policy.known |= {LAKE.prompt(task, "compact")[-1]["content"]: task for task in drawn}
    tool = get("probe_policy")(
        log,
        environment=LAKE,
        policy=policy,
        config=LAKE.default_config,
        style="compact",
        generation=GENERATION,
        samples=2,
        seed=5,
    )
    assert set(result_of(log, tool, n=8)["success"].values()) == {0.5}
    assert log.tokens() == 8 * 2 * 10


def test_evaluation_shows_aggregates_of_open_sets_only(tmp_path: Path) -> None:
    log = ToolLog()
    tool = get("evaluate_checkpoint")(
        log,
        environment=LAKE,
        policy=EverySecond(),
        model_sha256="0" * 64,
        instances=lambda _: INSTANCES,
        style="compact",
        generation=GENERATION,
        directory=tmp_path,
    )
    assert result_of(log, tool, set="validation")["macro_valid"] == 1.0
    anchor = tool.invoke({"set": "anchor"})
    assert "outcomes" not in anchor
    assert not any(instance.id in anchor for instance in INSTANCES)
    for sealed in ("test", "benchmark"):
        with pytest.raises(ValidationError):
            tool.invoke({"set": sealed})


def test_failures_are_filtered_and_cut(tmp_path: Path) -> None:
    file = tmp_path / "validation.failures.jsonl"
    row = {"sample": 0, "answer": "x" * 5000, "states": [], "actions": [], "rewards": [], "fault": None}
    rows = [
        {"id": f"i{i}", "cell": f"{3 + i % 2}x{3 + i % 2}", "outcome": "hole" if i < 6 else "parse_error", **row}
        for i in range(8)
    ]
    file.write_text("".join(json.dumps(item) + "\n" for item in rows))
    log = ToolLog()
    data = result_of(log, get("read_failures")(log, failures=file), cell="3x3", outcome="hole", limit=2)
    assert (data["found"], data["of"]) == (3, 8)
    assert [failure["id"] for failure in data["failures"]] == ["i0", "i2"]
    assert len(data["failures"][0]["answer"]) == 600


def test_a_stage_is_launched_inside_its_bounds(tmp_path: Path) -> None:
    log, launched = ToolLog(), []

    def run(spec: Any, directory: Path, **_: Any) -> StageResult:
        launched.append((spec, directory))
        return StageResult(
            spec_hash="s",
            stage=1,
            steps=spec[0],
            model=ModelRef(path="somewhere", sha256="m"),
            weight_change=1.0,
            generated_tokens=77,
            reward_first=0.1,
            reward_last=0.2,
            zero_variance_share=0.5,
            seconds={},
            attempt=1,
        )

    tool = get("launch_stage")(
        log, spec=lambda steps, scale: (steps, scale), directory=tmp_path, steps=(5, 40), run=run
    )
    data = result_of(log, tool, steps=20, learning_rate_scale=0.5)
    assert (data["steps"], log.tokens()) == (20, 77)
    assert "somewhere" not in json.dumps(data)
    assert launched == [((20, 0.5), tmp_path)]
    assert "expected 5 to 40" in result_of(log, tool, steps=41)["error"]
    assert "expected one of" in result_of(log, tool, steps=20, learning_rate_scale=3.0)["error"]
    assert len(launched) == 1
    assert [call.error is None for call in log.calls] == [True, False, False]


def test_a_failure_is_logged_and_propagates(tmp_path: Path) -> None:
    log = ToolLog()
    tool = get("read_failures")(log, failures=tmp_path / "missing.jsonl")
    with pytest.raises(FileNotFoundError):
        tool.invoke({})
    assert "FileNotFoundError" in (log.calls[0].error or "")
