"""Tools: typed arguments, JSON back, every call counted, refusals readable, sealed sets out of reach."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agents.rolespec import Limits
from envsim import registry as environments
from envsim.api import EnvsimError, Message
from tools.calling import call_as_text, clipped
from tools.context import ToolContext
from tools.launch_stage import launch_stage_tool
from tools.log import ToolLog
from tools.probe_policy import probe
from tools.registry import TOOLS, arguments_of, entry, known_tools, toolbox
from trainer.policy import Completion
from trainer.spec import CellStats, EvalReport, GenerationSettings, ModelRef, StageResult

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


def figure(data: dict[str, Any], row: str, column: str) -> Any:
    """One of a table."""
    return data["rows"][row][data["columns"].index(column)]


def never(*_: Any) -> Any:
    raise AssertionError("this tool has no business with that")


def context_of(**changes: Any) -> ToolContext:
    context = ToolContext(
        environment=LAKE,
        config=LAKE.default_config(),
        proposed=None,
        policy=never,
        style="compact",
        generation=GENERATION,
        samples=2,
        seed=5,
        failures=Path("nowhere.jsonl"),
        history=[],
        evaluate=never,
        max_rollouts=64,
    )
    return dataclasses.replace(context, **changes)


def made(name: str, **changes: Any) -> tuple[ToolLog, Any]:
    log = ToolLog()
    return log, toolbox([name], context_of(**changes), log)[name]


def test_every_known_tool_is_made_or_is_the_runs_to_make() -> None:
    found = toolbox(known_tools(), context_of(), ToolLog())
    assert {*found} == {name for name in known_tools() if not TOOLS[name].with_answer}
    for name, tool in found.items():
        assert tool.name == name
        assert tool.args_schema is arguments_of(name)
        assert tool.description
    with pytest.raises(KeyError, match="did you mean 'probe_policy'"):
        entry("probe_polcy")
    with pytest.raises(KeyError, match="unknown tool 'xyz'; known: compare_configs, "):
        entry("xyz")


def test_a_configuration_is_measured() -> None:
    log, tool = made("measure_config")
    data = result_of(log, tool, values={"3x3.hole_ratio": 0.0}, n=16)
    assert data["n"] == 16
    assert figure(data, "3x3", "hole_ratio") == 0
    assert figure(data, "4x4", "hole_ratio") > 0
    assert sum(figure(data, cell, "share") for cell in data["rows"]) == pytest.approx(1)
    assert result_of(log, tool, values={"3x3.hole_ratio": 0.0}, n=16) == data
    assert log.calls[0].result_sha256 == log.calls[1].result_sha256
    assert log.calls[0].args == {"values": {"3x3.hole_ratio": 0.0}, "n": 16}


def test_a_refusal_is_readable_and_counted() -> None:
    log, tool = made("measure_config")
    assert "3x3.hole_ratio" in result_of(log, tool, values={"3x3.hole_ratio": 0.9})["error"]
    assert log.calls[0].error is not None


@pytest.mark.parametrize("arguments", [{"n": 0}, {"n": 10_000}, {"values": {"3x3.hole_ratio": "many"}}])
def test_arguments_are_typed(arguments: dict[str, Any]) -> None:
    log, tool = made("measure_config")
    with pytest.raises(ValidationError):
        tool.invoke(arguments)
    assert log.calls == []


def test_two_configurations_are_compared() -> None:
    proposed = LAKE.with_values(LAKE.default_config(), {"3x3.hole_ratio": 0.25})
    log, tool = made("compare_configs", proposed=proposed)
    data = result_of(log, tool, second={"base": "proposed", "values": {"4x4.wait_ratio": 0.3}}, n=16)
    default = {path: knob.value for path, knob in LAKE.knobs(LAKE.default_config()).items()}
    assert data["knobs"] == {
        "3x3.hole_ratio": [default["3x3.hole_ratio"], 0.25],
        "4x4.wait_ratio": [default["4x4.wait_ratio"], 0.3],
    }
    assert set(data["share"]) == set(LAKE.cells())
    assert len(data["difficulty"]) == 2
    same = result_of(log, tool, n=16)
    assert same["knobs"] == {}
    assert same["difficulty"][0] == same["difficulty"][1]
    assert "3x3.holes" in result_of(log, tool, first={"values": {"3x3.holes": 0.1}})["error"]


def test_where_nothing_is_proposed_nothing_can_be_compared_with_it() -> None:
    log, tool = made("compare_configs")
    assert "no proposed configuration at this place" in result_of(log, tool, first={"base": "proposed"})["error"]


def test_the_history_is_read_from_its_end() -> None:
    log, tool = made("read_history", history=[{"stage": stage, "accepted": True} for stage in range(1, 6)])
    data = result_of(log, tool, last=2)
    assert (data["stages"], [one["stage"] for one in data["history"]]) == (5, [4, 5])
    told = {"stage": 1, "predicted": {"4x4": 30, "3x3": 70}, "measured": {"3x3": 0.615}}
    log, tool = made("read_history", history=[told])
    [entry] = result_of(log, tool)["history"]
    nothing = [None] * (len(LAKE.cells()) - 2)
    assert entry == {"stage": 1, "predicted": [70, 30, *nothing], "measured": [62, None, *nothing]}


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


def test_probe_tool_counts_tokens_and_rollouts_and_keeps_within_them() -> None:
    policy = EverySecond()
    drawn = LAKE.generate(LAKE.default_config(), 8, 5, split="probe").instances
    policy.known |= {LAKE.prompt(task, "compact")[-1]["content"]: task for task in drawn}
    log, tool = made("probe_policy", policy=lambda: policy, max_rollouts=20)
    assert set(result_of(log, tool, n=8)["success"].values()) == {0.5}
    assert (log.tokens(), log.rollouts()) == (8 * 2 * 10, 16)
    refused = result_of(log, tool, n=8)["error"]
    assert refused == ("8 tasks with 2 answers each are 16, of 20 answers 4 are left; expected n up to 2")
    assert len(policy.seeds) == 1, "what is refused costs nothing"
    assert log.rollouts() == 16


def report(set_name: str) -> EvalReport:
    cell = CellStats(n=4, valid=0.5, optimal=0.25, mean_tokens=9.0, outcomes={"hole": 2})
    figures = {name: 0 for name, field in EvalReport.model_fields.items() if field.is_required()}
    return EvalReport.model_construct(**figures | {"set": set_name, "cells": {"3x3": cell}, "macro_valid": 0.5})


def test_evaluation_shows_aggregates_of_open_sets_only() -> None:
    log, tool = made("evaluate_checkpoint", evaluate=report)
    seen = result_of(log, tool, set="validation")
    assert (seen["columns"], seen["rows"]) == (["n", "valid", "optimal", "n hole"], {"3x3": [4, 0.5, 0.25, 2]})
    anchor = result_of(log, tool, set="anchor")
    assert anchor == {
        "set": "anchor",
        "macro_valid": 0.5,
        "macro_optimal": 0,
        "columns": ["n", "valid", "optimal"],
        "rows": {"3x3": [4, 0.5, 0.25]},
    }
    for sealed in ("test", "benchmark"):
        with pytest.raises(ValidationError):
            tool.invoke({"set": sealed})


def failures_file(folder: Path) -> Path:
    file = folder / "validation.failures.jsonl"
    row = {"sample": 0, "answer": "x" * 5000, "states": [[[0, 0]]] * 99, "actions": [], "rewards": [], "fault": None}
    rows = [
        {"id": f"i{i}", "cell": f"{3 + i % 2}x{3 + i % 2}", "outcome": "hole" if i < 6 else "parse_error", **row}
        for i in range(8)
    ]
    file.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return file


def test_failures_are_listed_and_opened_one_at_a_time(tmp_path: Path) -> None:
    file = failures_file(tmp_path)
    log, tool = made("list_failures", failures=file)
    data = result_of(log, tool, cell="3x3", outcome="hole", limit=2)
    assert (data["found"], data["of"]) == (3, 8)
    assert [failure["id"] for failure in data["failures"]] == ["i0", "i2"]
    log, tool = made("open_failure", failures=file)
    opened = result_of(log, tool, id="i2")
    assert (opened["cell"], len(opened["answer"]), len(opened["states"]), opened["steps"]) == ("3x3", 600, 24, 99)
    assert "no failure of the validation set has the id 'i9'" in result_of(log, tool, id="i9")["error"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"cell": "33x3"}, "cell: unknown cell '33x3'; did you mean '3x3'"), ({"outcome": "x"}, "unknown outcome 'x'")],
)
def test_a_cell_or_an_outcome_that_there_is_none_of_is_told(arguments: dict[str, str], words: str) -> None:
    log, tool = made("list_failures")
    assert words in result_of(log, tool, **arguments)["error"]


def full_report(set_name: str) -> EvalReport:
    """Of a policy that shows every outcome on every cell."""
    outcomes = dict.fromkeys(LAKE.outcomes, 11)
    cell = CellStats(n=111, valid=0.12345, optimal=0.12345, mean_tokens=99.9, outcomes=outcomes)
    return report(set_name).model_copy(update={"cells": dict.fromkeys(LAKE.cells(), cell), "macro_valid": 0.12345})


def test_what_a_tool_gives_is_not_cut_by_the_default_limit(tmp_path: Path) -> None:
    """Every tool as it is called without arguments, on the eight cells of the lake and a run with a long history."""
    cells, knobs = LAKE.cells(), LAKE.knobs(LAKE.default_config())
    file = tmp_path / "validation.failures.jsonl"
    rows = [{"id": f"10x10-2-{n:010d}-0ffa77", "cell": "10x10", "outcome": "goal_not_reached"} for n in range(40)]
    rest = {"sample": 0, "answer": "(9,9)" * 60, "states": [], "actions": [], "rewards": [], "fault": None}
    file.write_text("".join(json.dumps(row | rest) + "\n" for row in rows))
    entry = {
        "designer": "self",
        "changes": [f"{path} 0.123 -> 0.456" for path in list(knobs)[-8:]],
        "accepted": True,
        "anchor_before": 0.12345,
        "anchor_after": 0.12345,
        "predicted": dict.fromkeys(cells, 55),
        "measured": dict.fromkeys(cells, 0.12345),
    }
    context = context_of(
        failures=file,
        history=[{"stage": stage, **entry} for stage in range(1, 9)],
        evaluate=full_report,
        proposed=LAKE.with_values(LAKE.default_config(), {path: knob.up for path, knob in knobs.items()}),
        policy=Stays,
        max_rollouts=256,
    )
    names = [name for name in known_tools() if not TOOLS[name].with_answer]
    tools = toolbox(names, context, ToolLog())
    given: dict[str, Any] = {"open_failure": {"id": rows[0]["id"]}, "compare_configs": {"second": {"base": "proposed"}}}
    most = Limits().max_result_characters
    for name in names:
        text = call_as_text(tools, ToolLog(), name, given.get(name, {}), most_characters=most)
        assert "error" not in json.loads(text), name
    assert len(json.loads(call_as_text(tools, ToolLog(), "read_history", {}, most_characters=most))["history"]) == 3


class Guarded:
    """An environment that keeps its sealed sets and every split but the probe's to itself."""

    def __init__(self) -> None:
        self.generated: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("frozen_set", "split_of"):
            raise AssertionError(f"a tool reached for {name}")
        return getattr(LAKE, name)

    def generate(self, *arguments: Any, split: str = "training", **named: Any) -> Any:
        self.generated.append(split)
        return LAKE.generate(*arguments, split=split, **named)


