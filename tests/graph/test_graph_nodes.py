"""Nodes on their own: a proposal whose tasks cannot be had costs the stage nothing, and seeds and subsets hold."""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity import Cell, Parity, ParityConfig
from rich.console import Console

from agents.gates import g8_calibration
from agents.structured import RoleFailure
from envsim.api import EnvsimError, YieldError
from envsim.documents import DocumentError
from graph import gating, inputs, nodes, tasks
from graph.acceptance import Comparison, Judgement
from graph.drive import drive
from graph.prepare import prepare
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings, SettingsError
from graph.speaking import recorded
from graph.state import Pointer, RunState
from graph.summary import token_table
from graph.timing import Clock
from graph.training import interruption_line, resumption_lines, stage_result
from graph.work import Work, start_pointer, thinned
from trainer.metrics import StepMetrics, append
from trainer.spec import StageResult
from trainer.stage import StageError
from trainer.statistics import PairedChange
from trainer.training_settings import SelectionSettings

NOISY = ParityConfig(short=Cell(noise_ratio=1.0))
"""A configuration that the second environment refuses to generate."""


@pytest.fixture
def work(tmp_path: Path, profile: Path) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile)))
    return new_work(prepared, RunDir(tmp_path), Console(file=io.StringIO()), Clock())


def state(stage: int) -> RunState:
    return RunState(
        stage=stage, revision=0, review="approve", why="", config="initial.json", reused=0, current=pointer(-1)
    )


