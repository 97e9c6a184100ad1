"""Designers: parameters are checked, proposals are a function of context and state, and what is measured is charged."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from agents_fakes import evidence_of

from agents import teacher
from agents.changes import apply_changes
from agents.designers import (
    DESIGNERS,
    DesignContext,
    ProposalRejected,
    check_designer,
    designer_files,
    designer_hash,
    designer_title,
    get_designer,
)
from agents.designers.base import ModelName
from agents.rolespec import ExternalModel
from agents.schemas import Change, GateFinding, GateReport, HistoryEntry, Proposal
from envsim import registry
from envsim.api import EnvsimError
from tools.probe_policy import ProbeTask

LAKE = registry.get("lake")
START = LAKE.default_config()
RATES = (0.9, 0.6, 0.4, 0.2, 0.1, 0.05, 0.0, 0.0)
NEEDS_MORE = {
    "external": {"base_url": "http://localhost:9/v1", "model": "m"},
}


def context(**changes: Any) -> DesignContext:
    seen = evidence_of(LAKE, RATES)
    values = {
        "environment": LAKE,
        "config": START,
        "evidence": seen,
        "diagnosis": teacher.diagnose(seen),
        "stage": 1,
        "seed": 4,
    }
    return DesignContext(**{**values, **changes})  # type: ignore[arg-type]


def report(passed: bool, effective: float) -> GateReport:
    found = GateFinding(gate="G2", passed=passed, figure=effective, threshold=0.5, reason="")
    return GateReport(passed=passed, findings=[found], probe={}, probe_tokens=10)


@dataclass
class Bench:
    """A laboratory with given answers; keeps what it was asked."""

    success: dict[str, float] = field(default_factory=lambda: dict(zip(LAKE.cells(), RATES, strict=True)))
    admits: Sequence[bool] = (True,)
    proposals: Sequence[Proposal | None] = ()
    effective: Sequence[float] = ()
    ungenerable: frozenset[int] = frozenset()
    probed: list[Any] = field(default_factory=list)
    examined: list[list[Change]] = field(default_factory=list)
    asked: list[tuple[ModelName, int, float]] = field(default_factory=list)

    def examine(self, changes: Sequence[Change]) -> GateReport:
        number = len(self.examined)
        self.examined.append(list(changes))
        admitted = self.admits[min(number, len(self.admits) - 1)]
        return report(admitted, self.effective[number] if self.effective else 0.5)

    def probe(self, config: Any, *, tasks: int, samples: int, draw: int) -> list[ProbeTask]:
        self.probed.append(config)
        if draw in self.ungenerable:
            raise EnvsimError("no such tasks")
        cells = LAKE.cells()
        return [
            ProbeTask(
                id=f"{draw}-{i}",
                cell=cells[i % len(cells)],
                successes=round(samples * self.success[cells[i % len(cells)]]),
                samples=samples,
            )
            for i in range(tasks)
        ]

    def ask(self, model: ModelName, *, take: int, temperature: float) -> Proposal:
        self.asked.append((model, take, temperature))
        answer = self.proposals[take]
        if answer is None:
            raise ProposalRejected("model", ["no JSON"], "?")
        return answer


def shares(proposal: Proposal) -> dict[str, float]:
    return LAKE.shares(apply_changes(LAKE, START, proposal.changes))


@pytest.mark.parametrize("name", DESIGNERS)
def test_every_name_makes_a_designer_by_name_and_by_mapping(name: str) -> None:
    spec = {"name": name, **NEEDS_MORE.get(name, {})}
    designer = get_designer(spec)
    assert designer.name == designer_title(spec) == name
    if name not in NEEDS_MORE:
        assert type(get_designer(name)) is type(designer)
    json.dumps(designer.state_dict())
    get_designer(spec).load_state_dict(designer.state_dict())


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sfi", "did you mean 'sfl'"),
        ("best-of-k", "did you mean 'best_of_k'"),
        ({"name": "sfl", "kep": 0.5}, "designer sfl: unknown key 'kep'; did you mean 'keep'"),
        ({"name": "self", "k": 3}, "designer self: unknown key 'k'; known: name"),
        ({"name": "sfl", "keep": 0.0}, "keep = 0.0: input should be greater than 0"),
        ({"name": "best_of_k", "k": 1}, "k = 1"),
        ({"name": "best_of_k", "k": True}, "k = True"),
        ({"name": "external", "model": "m"}, "base_url is missing"),
        ({"name": "external", "model": "m", "base_url": "ftp://x"}, "base_url"),
        ({"name": "external", "model": "m", "base_url": "http://x", "api_key_file": "/no/key"}, "cannot read /no/key"),
        ({"k": 3}, "needs 'name' or 'entrypoint'"),
        ({"name": "schedule", "file": "/no/such.yaml"}, "shipped are easy_to_hard, hard_to_easy"),
        ({"name": "shuffled", "run": "/no/such"}, "expected a run directory"),
        ("nowhere.py:Mine", "there is no file nowhere.py"),
        ("json:Mine", "json has no 'Mine'"),
        ("json:JSONDecoder", "no subclass of agents.designers.Designer"),
        ({"entrypoint": "no colon"}, "entrypoint"),
    ],
)
def test_bad_settings_are_one_line(spec: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        get_designer(spec)
    assert "\n" not in str(error.value)


def test_a_model_behind_a_url_is_asked_with_its_key(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    spec = {"name": "external", "base_url": "http://localhost:9/v1", "model": "m", "api_key_file": str(key)}
    assert get_designer(spec).model == ExternalModel(base_url="http://localhost:9/v1", name="m", api_key_file=str(key))
    key.write_text(" \n")
    with pytest.raises(ValueError, match="is empty"):
        get_designer(spec)


def test_random_draws_until_the_gates_admit_one() -> None:
    lab = Bench(admits=(False, False, True))
    chosen = get_designer("random").propose(context(lab=lab))
    assert len(lab.examined) == 3
    assert chosen.changes == lab.examined[2]
    assert len({tuple(changes) for changes in lab.examined}) == 3
    stubborn = Bench(admits=(False,))
    refused = get_designer({"name": "random", "draws": 2}).propose(context(lab=stubborn))
    assert len(stubborn.examined) == 2
    assert "none of 2 draws was admitted" in refused.rationale


def test_schedules_go_from_easy_to_hard_and_back() -> None:
    def mean_cell(name: str, stage: int) -> float:
        proposed = get_designer({"name": "schedule", "file": name}).propose(context(stage=stage))
        return sum(place * share for place, share in enumerate(shares(proposed).values()))

    rising = [mean_cell("easy_to_hard", stage) for stage in (1, 2, 3, 4)]
    falling = [mean_cell("hard_to_easy", stage) for stage in (1, 2, 3, 4)]
    assert rising[0] < rising[1] < rising[2] == rising[3]
    assert falling[:3] == rising[2::-1]


def test_a_schedule_that_is_sent_back_goes_half_of_the_way() -> None:
    whole, half = (get_designer("schedule").propose(context(revision=revision)) for revision in (0, 1))
    for full, part in zip(whole.changes, half.changes, strict=True):
        assert full.value is not None
        assert part.value == pytest.approx((0.125 + full.value) / 2)


def test_a_schedule_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"environment": "lake", "stages": [{"3x3.hole_ratio": 0.3}]}))
    proposed = get_designer({"name": "schedule", "file": str(file)}).propose(context())
    assert proposed.changes == [Change(path="3x3.hole_ratio", op="set", value=0.3)]
    file.write_text(yaml.safe_dump({"environment": "lake", "stages": []}))
    with pytest.raises(ValueError, match=r"mine.yaml: stages: "):
        get_designer({"name": "schedule", "file": str(file)})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"environment": "other", "stages": [{}, {}]}, "is for the environment 'other', not for 'lake'"),
        ({"environment": "lake", "stages": [{}]}, "has entries for 1 stages, and the run may have 2"),
        (
            {"environment": "lake", "stages": [{}, {"3x3.hole_ratoi": 0.1}]},
            "stage 2: unknown knob '3x3.hole_ratoi'; did",
        ),
        ({"environment": "lake", "stages": [{"3x3.hole_ratio": 0.9}, {}]}, "stage 1: 3x3.hole_ratio = 0.9, expected 0"),
        ({"environment": "lake", "stages": [{"3x3.hole_ratio": float("nan")}, {}]}, "3x3.hole_ratio = nan, expected"),
        (
            {"environment": "lake", "stages": [{}, {f"{cell}.data_ratio": 0.0 for cell in LAKE.cells()}]},
            "stage 2: sizes: weights",
        ),
    ],
)
def test_a_schedule_that_a_run_could_not_follow_is_one_line(tmp_path: Path, data: dict[str, Any], says: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(data))
    with pytest.raises(ValueError, match=re.escape(says)) as error:
        check_designer({"name": "schedule", "file": str(file)}, LAKE, START, 2)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


class Shareless(type(LAKE)):  # type: ignore[misc]
    """The lake, where nobody may move the data."""

    name = "shareless"

    def knobs(self, config: Any) -> Any:
        return {path: knob for path, knob in super().knobs(config).items() if not path.endswith("data_ratio")}


@pytest.mark.parametrize("name", ["random", "sfl", "always_easiest", "always_impossible", "oscillate", "single_cell"])
def test_who_moves_the_data_needs_knobs_for_it(name: str) -> None:
    check_designer(name, LAKE, START, 3)
    with pytest.raises(ValueError, match=f"designer {name}: the environment 'shareless' has no knob '3x3.data_ratio'"):
        check_designer(name, Shareless(), START, 3)


def test_a_schedule_repeats_its_last_stage_only_by_word(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"environment": "lake", "repeat_last": True, "stages": [{"3x3.hole_ratio": 0.3}]}))
    check_designer({"name": "schedule", "file": str(file)}, LAKE, START, 9)
    check_designer("schedule", LAKE, START, 9)


def test_what_decides_a_proposal_beside_the_settings_is_hashed(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    spec = {"name": "schedule", "file": str(file)}
    file.write_text(yaml.safe_dump({"environment": "lake", "stages": [{"3x3.hole_ratio": 0.3}]}))
    before = designer_hash(spec)
    file.write_text("# a comment\n" + file.read_text())
    assert designer_hash(spec) == before
    file.write_text(yaml.safe_dump({"environment": "lake", "stages": [{"3x3.hole_ratio": 0.2}]}))
    assert None is not designer_hash(spec) != before
    assert designer_hash("sfl") is designer_hash("shuffled") is None
    assert designer_files(spec) == [file]
    assert designer_files("schedule") == designer_files("self") == []


def test_sfl_goes_where_success_is_even() -> None:
    lab = Bench()
    proposed = get_designer("sfl").propose(context(lab=lab))
    found = shares(proposed)
    assert len(lab.probed) == 4
    assert all(max(LAKE.shares(config).values()) == pytest.approx(0.125) for config in lab.probed)
    assert {cell for cell, share in found.items() if share > 0.125} == {"4x4", "5x5"}
    assert min(found.values()) >= 0.0199


def test_sfl_without_signal_goes_to_the_edge() -> None:
    nothing = Bench(success=dict.fromkeys(LAKE.cells(), 0.0))
    everything = Bench(success=dict.fromkeys(LAKE.cells(), 1.0))
    for lab, cell in ((nothing, "3x3"), (everything, "10x10")):
        found = shares(get_designer("sfl").propose(context(lab=lab)))
        assert max(found, key=lambda name: found[name]) == cell


def test_sfl_leaves_out_what_cannot_be_had() -> None:
    proposed = get_designer("sfl").propose(context(lab=Bench(ungenerable=frozenset({0, 2}))))
    assert proposed.changes
    empty = get_designer({"name": "sfl", "draws": 1}).propose(context(lab=Bench(ungenerable=frozenset({0}))))
    assert empty.changes == []


def test_sfl_remembers_its_stage_and_rolls_out_once() -> None:
    first, lab = get_designer("sfl"), Bench()
    whole = first.propose(context(lab=lab))
    again, quiet = get_designer("sfl"), Bench()
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    half = again.propose(context(lab=quiet, revision=1, seed=99))
    assert quiet.probed == []
    assert [change.path for change in half.changes] == [change.path for change in whole.changes]
    assert get_designer("sfl").propose(context(lab=Bench())) == whole


def proposal(path: str, op: str = "up") -> Proposal:
    change = Change.model_validate({"path": path, "op": op})
    return Proposal(rationale=path, changes=[change], predicted=dict.fromkeys(LAKE.cells(), 50))


def test_best_of_k_asks_k_times_and_the_gates_and_the_probe_choose() -> None:
    takes = [proposal("3x3.data_ratio"), proposal("4x4.data_ratio"), proposal("4x4.data_ratio"), None]
    lab = Bench(proposals=takes, admits=(False, True), effective=(0.9, 0.4))
    chosen = get_designer("best_of_k").propose(context(lab=lab))
    assert chosen == takes[1], "what the gates admit comes before what promises more"
    assert lab.asked == [("inherit", 0, 0.0), ("inherit", 1, 0.8), ("inherit", 2, 0.8), ("inherit", 3, 0.8)]
    assert len(lab.examined) == 2, "the same proposal is probed once"
    better = Bench(proposals=takes, effective=(0.4, 0.9))
    assert get_designer("best_of_k").propose(context(lab=better)) == takes[1]
    tie = Bench(proposals=takes, effective=(0.5, 0.5))
    assert get_designer("best_of_k").propose(context(lab=tie)) == takes[0]


def test_best_of_k_without_a_usable_answer_is_rejected() -> None:
    spec = {"name": "best_of_k", "k": 2, "model": "champion"}
    lab = Bench(proposals=[None, None])
    with pytest.raises(ProposalRejected, match="take 1: no JSON"):
        get_designer(spec).propose(context(lab=lab))
    assert [model for model, _, _ in lab.asked] == ["champion", "champion"]


def test_shuffled_deals_every_measurement_to_another_cell() -> None:
    evidence = evidence_of(LAKE, RATES)
    seen = get_designer("shuffled").see(evidence, 3)
    assert seen == get_designer("shuffled").see(evidence, 3)
    assert sorted(cell.valid for cell in seen.cells) == sorted(RATES)
    for own, dealt in zip(evidence.cells, seen.cells, strict=True):
        assert (dealt.cell, dealt.knobs) == (own.cell, own.knobs)
    moved = [own.cell for own, dealt in zip(evidence.cells, seen.cells, strict=True) if own.valid != dealt.valid]
    assert len(moved) >= 6
    assert seen.failures[0].cell != evidence.failures[0].cell
    measured = {cell.cell: cell.valid for cell in evidence.cells}
    past = HistoryEntry(
        stage=1, designer="self", changes=[], accepted=True, anchor_before=0.1, anchor_after=0.2, measured=measured
    )
    dealt = get_designer("shuffled").see(evidence.model_copy(update={"history": [past]}), 3)
    assert dealt.history[0].measured == {cell.cell: cell.valid for cell in seen.cells}
    assert get_designer("self").see(evidence, 3) is evidence


def test_shuffled_needs_a_finished_run_that_is_long_enough(tmp_path: Path) -> None:
    spec = {"name": "shuffled", "run": str(tmp_path)}
    (tmp_path / "stages" / "001").mkdir(parents=True)
    evidence = tmp_path / "stages" / "001" / "evidence.json"
    evidence.write_text(evidence_of(LAKE, RATES).model_dump_json())
    with pytest.raises(ValueError, match=r"is not finished: it has no result\.json"):
        check_designer(spec, LAKE, START, 1)
    (tmp_path / "result.json").write_text("{}")
    check_designer(spec, LAKE, START, 1)
    before = designer_hash(spec)
    with pytest.raises(ValueError, match="has 1 designed stages, and this run may have 2"):
        check_designer(spec, LAKE, START, 2)
    evidence.write_text(evidence_of(LAKE, RATES[::-1]).model_dump_json())
    assert None is not designer_hash(spec) != before
    short = evidence_of(LAKE, RATES).cells[:1]
    evidence.write_text(evidence_of(LAKE, RATES).model_copy(update={"cells": short}).model_dump_json())
    with pytest.raises(ValueError, match="is of another environment: cells 3x3"):
        check_designer(spec, LAKE, START, 1)
    evidence.write_text('{"stage": 1}')
    with pytest.raises(ValueError, match="holds no evidence of this version"):
        check_designer(spec, LAKE, START, 1)


def test_shuffled_shows_another_runs_evidence(tmp_path: Path) -> None:
    place = tmp_path / "stages" / "001"
    place.mkdir(parents=True)
    designer = get_designer({"name": "shuffled", "run": str(tmp_path)})
    own = evidence_of(LAKE, RATES)
    with pytest.raises(ValueError, match="designer shuffled: cannot read"):
        designer.see(own, 0)
    other = evidence_of(LAKE, RATES[::-1])
    harder = other.cells[0].model_copy(update={"knobs": {"data_ratio": 0.9}})
    other = other.model_copy(update={"cells": [harder, *other.cells[1:]]})
    (place / "evidence.json").write_text(other.model_dump_json())
    seen = designer.see(own, 0)
    assert [cell.valid for cell in seen.cells] == list(RATES[::-1])
    assert [cell.knobs for cell in seen.cells] == [cell.knobs for cell in own.cells]


OWN = '''
from agents.designers import DesignContext, Designer, proposal, set_knob
from agents.schemas import Proposal


class Climber(Designer):
    """Raises the hole ratio of the easiest map a little more every time."""

    def __init__(self, step: float = 0.05) -> None:
        self.step = step
        self.turns = 0

    def propose(self, context: DesignContext) -> Proposal:
        self.turns += 1
        cell = context.environment.cells()[0]
        change = set_knob(context, f"{cell}.hole_ratio", self.step * self.turns)
        return proposal(context, f"turn {self.turns}", [change])

    def state_dict(self):
        return {"name": self.name, "turns": self.turns}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.turns = state["turns"]
'''


def test_a_designer_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    spec = {"entrypoint": f"{file}:Climber", "parameters": {"step": 0.1}}
    first = get_designer(spec)
    assert designer_title(spec) == designer_title(f"{file}:Climber") == first.name == "Climber"
    assert first.state_dict()["name"] == "Climber", "one name, wherever it stands"
    assert first.propose(context()).changes == [Change(path="3x3.hole_ratio", op="set", value=0.1)]
    second = get_designer(spec)
    second.load_state_dict(first.state_dict())
    assert second.propose(context()).changes[0].value == pytest.approx(0.2)
    with pytest.raises(ValueError, match=r"Climber\(\*\*\{'stride': 1\}\) fails: TypeError"):
        get_designer({"entrypoint": f"{file}:Climber", "parameters": {"stride": 1}})
    assert designer_files(spec) == [file]
    before = designer_hash(spec)
    moved = tmp_path / "moved.py"
    moved.write_text(OWN)
    assert designer_hash({**spec, "entrypoint": f"{moved}:Climber"}) == before
    other = tmp_path / "other.py"
    other.write_text(OWN.replace("0.05", "0.06"))
    assert None is not designer_hash({**spec, "entrypoint": f"{other}:Climber"}) != before
    broken = tmp_path / "broken.py"
    broken.write_text("import nothing_of_the_kind\n")
    with pytest.raises(ValueError, match="cannot be imported: ModuleNotFoundError"):
        get_designer(f"{broken}:Mine")


def test_a_designer_of_ones_own_says_before_the_run_what_it_cannot_do(tmp_path: Path) -> None:
    file = tmp_path / "careful.py"
    check = (
        "    def check(self, environment, config, stages):\n        environment.knobs(config)['9x9.nothing']\n\n"
        "    def content(self):\n        return {1, 2}\n\n"
    )
    file.write_text(OWN.replace("    def propose", f"{check}    def propose"))
    with pytest.raises(ValueError, match=r"careful.py:Climber': its check says KeyError: '9x9.nothing'") as error:
        check_designer(f"{file}:Climber", LAKE, START, 1)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="its content cannot be had: TypeError"):
        designer_hash(f"{file}:Climber")


PAGE = (Path(__file__).parents[2] / "docs" / "designers.md").read_text()
SHOWN = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize(("file", "name"), [("my_designer.py", "Mine"), ("gentle.py", "Gentle")])
def test_the_designers_of_the_page_work_as_they_stand_there(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / file).write_text(SHOWN[file])
    check_designer(f"{tmp_path / file}:{name}", LAKE, START, 3)
    given = get_designer(f"{tmp_path / file}:{name}").propose(context())
    assert given.changes
    assert apply_changes(LAKE, START, given.changes) != START
    if name == "Gentle":
        knobs = LAKE.knobs(START)
        hard = {f"{cell.cell}.hole_ratio" for cell in context().evidence.cells if cell.valid < 0.1}
        assert {change.path: change.value for change in given.changes} == {path: knobs[path].down for path in hard}


def test_the_page_shows_a_knob_as_it_is() -> None:
    [(path, told)] = re.findall(r'knobs\(context.config\)\["(.*?)"\]\n(Knob\(.*?\))\n', PAGE)
    assert repr(LAKE.knobs(START)[path]) == told