PATHS = st.sampled_from([*LAKE.knobs(LAKE.default_config()), "test", "gates.g1"])
VALUES = st.dictionaries(PATHS, st.floats(0, 1), max_size=2)
SIDES = st.fixed_dictionaries({"base": st.sampled_from(["accepted", "proposed", "test"]), "values": VALUES})
ARGUMENTS: dict[str, Any] = {
    "measure_config": {"values": VALUES, "n": st.integers(1, 8)},
    "compare_configs": {"first": SIDES, "second": SIDES, "n": st.integers(1, 8)},
    "probe_policy": {"values": VALUES, "n": st.integers(1, 4)},
    "evaluate_checkpoint": {"set": st.sampled_from(["validation", "anchor", "test", "benchmark", "training"])},
    "read_history": {"last": st.integers(-1, 70)},
    "list_failures": {"cell": st.sampled_from(["3x3", "test", ""]), "limit": st.integers(0, 40)},
    "open_failure": {"id": st.sampled_from(["i1", "../test.failures.jsonl", "test-1"])},
}
SEALED = {
    text
    for name in ("anchor", "test", "benchmark")
    for task in LAKE.frozen_set(name)[::40]
    for text in (task.id, LAKE.prompt(task, "compact")[-1]["content"])
}


class Stays:
    def generate(self, prompts: Sequence[Any], *, samples: int = 1, **_: Any) -> list[list[Completion]]:
        return [[Completion(text="", prompt_tokens=1, tokens=1, finish_reason="stop")] * samples for _ in prompts]