def test_tasks_that_repeat_cannot_be_trained_on(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment whose space runs out repeats tasks, and a trainer passes once over tasks that differ."""
    work.run.write("stages/001/config.json", ParityConfig().model_dump())
    real = Parity.generate

    def repeating(self: Parity, *arguments: Any, **named: Any) -> Any:
        made = real(self, *arguments, **named)
        return made.model_copy(update={"instances": [*made.instances[1:], made.instances[1]]})

    assert tasks.stage_tasks(work, 1, 8, pointer(-1))["n"] == 8
    monkeypatch.setattr(Parity, "generate", repeating)
    with pytest.raises(EnvsimError, match="only 8 of 9 tasks differ"):
        tasks.stage_tasks(work, 1, 9, pointer(-1))


@pytest.mark.parametrize("word", [True, False])
def test_a_word_on_nothing_is_bad_input(work: Work, word: bool) -> None:
    name = "approve" if word else "reject"
    with pytest.raises(SettingsError, match=f"--{name}: no proposal of .* waits for approval"):
        asyncio.run(drive(work, word, lambda: None))
    assert list(work.run.root.iterdir()) == []


def test_a_damaged_budget_is_the_profiles_again(work: Work) -> None:
    given = nodes.stage_budget(work, 0, pointer(-1))
    work.run.path("stages/000/budget.json").write_text('{"steps"')
    assert nodes.stage_budget(work, 0, pointer(-1)) == given


def test_the_analyst_does_not_read_the_diagnosis_that_it_gives(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash may have cut it, and the analyst gives it again."""
    monkeypatch.setattr(inputs, "read_evidence", lambda *_: None)
    work.run.write("initial.json", ParityConfig().model_dump())
    work.run.path("stages/001").mkdir(parents=True)
    work.run.path("stages/001/diagnosis.json").write_text('{"summary"')
    assert inputs.role_inputs(work, state(1), work.roles["failure_analyst"])["diagnosis"] is None
    with pytest.raises(DocumentError, match=r"diagnosis\.json"):
        inputs.role_inputs(work, state(1), work.roles["config_designer"])


def test_what_a_role_said_before_it_stopped_the_run_is_kept(work: Work) -> None:
    def gives_nothing() -> dict[str, Any]:
        raise RoleFailure("config_designer", ["changes: missing"], "{oops")

    with pytest.raises(RoleFailure):
        recorded(work, "stages/001/proposals/0/proposal.json", "config_designer", {}, gives_nothing)
    assert not work.run.exists("stages/001/proposals/0/proposal.json")
    kept = {"role": "config_designer", "errors": ["changes: missing"], "raw": "{oops"}
    assert work.run.read("stages/001/proposals/0/proposal.failed.json") == kept
    told = [event["file"] for event in work.run.events() if event["event"] == "role_failed"]
    assert told == ["stages/001/proposals/0/proposal.failed.json"]


def pointer(stage: int) -> Pointer:
    return Pointer(stage=stage, path=f"stages/{stage}/model", sha256=str(stage), anchor=0.5)


def decided(work: Work, monkeypatch: pytest.MonkeyPatch, before: RunState) -> RunState:
    """The state after the decision on a stage that was accepted; what it was measured by does not matter here."""
    change = PairedChange(delta=0.0, standard_error=0.01, low=-0.02, high=0.02, n=8)
    comparison = Comparison(valid=change, optimal=change, cells=[])
    kept = Judgement(accepted=True, reason="no change", current=before["new"], champion=before["champion"])
    monkeypatch.setattr(nodes, "compare_checkpoints", lambda *_: comparison)
    monkeypatch.setattr(nodes, "judge", lambda *_: kept)
    monkeypatch.setattr(nodes, "scores", lambda *_: {"macro_valid": 0.5, "macro_optimal": 0.5, "n": 8})
    monkeypatch.setattr(nodes, "write_report", lambda *_: None)
    return RunState(**{**before, **nodes.accept_or_roll_back(before, work)})


def test_a_rejection_ends_with_its_stage(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """The critic of the next stage reads the proposal that lies before it."""
    answer = {"parsed": {"rationale": "more noise", "changes": [], "predicted": {}}, "errors": []}
    work.run.write("stages/002/proposals/0/proposal.json", answer)
    rejected = RunState(**{**state(1), "review": "reject", "why": "a gate failed", "new": pointer(1)})
    rejected = RunState(**{**rejected, "current": pointer(0), "champion": pointer(0)})
    following = decided(work, monkeypatch, rejected)
    assert (following["stage"], following["revision"]) == (2, 0)
    assert inputs.reviewed_proposal(work, following).rationale == "more noise"


def test_a_proposal_that_cannot_be_generated_is_replaced_by_the_accepted_configuration(work: Work) -> None:
    work.run.write("initial.json", ParityConfig().model_dump())
    work.run.write("stages/001/config.json", NOISY.model_dump())
    update = nodes.dataset(state(1), work)
    assert update["reused"] == 1
    assert work.config("stages/001/config.json") == ParityConfig()
    plan = work.run.read("stages/001/plan.json")
    assert plan["source"] == "reused"
    assert "0 % of the draws are that noisy" in plan["reason"]
    assert work.run.read("stages/001/dataset.json")["n"] == 8


def test_a_kill_after_the_fallback_changes_no_count(work: Work) -> None:
    """The node ran, and its checkpoint was never written: it runs again on the same state."""
    work.run.write("initial.json", ParityConfig().model_dump())
    work.run.write("stages/001/config.json", NOISY.model_dump())
    first = nodes.dataset(state(1), work)
    assert nodes.dataset(state(1), work) == first
    assert first["reused"] == 1


def worker_failure(work: Work, monkeypatch: pytest.MonkeyPatch, zero_variance: float) -> tuple[StageError, list[int]]:
    """A worker that did all three steps of stage 001 and found that the weights had not moved."""
    work.run.write("stages/001/budget.json", {"reason": "", "steps": 3, "learning_rate_scale": 1.0})
    work.run.write("stages/001/dataset.json", {"n": 6, "sha256": "0"})
    attempt = work.run.path("stages/001/attempt-1")
    attempt.mkdir(parents=True)
    figures = dict.fromkeys(StepMetrics.model_fields, 0.0) | {"steps": 3, "tokens": 5, "reward": 0.2}
    for step in (1, 2, 3):
        append(attempt, StepMetrics.model_validate(figures | {"step": step, "zero_variance": zero_variance}))
    failure = StageError("the worker ended with exit code 1: TrainingError: the weights moved by 0.0 after 3 steps")

    def run_stage(*_: Any, **__: Any) -> None:
        launched.append(1)
        raise failure

    launched: list[int] = []
    monkeypatch.setattr(nodes, "run_stage", run_stage)
    return failure, launched


def test_a_stage_that_could_teach_nothing_is_rolled_back_with_the_reason(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, launched = worker_failure(work, monkeypatch, zero_variance=1.0)
    before = RunState(**{**state(1), "current": pointer(0), "champion": pointer(-1)})
    update = nodes.train(before, work)
    assert nodes.train(before, work) == update
    assert launched == [1], "what is known is not trained again"
    assert update["new"] == {**pointer(0), "stage": 1, "anchor": 0.0}
    after = decided(work, monkeypatch, RunState(**{**before, **update}))
    assert (after["current"], after["champion"], after["config"]) == (pointer(0), pointer(-1), "initial.json")
    decision = work.run.read("stages/001/decision.json")
    assert not decision["accepted"]
    assert decision["reason"].startswith("no learning signal")
    assert stage_result(work.run, 1).zero_variance_share == 1.0


def test_weights_that_stand_still_beside_a_signal_are_an_error(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    failure, _ = worker_failure(work, monkeypatch, zero_variance=0.5)
    with pytest.raises(StageError) as raised:
        nodes.train(RunState(**{**state(1), "current": pointer(0)}), work)
    assert raised.value is failure


def test_a_budget_out_of_bounds_is_refused_with_the_reason(work: Work) -> None:
    work.run.write("stages/001/budget.json", {"reason": "", "steps": 99, "learning_rate_scale": 1.0})
    with pytest.raises(StageError, match="stage 001 was not launched: steps = 99 is out of bounds; expected 3 to 5"):
        nodes.train(RunState(**{**state(1), "current": pointer(0)}), work)


def designed(work: Work, stage: int, percent: int, *, g8: bool, own: bool = True) -> None:
    """A finished stage whose every cell was predicted at ``percent`` and then measured at 10 %; G8 may have failed."""
    source = "fixed" if g8 else "reused"
    proposal = {"parsed": {"predicted": {"short": percent, "long": percent}}}
    work.run.write(f"stages/{stage:03d}/plan.json", {"source": source, "own": own and g8, "revision": 0})
    work.run.write(f"stages/{stage:03d}/proposals/0/proposal.json", proposal)
    work.run.write(f"stages/{stage:03d}/proposals/0/gates.json", {"findings": [{"gate": "G8", "passed": g8}]})


def test_bad_predictions_cost_one_stage_and_not_the_rest_of_the_run(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gating, "trained", lambda _, stage: pointer(stage))
    measured = SimpleNamespace(cells={cell: SimpleNamespace(valid=0.1) for cell in ("short", "long")})
    monkeypatch.setattr(Work, "evaluate", lambda *_: measured)

    def passes(stage: int) -> bool:
        context = SimpleNamespace(predictions=gating.predictions(work, stage))
        return g8_calibration.check(context, g8_calibration.G8Settings()).passed  # type: ignore[arg-type]

    designed(work, 1, 95, g8=True)
    designed(work, 2, 95, g8=True, own=False)
    assert passes(3), "a rule's prediction is not the designer's"
    designed(work, 3, 95, g8=True)
    assert not passes(4)
    designed(work, 4, 95, g8=False)
    assert passes(5), "the refusal was paid for with stage 004"
    designed(work, 5, 95, g8=True)
    assert passes(6), "one strike since"
    designed(work, 6, 95, g8=True)
    assert not passes(7)


def test_tasks_are_chosen_by_a_probe_once_and_its_tokens_are_booked(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = work.profile
    config = ParityConfig().model_dump(mode="json")
    work.run.write("stages/000/config.json", config)
    start = start_pointer(work, 0.0)
    nodes.dataset(RunState(**{**state(0), "current": start}), work)
    drawn = work.run.read("stages/000/dataset.json")
    assert "selection" not in drawn

    work.profile = plain.model_copy(update={"selection": SelectionSettings(samples=2, oversampling=4)})
    nodes.dataset(RunState(**{**state(0), "current": start}), work)
    chosen = work.run.read("stages/000/dataset.json")
    found = chosen["selection"]
    assert (found["needed"], found["candidates"]) == (drawn["n"], 4 * drawn["n"])
    assert (chosen["n"], chosen["measurement"]["n"]) == (drawn["n"], 4 * drawn["n"])
    assert found["applied"]
    assert found["effective_after"] > found["effective_before"]
    assert chosen["sha256"] != drawn["sha256"]
    assert token_table(work.run, [])["probes"] == found["tokens"] > 0
    assert [event["kept"] for event in work.run.events() if event["event"] == "selected"] == [found["kept"]]

    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("the choice was made before")

    monkeypatch.setattr(tasks, "select", asked)
    nodes.dataset(RunState(**{**state(0), "current": start}), work)
    assert work.run.read("stages/000/dataset.json") == chosen


def test_an_initial_configuration_that_cannot_be_generated_is_an_error(work: Work) -> None:
    work.run.write("initial.json", NOISY.model_dump())
    work.run.write("stages/000/config.json", NOISY.model_dump())
    with pytest.raises(YieldError):
        nodes.dataset(state(0), work)


def test_seeds_depend_on_the_run_and_on_the_purpose(work: Work) -> None:
    seeds = {work.seed(stage, purpose) for stage in range(3) for purpose in ("dataset", "training", "probe")}
    assert len(seeds) == 9
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_thinned_set_is_spread_over_the_whole() -> None:
    assert thinned(range(10), 5, lambda _: "one") == [0, 2, 4, 6, 8]
    assert thinned(range(3), 0, str) == thinned(range(3), 9, str) == [0, 1, 2]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    more=st.integers(0, 200),
    mixed=st.randoms(use_true_random=False),
)
def test_a_thinned_set_keeps_every_cell_in_proportion(sizes: list[int], more: int, mixed: random.Random) -> None:
    whole = [f"{cell}-{i}" for cell, size in enumerate(sizes) for i in range(size)]
    mixed.shuffle(whole)
    n = min(len(sizes) + more, len(whole))
    part = thinned(whole, n, lambda name: name.partition("-")[0])
    assert part == [name for name in whole if name in set(part)]
    assert len(part) == n
    counts = Counter(name.partition("-")[0] for name in part)
    assert len(counts) == len(sizes)
    if len(set(sizes)) == 1:
        assert max(counts.values()) - min(counts.values()) <= 1


def test_a_set_cannot_be_thinner_than_its_cells() -> None:
    with pytest.raises(ValueError, match="2 instances cannot stand for 3 cells"):
        thinned(range(9), 2, lambda number: str(number % 3))


def test_what_interrupted_a_stage_is_told_of() -> None:
    event = {"event": "attempt_ended", "attempt": "attempt-1", "outcome": "stale_heartbeat", "detail": "no heartbeat"}
    assert interruption_line(event).startswith("attempt-1 ended: stale_heartbeat, no heartbeat; another goes on")
    figures = {name: 0 for name, field in StageResult.model_fields.items() if field.is_required()}
    plain = figures | {"seconds": {}, "spec_hash": "", "model": {"path": "m", "sha256": "0"}}
    assert resumption_lines(StageResult.model_validate(plain)) == []
    passed = {"path": "attempt-1/checkpoint-2", "fault": "missing_file", "detail": "optimizer.pt is missing"}
    told = StageResult.model_validate(plain | {"exact": False, "micro_batch": 4, "passed_over": [passed]})
    assert resumption_lines(told) == [
        "passed over attempt-1/checkpoint-2: missing_file, optimizer.pt is missing",
        "memory ran out: 4 completions at once, the batch stayed as it was",
        "the weights are not bit by bit those of one undisturbed attempt",
    ]
