"""A budget in tokens: what is charged, how the last stage is cut, and when a run ends."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from graph import layout, session
from graph.build import after_stage
from graph.prepare import prepare
from graph.rundir import RunDir
from graph.settings import RunSettings, SettingsError, parse_settings
from graph.spending import affordable_steps, affords_another, charged, design_tokens
from graph.state import Pointer, RunState
from graph.summary import token_table
from graph.timing import Clock
from graph.work import Work
from trainer.spec import ModelRef, StageResult

HERE = Pointer(stage=-1, path="model", sha256="0", anchor=0.0)


def work_with(budget: int | None, root: Path, profile: Path) -> Work:
    """The profile's stages have 4 steps, 3 at least and 5 at most."""
    settings = RunSettings(
        environment="parity:Parity", profile=str(profile), stages=9, budget="profile", token_budget=budget
    )
    root.mkdir()
    return session.new_work(prepare(settings), RunDir(root), Console(file=io.StringIO()), Clock())


def trained(work: Work, stage: int, tokens: int) -> None:
    result = StageResult(
        spec_hash="0",
        stage=stage,
        steps=4,
        model=ModelRef(path="model", sha256="0"),
        weight_change=0.0,
        generated_tokens=tokens,
        reward_first=0.0,
        reward_last=0.0,
        zero_variance_share=1.0,
        seconds={},
        attempt=1,
    )
    work.run.write(layout.in_stage(stage, layout.NO_SIGNAL), result.model_dump(mode="json"))


def designed(work: Work, stage: int) -> None:
    """113 tokens: roles, a proposal that was sent back, and probes."""
    for file, tokens in (
        ("answers/failure_analyst.json", 1),
        ("proposals/0/proposal.json", 2),
        ("proposals/0/critique.json", 3),
        ("proposals/1/proposal.json", 7),
        ("probes/0123456789abcdef.json", 100),
    ):
        work.run.write(layout.in_stage(stage, file), {"tokens": tokens})
    # Neither of these has tokens of its own.
    work.run.write(layout.in_stage(stage, "probes/made_from.json"), {"tokens": 10**6})
    work.run.write(layout.in_stage(stage, "proposals/0/gates.json"), {"tokens": 10**6})


def test_training_probes_and_roles_are_charged(tmp_path: Path, profile: Path) -> None:
    work = work_with(None, tmp_path / "run", profile)
    for stage in range(3):
        trained(work, stage, 400)
        designed(work, stage)
    work.run.write("stages/001/selection/x/candidates.eval.json", {"generated_tokens": 50})
    assert charged(work.run, trained=3, designed=3) == 3 * 400 + 3 * 113 + 50
    # Before stage 1 trains its design is paid for, and nothing that comes later counts.
    assert charged(work.run, trained=1, designed=2) == 400 + 2 * 113
    work.run.path("stages/000/answers/failure_analyst.json").write_text('{"tokens"')
    assert charged(work.run, trained=1, designed=1) == 400 + 112


def test_notes_and_the_policys_answers_to_tools_are_charged(tmp_path: Path, profile: Path) -> None:
    work = work_with(None, tmp_path / "run", profile)
    calls = [{"tokens": 20}, {"tokens": 30}]
    for file in ("notes/a.json", "proposals/0/notes/b.json", "proposals/0/proposal.json"):
        work.run.write(layout.in_stage(1, file), {"tokens": 4, "tool_calls": calls})
    # What a take said is in its proposal, what it had called is not.
    work.run.write(layout.in_stage(1, "proposals/0/takes/0.json"), {"tokens": 2, "tool_calls": calls})
    work.run.write(layout.in_stage(1, "proposals/0/takes/0.tools.json"), {"tool_calls": calls})
    assert design_tokens(work.run, 1) == 3 * (4 + 50) + 2 * 50
    assert token_table(work.run, [])["probes"] == 5 * 50


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        (None, 4),
        # 100 tokens a step, 513 spent: enough for this stage and a shortest one.
        (513 + 700, 4),
        # What is left after four steps would be no stage: all of it goes to this one.
        (513 + 699, 5),
        (513 + 450, 4),
        (513 + 399, 3),
        (513 + 10, 3),
    ],
)
def test_the_last_stage_is_cut(tmp_path: Path, profile: Path, budget: int | None, steps: int) -> None:
    work = work_with(budget, tmp_path / "run", profile)
    trained(work, 0, 400)
    designed(work, 1)
    assert affordable_steps(work, 1, HERE) == steps


@pytest.mark.parametrize(("budget", "more"), [(None, True), (700, True), (699, False), (100, False)])
def test_a_run_ends_when_no_stage_is_left(tmp_path: Path, profile: Path, budget: int | None, more: bool) -> None:
    work = work_with(budget, tmp_path / "run", profile)
    trained(work, 0, 400)
    assert affords_another(work, 1, HERE) is more
    state = RunState(stage=1, current=HERE)
    assert after_stage(state, work) == ("next stage" if more else "done")
    assert after_stage(RunState(stage=10, current=HERE), work) == "done"


@pytest.mark.parametrize(("budget", "more"), [(800 + 113 + 300 + 113, True), (800 + 113 + 300 + 112, False)])
def test_the_next_stage_is_expected_to_cost_as_much_design(
    tmp_path: Path, profile: Path, budget: int, more: bool
) -> None:
    work = work_with(budget, tmp_path / "run", profile)
    trained(work, 0, 400)
    trained(work, 1, 400)
    designed(work, 1)
    assert affords_another(work, 2, HERE) is more


def test_a_budget_needs_the_trainer_pinned() -> None:
    with pytest.raises(SettingsError, match=r"^x: token_budget is 5 and budget is 'role'"):
        parse_settings({"token_budget": 5}, "x")
    assert "token_budget" not in RunSettings().model_dump()