@given(data=st.data(), name=st.sampled_from(sorted(ARGUMENTS)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_tool_reaches_a_sealed_set(tmp_path: Path, data: st.DataObject, name: str) -> None:
    """Whatever a role asks for: only tasks of the probe split, one file of failures, and reports of the open sets."""
    assert {*ARGUMENTS} == {one for one in known_tools() if not TOOLS[one].with_answer}
    file = tmp_path / "validation.failures.jsonl"
    if not file.exists():
        failures_file(tmp_path)
    asked: list[str] = []

    def evaluate(set_name: str) -> EvalReport:
        asked.append(set_name)
        return report(set_name)

    environment = Guarded()
    context = context_of(
        environment=environment,
        failures=file,
        evaluate=evaluate,
        policy=Stays,
        proposed=data.draw(st.sampled_from([None, LAKE.default_config()])),
    )
    log = ToolLog()
    tools = toolbox([name], context, log)
    arguments = data.draw(st.fixed_dictionaries({}, optional=ARGUMENTS[name]))
    text = call_as_text(tools, log, name, arguments, most_characters=2000)
    assert len(text) <= 2000
    assert not [sealed for sealed in SEALED if sealed in text]
    assert set(asked) <= {"validation", "anchor"}
    assert set(environment.generated) <= {"probe"}
    assert len(log.calls) == 1


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

    tool = launch_stage_tool(log, spec=lambda steps, scale: (steps, scale), directory=tmp_path, steps=(5, 40), run=run)
    data = result_of(log, tool, steps=20, learning_rate_scale=0.5)
    assert (data["steps"], log.tokens()) == (20, 77)
    assert "somewhere" not in json.dumps(data)
    assert launched == [((20, 0.5), tmp_path)]
    assert "expected 5 to 40" in result_of(log, tool, steps=41)["error"]
    assert "expected one of" in result_of(log, tool, steps=20, learning_rate_scale=3.0)["error"]
    assert len(launched) == 1
    assert [call.error is None for call in log.calls] == [True, False, False]


def test_a_failure_is_logged_and_propagates(tmp_path: Path) -> None:
    log, tool = made("list_failures", failures=tmp_path / "missing.jsonl")
    with pytest.raises(FileNotFoundError):
        tool.invoke({})
    assert "FileNotFoundError" in (log.calls[0].error or "")


@given(text=st.text(max_size=80), length=st.integers(30, 90))
def test_clipped_text_is_short_and_can_be_written(text: str, length: int) -> None:
    short = clipped(text, length)
    assert len(short) <= max(length, 0)
    short.encode()
    if len(text) <= length and text.isascii():
        assert short == text
