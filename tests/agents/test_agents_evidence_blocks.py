"""Evidence in blocks: statistics of known answers, clusters, ablation, the budget's law, and the way out of failure."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from agents_fakes import evidence_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agents import teacher
from agents.checks import semantic_checks
from agents.designers import DesignContext, get_designer
from agents.evidence import BLOCKS, BudgetError, EvidenceSettings, fit, silent_shares, without
from agents.evidence.clusters import clusters
from agents.evidence.statistics import cell_statistics
from agents.render import render_messages
from agents.roles import load_roles
from agents.rolespec import RoleSpec
from agents.schemas import (
    Change,
    Critique,
    Evidence,
    FailureCluster,
    FailureExample,
    HistoryEntry,
    Proposal,
    TrainingEvidence,
)
from envsim import registry
from envsim.api import Fault
from trainer.checkpoint import load_tokenizer, resolve
from trainer.completions import Keeper
from trainer.decoding import encode
from trainer.evaluate import Rollout

LAKE = registry.get("lake")
HOPELESS = (0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
RATES = (0.9, 0.6, 0.4, 0.2, 0.1, 0.05, 0.0, 0.0)


def answered(instances: Any, answer: Any) -> list[Rollout]:
    rows = []
    for instance in instances:
        text = answer(instance)
        verdict = LAKE.score(instance, text)
        rows.append(
            Rollout(
                id=instance.id,
                cell=LAKE.cell(instance),
                sample=0,
                answer=text,
                tokens=len(text),
                **verdict.model_dump(include={"outcome", "valid", "optimal", "regret", "fault"}),
            )
        )
    return rows


@cache
def drawn() -> tuple[Any, ...]:
    config = LAKE.with_values(LAKE.default_config(), {f"{cell}.wait_ratio": 0.5 for cell in LAKE.cells()})
    return tuple(LAKE.generate(config, 64, 5, split="validation").instances)


def test_statistics_of_optimal_answers() -> None:
    rows = answered(drawn(), lambda task: LAKE.reference_answer(task, "compact"))
    found = cell_statistics(LAKE, rows, {task.id: task for task in drawn()})
    assert [one.cell for one in found] == LAKE.cells()
    for one in found:
        assert (one.agents, one.valid, one.optimal, one.regret, one.conflicts) == (2, 1.0, 1.0, 0.0, 0.0)
        assert one.fault_step == {}
        assert sum(one.actions.values()) == pytest.approx(1)
    assert sum(one.n for one in found) == 64
    needed = [one for one in found if one.waits_needed]
    assert needed
    waits = sum((one.waits_used or 0) * one.n for one in needed) / sum(one.n for one in needed)
    idle = [one.waits_idle for one in found if one.waits_idle is not None]
    assert waits > 0.3 > max(idle), "who must wait does, who need not hardly does"


def test_statistics_of_agents_that_ignore_each_other() -> None:
    rows = answered(drawn(), lambda task: LAKE.null_answers(task, "compact", 0)["each_alone"])
    found = cell_statistics(LAKE, rows, {task.id: task for task in drawn()})
    assert max(one.conflicts for one in found) > 0.3
    assert all(one.waits_used in (None, 0.0) for one in found)
    for one in found:
        assert sum(one.fault_step.values()) == round(one.n * (1 - one.valid))


def test_statistics_by_number_of_agents() -> None:
    three = LAKE.editing(["agents"])
    config = three.with_values(three.default_config(), {"agents.2": 0.5, "agents.3": 0.5})
    tasks = three.generate(config, 32, 1, split="validation").instances
    rows = answered(tasks, lambda _: "")
    found = cell_statistics(LAKE, rows, {task.id: task for task in tasks})
    assert {one.agents for one in found} == {2, 3}
    assert all(one.fault_step == {"form": one.n} and one.actions == {} for one in found)


def test_groups_without_signal_are_counted_by_cell_and_agents(tmp_path: Path) -> None:
    three = LAKE.editing(["agents"])
    config = three.with_values(three.default_config(), {"agents.2": 0.5, "agents.3": 0.5})
    tasks = three.generate(config, 16, 1, split="validation").instances
    # Of the tasks with two agents every second group earns the same, of those with three each one.
    pairs = [task for task in tasks if three.agents(task) == 2]
    loud = {task.id for task in pairs[::2]}
    keeper = Keeper(tmp_path, 64)
    for step, part in enumerate((tasks[:8], tasks[8:]), start=1):
        answers = [(task, 0.25 + (task.id in loud) * number) for task in part for number in (0, 1)]
        keeper.keep(
            step,
            {
                "prompt": ["p"] * len(answers),
                "instance_id": [task.id for task, _ in answers],
                "cell": [three.cell(task) for task, _ in answers],
                "reward": [reward for _, reward in answers],
            },
        )
        keeper.flush()
    found = silent_shares(three, tasks, tmp_path, 2)
    assert set(found) == {(three.cell(task), three.agents(task)) for task in tasks}
    for (cell, agents), share in found.items():
        alike = [task for task in tasks if (three.cell(task), three.agents(task)) == (cell, agents)]
        assert share == pytest.approx(1 - sum(task.id in loud for task in alike) / len(alike))
        assert agents == 2 or share == 1.0
    assert min(found.values()) < 1.0
    # A step that is not kept, a task that is not known, a file that is torn: nothing is said.
    assert silent_shares(three, tasks, tmp_path, 3) == silent_shares(three, tasks[1:], tmp_path, 2) == {}
    assert silent_shares(three, tasks, tmp_path / "none", 0) == {}
    next((tmp_path / "completions").iterdir()).write_bytes(b"torn")
    assert silent_shares(three, tasks, tmp_path, 2) == {}
    rows = answered(tasks, lambda _: "")
    told = cell_statistics(three, rows, {task.id: task for task in tasks}, found)
    assert {(one.cell, one.agents): one.zero_variance for one in told} == found


def row(number: int, cell: str, outcome: str, step: int | None) -> Rollout:
    return Rollout(
        id=f"i{number:03}",
        cell=cell,
        sample=0,
        answer="",
        tokens=1,
        outcome=outcome,
        valid=False,
        optimal=False,
        regret=1.0,
        fault=None if step is None else Fault(step=step),
    )


def example(name: str, one: Rollout, kind: str) -> FailureExample:
    return FailureExample.model_validate(
        {"id": name, "instance": "", "cell": one.cell, "outcome": one.outcome, "kind": kind, "where": one.id}
        | {"answer": ""}
    )


def test_clusters_are_by_outcome_and_time_with_a_typical_and_an_odd_one() -> None:
    rows = [row(i, "3x3", "hole", 2) for i in range(5)] + [row(9, "6x6", "hole", 4)]
    rows += [row(20 + i, "4x4", "hole", 7) for i in range(2)] + [row(30, "5x5", "parse_error", None)]
    first, second, third = clusters(rows, LAKE.cells(), example)
    assert (first.outcome, first.phase, first.n, first.cells) == ("hole", "early", 6, {"3x3": 5, "6x6": 1})
    assert first.share == pytest.approx(6 / 9)
    assert first.typical.cell == "3x3"
    assert first.odd is not None
    assert first.odd.cell == "6x6"
    assert (second.phase, second.n) == ("late", 2)
    assert (third.outcome, third.phase, third.odd) == ("parse_error", "form", None)
    assert [one.id for one in clusters(rows, LAKE.cells(), example, most=1)] == ["c1"]


def rich(failures: int = 8, history: int = 5, text: int = 300, rates: tuple[float, ...] = RATES) -> Evidence:
    """Evidence with something in every block."""
    shown = [
        FailureExample.model_validate(
            {"id": f"e{i}", "instance": "p " * text, "cell": LAKE.cells()[i % 8], "outcome": "hole", "kind": "typical"}
            | {"where": "step 1", "answer": "(1,1)" * (text // 2)}
        )
        for i in range(failures)
    ]
    past = [
        HistoryEntry(
            stage=i,
            designer="self",
            changes=["3x3.data_ratio 0.125 -> 0.250"],
            accepted=True,
            anchor_before=0.1,
            anchor_after=0.2,
            predicted=dict.fromkeys(LAKE.cells(), 30),
            measured=dict.fromkeys(LAKE.cells(), 0.25),
        )
        for i in range(history)
    ]
    groups = [
        FailureCluster(
            id=f"c{i}", outcome="hole", phase="early", n=3, share=0.2, cells={"3x3": 3}, typical=one, odd=shown[0]
        )
        for i, one in enumerate(shown[:4])
    ]
    tasks = drawn()
    rows = answered(tasks, lambda task: LAKE.null_answers(task, "compact", 0)["each_alone"])
    return evidence_of(LAKE, rates).model_copy(
        update={
            "failures": shown,
            "history": past,
            "clusters": groups,
            "statistics": cell_statistics(LAKE, rows, {task.id: task for task in tasks}, {("3x3", 2): 0.47}),
            "training": TrainingEvidence(stage=0, n=9, knobs={"agents.2": 1.0}, success=None, progress=None),
        }
    )


ROLES = load_roles()


def asked(evidence: Evidence, name: str = "failure_analyst", style: Any = "full") -> str:
    role: RoleSpec = ROLES[name]
    inputs = {"evidence": evidence, "diagnosis": teacher.diagnose(evidence), "gate_report": None, "conditions": []}
    messages = render_messages(role, style, {key: inputs[key] for key in role.inputs})
    return "\n".join(message["content"] for message in messages)


def test_the_full_prompts_show_every_new_block_and_the_compact_ones_none() -> None:
    evidence = rich()
    bare = evidence.model_copy(update={"clusters": [], "statistics": []})
    past = [one.model_copy(update={"predicted": {}, "measured": {}}) for one in evidence.history]
    bare = bare.model_copy(update={"history": past})
    analyst, designer = asked(evidence), asked(evidence, "config_designer")
    assert "c0: hole, early, 20 % of all failures (3x3 3); typical" in analyst
    assert "tasks needing a wait %" in analyst
    assert "training groups without signal %" in analyst
    assert "| 47 |" in analyst
    assert 'predicted %: {"3x3":30,' in analyst
    assert 'measured %: {"3x3":25,"4x4":25' in designer
    assert "hole (early) 20 % of all" in designer
    for name in ("failure_analyst", "config_designer"):
        assert asked(evidence, name, "compact") == asked(bare, name, "compact")


@pytest.mark.parametrize("block", list(BLOCKS))
def test_every_block_can_be_left_out_of_the_evidence_and_of_the_prompts(block: str) -> None:
    evidence = rich()
    cut = without(evidence, [block])
    assert cut.omitted == [block]
    assert cut.model_copy(update={"omitted": []}) != evidence
    assert Evidence.model_validate_json(cut.model_dump_json()) == cut
    prompts = [asked(cut, name) for name in ("failure_analyst", "config_designer")]
    gone = {
        "statistics": "tasks needing a wait",
        "faults": "| hole |",
        "failures": "[e0]",
        "history": "Earlier stages",
        "training": "was trained on",
        "anchor": "no prompt shows it",
    }[block]
    whole = "".join(asked(evidence, name) for name in ("failure_analyst", "config_designer"))
    assert gone in whole or block == "anchor"
    assert not any(gone in prompt for prompt in prompts)


def test_without_faults_no_failures_are_grouped_by_them() -> None:
    assert "Failures alike" in asked(rich())
    assert "Failures alike" not in asked(without(rich(), ["faults"]))


def test_without_training_nothing_is_said_of_groups_without_signal() -> None:
    assert [one.zero_variance for one in rich().statistics][:2] == [0.47, None]
    assert not any(one.zero_variance for one in without(rich(), ["training"]).statistics)


def test_without_statistics_all_cells_look_alike() -> None:
    cut = without(rich(), ["statistics"])
    assert not any(one.measured or one.predicted for one in cut.history)
    assert not any(one.cells for one in cut.clusters)
    assert {cell.valid for cell in cut.cells} == {cut.macro_valid}
    assert without(rich(), []) == rich()


def test_unknown_blocks_are_refused() -> None:
    with pytest.raises(ValidationError, match="'statistics', 'faults', 'failures', 'history', 'anchor' or 'training'"):
        EvidenceSettings.model_validate({"omit": ["failurs"]})


def least(evidence: Evidence) -> Evidence:
    """What stays when everything else has gone."""
    with pytest.raises(BudgetError) as refused:
        fit(evidence, lambda _: 2, 1)
    return refused.value.least


@settings(max_examples=20, deadline=None)
@given(
    failures=st.integers(0, 12), history=st.integers(0, 9), text=st.integers(1, 400), budget=st.integers(300, 30_000)
)
def test_what_fits_is_never_above_its_budget_and_the_most_telling_stays(
    failures: int, history: int, text: int, budget: int
) -> None:
    evidence = rich(failures, history, text)

    def count(shown: Evidence) -> int:
        return len(asked(shown))

    if count(least(evidence)) > budget:
        with pytest.raises(BudgetError) as refused:
            fit(evidence, count, budget)
        assert refused.value.least == least(evidence)
        return
    shown = fit(evidence, count, budget)
    assert count(shown) <= budget
    core = {"cell", "valid", "optimal", "change", "top_fault", "knobs"}
    for cut, whole in zip(shown.cells, evidence.cells, strict=True):
        assert cut.model_dump(include=core) == whole.model_dump(include=core)
    if shown.statistics:
        assert len(shown.failures) == len(evidence.failures), "failures outlive statistics"
    if shown.anchor:
        assert min(2, failures) <= len(shown.failures), "two failures outlive the anchor"
    if shown.clusters:
        assert min(1, history) <= len(shown.history), "the last stage outlives the clusters"
    if len(shown.history) < history:
        assert shown.history == evidence.history[history - len(shown.history) :]
    if count(evidence) <= budget:
        assert shown is evidence


def test_the_tokens_are_those_of_the_models_own_tokenizer() -> None:
    tokenizer = load_tokenizer(resolve("seedling"))
    evidence = rich()

    def count(shown: Evidence) -> int:
        return len(encode(tokenizer, [[{"role": "user", "content": asked(shown)}]], {})[0])

    whole = count(evidence)
    for part in (0.75, 0.5):
        assert count(fit(evidence, count, round(part * whole))) <= part * whole


def hopeless(**changes: Any) -> Evidence:
    return rich(rates=HOPELESS).model_copy(update={"no_signal": True, **changes})


def test_a_hopeless_policy_leads_the_teacher_to_ease() -> None:
    """However loud its failures are: practising their faults would be the vicious circle."""
    config = LAKE.default_config()
    for fault in ("hole", "edge_conflict"):
        cells = [cell.model_copy(update={"top_fault": fault}) for cell in hopeless().cells]
        evidence = hopeless(cells=cells)
        proposal = teacher.propose(evidence, teacher.diagnose(evidence), LAKE.knobs(config), None, [])
        ops = {change.path: change.op for change in proposal.changes}
        assert ops["3x3.data_ratio"] == "up"
        assert (ops["3x3.hole_ratio"], ops["3x3.wait_ratio"]) == ("down", "down")
        assert all(op == "down" for path, op in ops.items() if path != "3x3.data_ratio")
        assert teacher.critique(evidence, proposal, None).verdict == "approve"
        context = DesignContext(LAKE, config, evidence, teacher.diagnose(evidence), stage=1, seed=0)
        assert get_designer("teacher").propose(context) == proposal


def test_the_shipped_prompts_ask_to_ease_where_nothing_is_solved() -> None:
    for name, says in (("config_designer", "Ease: raise the data_ratio"), ("failure_analyst", "has to be easier")):
        assert says in asked(hopeless(), name)
        assert says not in asked(rich(), name)


def changes(*given: tuple[str, str]) -> Proposal:
    made = [Change.model_validate({"path": path, "op": op}) for path, op in given]
    return Proposal(rationale="", changes=made, predicted=dict.fromkeys(LAKE.cells(), 5))


@pytest.mark.parametrize(
    ("proposal", "eases"),
    [
        (changes(("3x3.data_ratio", "up")), True),
        (changes(("5x5.hole_ratio", "down")), True),
        (changes(), False),
        (changes(("3x3.data_ratio", "keep")), False),
        (changes(("10x10.data_ratio", "up")), False),
        (changes(("3x3.data_ratio", "up"), ("3x3.hole_ratio", "up")), False),
        (changes(("3x3.wait_ratio", "down"), ("3x3.data_ratio", "down")), False),
    ],
)
def test_where_nothing_is_solved_only_easing_is_accepted(proposal: Proposal, eases: bool) -> None:
    config = LAKE.default_config()
    check = semantic_checks(LAKE, config, style="compact", evidence=hopeless())
    assert (check(proposal) == []) is eases
    assert semantic_checks(LAKE, config, style="compact", evidence=rich())(proposal) == []


def test_a_critic_may_not_hold_the_easiest_cell_down_where_nothing_is_solved() -> None:
    condition = Change(path="3x3.data_ratio", op="down")
    critique = Critique(reason="", verdict="revise", conditions=[condition])
    config = LAKE.default_config()
    assert "must not be held down" in semantic_checks(LAKE, config, evidence=hopeless())(critique)[0]
    assert semantic_checks(LAKE, config, evidence=rich())(critique) == []
