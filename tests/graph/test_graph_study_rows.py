"""Rows: a torn line is owed again, another plan's are refused, those of other machines are merged; the table and page
that are made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
import yaml
from parity import Parity
from pydantic import ValidationError
from study_rows import PLAN, answers, row

from graph.settings import SettingsError
from graph.study.__main__ import main
from graph.study.carry import Progress, locked
from graph.study.command import chosen
from graph.study.effects import anchor_area, anchor_matched, findings, summaries, value_of
from graph.study.page import budget_of, curves, kinds, points, render, signed, verdict
from graph.study.pictures import write_pictures
from graph.study.plan import Contrast, Loaded, Search, load_plan
from graph.study.rows import Answers, CellCounts, append_row, macro_of, merge, one_start, read_rows
from graph.study.search import Candidate, Made, candidates, rounds, schedule
from graph.study.search import verdict as oracle_verdict
from graph.study.table import write_tables
from graph.study.words import words


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    path = tmp_path / "plan.yaml"
    plan = {
        "name": "tiny",
        "question": "is <b>a</b> better than b?",
        "settings": {"budget": "profile", "token_budget": 1000},
        "arms": {"a": {"designer": "teacher"}, "b": {"designer": "fixed"}, "c": {"designer": "random"}},
        "seeds": {"n": 3},
        "primary": {"treatment": "a", "control": "b"},
        "secondary": [
            {"treatment": "a", "control": "b", "outcome": outcome}
            for outcome in ("anchor_area", "stage_gain", "test_worst_decile", "benchmark_3", "benchmark_5")
        ],
        "benchmark": True,
    }
    path.write_text(yaml.safe_dump(plan))
    return load_plan(path)


ROWS = [row(arm, seed, valid) for arm, valid in (("a", 0.7), ("b", 0.4), ("c", 0.5)) for seed in range(3)]


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert read_rows(path, PLAN) == []
    for one in ROWS:
        append_row(path, one)
    assert read_rows(path, PLAN) == ROWS


@pytest.mark.parametrize("cut", [1, 50, -1])
def test_a_torn_last_line_is_owed_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rows.jsonl"
    for one in ROWS[:2]:
        append_row(path, one)
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:cut])
    assert read_rows(path, PLAN) == ROWS[:1]
    append_row(path, ROWS[1])
    assert path.read_bytes() == first + second


def test_rows_of_another_plan_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, ROWS[0])
    with pytest.raises(SettingsError, match=r"line 1: arm a, seed 0 belongs to the plan ffff.*, not to eeee"):
        read_rows(path, "e" * 64)


def test_what_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, ROWS[0])
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(SettingsError, match="line 2 is no row of a study"):
        read_rows(path, PLAN)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(SettingsError, match="cannot be read"):
        read_rows(path, PLAN)


def test_rows_of_other_machines_are_merged_once(tmp_path: Path) -> None:
    mine, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    append_row(mine, ROWS[0])
    for one in ROWS[:3]:
        append_row(other, one.model_copy(update={"seconds": 1.0}))
    assert merge(mine, [other, other], PLAN) == 2
    assert merge(mine, [other], PLAN) == 0
    assert [one.key for one in read_rows(mine, PLAN)] == [one.key for one in ROWS[:3]]


def test_two_results_of_one_run_are_not_merged(tmp_path: Path) -> None:
    mine, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    append_row(mine, ROWS[0])
    append_row(other, row("a", 0, 0.1))
    with pytest.raises(SettingsError, match="has other results than the row that is there"):
        merge(mine, [other], PLAN)
    append_row(mine, row("a", 0, 0.1))
    with pytest.raises(SettingsError, match="stands there twice with different results"):
        read_rows(mine, PLAN)


def test_arms_start_from_one_checkpoint() -> None:
    one_start(ROWS)
    with pytest.raises(SettingsError, match="arms are compared from one start only"):
        one_start([*ROWS, row("a", 9, start="t" * 64)])


def test_the_area_is_the_mean_over_the_budget() -> None:
    one = ROWS[0]
    start = sum(bits.valid.count("1") / 12 for bits in one.start_anchor.cells.values()) / 2
    middle, end = (stage.kept_valid for stage in one.stages)
    # Half of the budget up to each stage's end, along straight lines.
    assert anchor_area(one, 1000) == pytest.approx((start + middle) / 4 + (middle + end) / 4)
    # What comes after the budget does not count, and what was not spent stays where it was.
    assert anchor_area(one, 500) == pytest.approx((start + middle) / 2)
    assert anchor_area(one, 2000) == pytest.approx(anchor_area(one, 1000) / 2 + end / 2)


def test_pairs_are_matched_at_the_tokens_of_the_one_that_ended_first(loaded: Loaded) -> None:
    one, other = ROWS[0], row("b", 0, 0.4)
    assert anchor_matched(one, other) == (one.stages[-1].kept_valid, other.stages[-1].kept_valid)
    short = other.model_copy(update={"stages": other.stages[:1]})
    assert anchor_matched(one, short) == (one.stages[0].kept_valid, short.stages[0].kept_valid)
    between = [stage.model_copy(update={"tokens": stage.tokens // 2}) for stage in other.stages]
    first, second = anchor_matched(one, other.model_copy(update={"stages": between}))
    assert (first, second) == (one.stages[0].kept_valid, other.stages[-1].kept_valid)
    found = {str(finding.contrast): finding for finding in findings(loaded.plan, ROWS, 1000)}
    matched = found["a - b, anchor_matched"]
    assert matched.test is not None
    assert (matched.family, matched.delta) == ("exploratory", matched.test.mean)


def test_findings_are_words_too(loaded: Loaded) -> None:
    said = words(loaded, ROWS).splitlines()
    found = findings(loaded.plan, ROWS, 1000)
    [primary] = [one for one in found if one.family == "primary"]
    assert verdict(primary) in said
    low, high = signed(primary.low), signed(primary.high)
    line = f"| a - b | test_valid | primary | 3 | {signed(primary.delta)} | {low} to {high} |"
    assert sum(one.startswith(line) for one in said) == 1
    tables = [one for one in said if one.startswith("| ")]
    arms = summaries(loaded.plan, ROWS, 1000)
    # A head and a ruler each; the last table has a line of the start.
    assert len(tables) == 4 * 2 + len(found) + 3 * len(arms) + 1
    assert f"| start | {points(ROWS[0].before['test'].shares('valid')['3x3'])} |" in tables[-1 - len(arms)]
    assert "| a | 1,000 | 900 | 90 | 10 | 0.8 |" in said
    assert all(one.count("|") == tables[0].count("|") for one in tables[: 2 + len(found)])
    assert "no pair of runs yet" in words(loaded, [])


def test_findings_are_those_of_the_plan_and_every_other_arm(loaded: Loaded) -> None:
    found = findings(loaded.plan, ROWS, 1000)
    by_family = {one.family: [str(two.contrast) for two in found if two.family == one.family] for one in found}
    assert by_family["primary"] == ["a - b, test_valid"]
    # Nothing was measured with five agents.
    assert len(by_family["secondary"]) == 4
    assert by_family["exploratory"] == ["a - b, anchor_matched", "a - c, test_valid", "c - b, test_valid"]
    turned = loaded.plan.model_copy(update={"secondary": [Contrast(treatment="b", control="c")]})
    others = [str(one.contrast) for one in findings(turned, ROWS, 1000) if one.family == "exploratory"]
    assert others == ["a - b, anchor_matched", "a - c, test_valid"]
    primary = found[0]
    assert primary.low is not None
    assert primary.high is not None
    assert primary.low <= primary.delta <= primary.high
    assert primary.test is not None
    assert primary.delta == pytest.approx(primary.test.mean)
    assert primary.p_holm is None
    secondary = [one for one in found if one.family == "secondary"]
    assert all(one.p_holm is not None and one.test is not None and one.p_holm >= one.test.p_t for one in secondary)


def test_pairs_are_of_the_seeds_that_both_arms_have(loaded: Loaded) -> None:
    some = [one for one in ROWS if one.key not in {("a", 0), ("b", 2)}]
    [primary, *_] = findings(loaded.plan, some, 1000)
    assert primary.seeds == [1]
    assert primary.low is None
    assert "one seed, no interval" in verdict(primary)
    assert findings(loaded.plan, [one for one in ROWS if one.arm == "a"], 1000) == []


def test_answers_to_different_sets_do_not_pair(loaded: Loaded) -> None:
    other = row("b", 0, after={"test": answers(0, 0.4).model_copy(update={"instances": "another"})})
    with pytest.raises(SettingsError, match="they do not pair"):
        findings(loaded.plan, [other, *(one for one in ROWS if one.key != ("b", 0))], 1000)


def test_arms_are_summed_up(loaded: Loaded) -> None:
    first, *_ = summaries(loaded.plan, ROWS, 1000)
    assert (first.arm, first.seeds, first.charged, first.own, first.reused) == ("a", [0, 1, 2], 1000, 1.0, 0.0)
    assert first.outcomes["test_worst_decile"] <= first.outcomes["test_valid"]


def test_the_table_is_tidy(tmp_path: Path) -> None:
    parquet, text = write_tables(ROWS, tmp_path)
    table = pq.read_table(parquet)
    # Anchor and both sealed sets of the start, the anchor of two stages, both sealed sets of the champion; two cells.
    assert table.num_rows == len(ROWS) * 2 * 7
    keys = table.select(["arm", "seed", "checkpoint", "stage", "set", "cell"]).to_pylist()
    assert len({tuple(key.values()) for key in keys}) == table.num_rows
    assert len(text.read_text().splitlines()) == table.num_rows + 1


def test_the_page_holds_everything_and_fetches_nothing(loaded: Loaded) -> None:
    page = render(loaded, ROWS, owed=2)
    assert page.count("<svg") == 5
    assert "development seeds" in page
    assert "2 owed" in page
    assert "is &lt;b&gt;a&lt;/b&gt; better" in page
    assert "3 agents" in page
    assert "http" not in page
    assert "src=" not in page
    assert "unequal budgets" not in page


def test_a_study_without_runs_has_a_page(loaded: Loaded) -> None:
    assert "no pair of runs yet" in render(loaded, [], owed=9)
    assert (kinds([]), kinds(ROWS)) == ("no runs yet", "development")
    confirming = row("a", 1000)
    assert kinds([confirming]) == "confirming"
    assert kinds([confirming, ROWS[0]]) == "mixed"


@pytest.mark.parametrize(("more", "bands"), [(1, list("abcd")), (2, ["a", "b"])])
def test_of_many_arms_those_of_the_primary_have_a_band(loaded: Loaded, more: int, bands: list[str]) -> None:
    arms = {**loaded.plan.arms, **dict.fromkeys("de"[:more], loaded.plan.arms["c"])}
    many = loaded.model_copy(update={"plan": loaded.plan.model_copy(update={"arms": arms})})
    rows = [row(arm, seed, 0.4 + 0.1 * seed) for arm in arms for seed in range(2)]
    drawn = curves(many, rows)
    assert [one.name for one in drawn] == list(arms)
    assert [one.name for one in drawn if one.low] == bands
    assert ("two arms alone" in render(many, rows, owed=0)) == (len(bands) == 2)


def test_pictures_are_files_of_their_own(loaded: Loaded, tmp_path: Path) -> None:
    write_pictures(loaded, ROWS, tmp_path / "figures")
    found = {path.stem: ElementTree.parse(path).getroot() for path in (tmp_path / "figures").iterdir()}
    assert set(found) == {"curves", "forest", "configurations-a", "configurations-b", "configurations-c"}
    space = "{http://www.w3.org/2000/svg}"
    for name, root in found.items():
        assert root.tag == f"{space}svg", name
        assert "var(" not in ElementTree.tostring(root, encoding="unicode"), name
    words = [text.text for text in found["curves"].findall(f"{space}text")]
    assert words[-3:] == ["a", "b", "c"]
    assert len(found["forest"].findall(f"{space}circle")) == len(findings(loaded.plan, ROWS, budget_of(loaded)))
    write_pictures(loaded, [], tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []


def test_some_runs_can_be_asked_for(loaded: Loaded) -> None:
    assert chosen(loaded, "development", [5, 5], ["b"]) == [("b", 5)]
    assert len(chosen(loaded, "confirming", None, None)) == 9


def test_candidates_are_bells_that_may_move(tmp_path: Path, loaded: Loaded) -> None:
    plan = loaded.plan
    search = Candidate(begins=0, ends=7, width=1.0)
    first, last = search.shares(8, 0), search.shares(8, 1)
    assert sum(first) == pytest.approx(1) == sum(last)
    assert min(first) >= 0.02
    assert first == pytest.approx(last[::-1])
    assert first.index(max(first)) == 0
    wanted = Search(candidates=5, moving=False)
    made = candidates(wanted, 8)
    assert made == candidates(wanted, 8)
    assert made != candidates(Search(candidates=5, moving=False, seed=1), 8)
    assert all(one.begins == one.ends for one in made.values())
    places = [one.begins / 7 for one in candidates(Search(candidates=10), 8).values()]
    assert sorted(int(10 * place) for place in places) == list(range(10))
    near = candidates(Search(candidates=10, centres=[1, 2], widths=[1, 1.5]), 8).values()
    assert all(1 <= one.begins <= 2 and 1 <= one.ends <= 2 and 1 <= one.width <= 1.5 for one in near)
    levelled = candidates(Search(candidates=10, levels={"wait_ratio": [0.5, 1.0]}), 8).values()
    assert sorted(int(20 * one.levels["wait_ratio"]) for one in levelled) == list(range(10, 20))
    assert [rounds(n) for n in (2, 3, 4, 5, 8, 9)] == [1, 2, 2, 3, 3, 4]
    assert plan.search is None


def test_a_schedule_is_one_of_knobs() -> None:
    stages = schedule(Parity(), Candidate(begins=0, ends=1, width=0.7), 3)
    assert len(stages) == 3
    assert stages[0].keys() == {"short.data_ratio", "long.data_ratio"}
    assert stages[0]["short.data_ratio"] > 0.5 > stages[2]["short.data_ratio"]
    [level] = schedule(Parity(), Candidate(begins=0, ends=0, width=0.7, levels={"data_ratio": 0.25}), 1)
    assert level == {"short.data_ratio": 0.25, "long.data_ratio": 0.25}


def test_an_oracle_is_shown_by_two_standard_deviations() -> None:
    good = [row(arm, seed, valid) for arm, valid in (("oracle", 0.95), ("random", 0.1)) for seed in range(3)]
    assert "is shown" in oracle_verdict(good, "test")
    alike = [row(arm, seed, 0.5) for arm in ("oracle", "random") for seed in range(3)]
    assert "is not shown" in oracle_verdict(alike, "test")
    assert "one seed says nothing" in oracle_verdict(good[::3], "test")


def test_sampled_answers_count_by_their_share() -> None:
    found = Answers(
        instances="set",
        samples=4,
        cells={"3x3": CellCounts(valid="40", optimal="20"), "10x10": CellCounts(valid="11", optimal="00")},
    )
    assert found.scores("3x3", "valid").tolist() == [1.0, 0.0]
    assert found.shares("valid") == {"3x3": 0.5, "10x10": 0.25}
    assert macro_of(found, "valid") == 0.375
    assert macro_of(found, "optimal") == 0.125
    one = row("self", 0, after={"test": answers(0, 0.5), "test_sampled": found})
    assert value_of(one, "test_sampled", 1500) == 0.375
    assert value_of(row("self", 0), "test_sampled", 1500) is None


@pytest.mark.parametrize(("samples", "valid", "optimal"), [(4, "5", "0"), (1, "2", "0"), (2, "11", "1")])
def test_counts_that_do_not_fit_their_samples_are_refused(samples: int, valid: str, optimal: str) -> None:
    with pytest.raises(ValidationError, match=f"the counts of 3x3 do not fit {samples} answers an instance"):
        Answers(instances="set", samples=samples, cells={"3x3": CellCounts(valid=valid, optimal=optimal)})


@pytest.fixture
def pilot_plan(tmp_path: Path, profile: Path) -> Path:
    path = tmp_path / "pilot.yaml"
    plan = {
        "name": "pilot",
        "question": "does anything matter?",
        "settings": {
            "environment": "parity:Parity",
            "profile": str(profile),
            "budget": "profile",
            "token_budget": 1000,
            "stages": 3,
        },
        "arms": {"random": {"designer": "random"}},
        "seeds": {"n": 2},
        "search": {"candidates": 4, "moving": False, "longer": 3},
    }
    path.write_text(yaml.safe_dump(plan))
    return path


def test_a_search_halves_by_the_anchor_and_compares_on_fresh_seeds(
    pilot_plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every run that it asks for has its row already, so that what it asks for is seen."""
    directory, base = tmp_path / "out", load_plan(pilot_plan)
    assert base.plan.search is not None
    made = Made(base, directory, base.plan.search)
    assert {arm.designer for arm in made.searched.arms.values()} == {"fixed"}
    (directory / "search").mkdir(parents=True)
    (directory / "oracle").mkdir()
    # c02 is the best; c00 is worse than c01 on the second seed, which decides between the two that are left.
    anchors = {("c00", 0): 0.1, ("c01", 0): 0.5, ("c02", 0): 0.8, ("c03", 0): 0.2, ("c01", 1): 0.4, ("c02", 1): 0.9}
    for (arm, seed), valid in anchors.items():
        append_row(directory / "search" / "rows.jsonl", row(arm, seed, valid, plan=made.searched.hash))
    compared = made.compared("c02")
    assert compared.arms["oracle"].token_budget == 3000
    assert compared.arms["random"].token_budget == 1000
    for arm, valid in (("oracle", 0.95), ("random", 0.2)):
        for seed in (2, 3):
            append_row(directory / "oracle" / "rows.jsonl", row(arm, seed, valid, plan=compared.hash))
    assert main(["pilot", "--plan", str(pilot_plan), "--directory", str(directory)]) == 0
    said = capsys.readouterr().err
    assert "round 1: c02" in said
    assert "round 2: c02" in said
    assert "oracle: c02" in said
    assert "two of them is shown" in said
    assert "unequal budgets" in (directory / "oracle" / "report.html").read_text()
    assert not list(directory.rglob("runs"))


@pytest.mark.parametrize(
    ("changes", "flags", "words"),
    [
        ({"search": None}, [], "needs a section 'search'"),
        ({"arms": {"fixed": {}}}, [], "an arm 'random' to compare with"),
        ({}, ["--seeds", "1"], "--seeds is of a study"),
        ({}, ["--confirm"], "--confirm is of a study"),
        ({}, ["--parallel", "0"], "--parallel 0"),
        ({"search": {"levels": {"nonsense": [0, 1]}}}, [], "pilot.yaml: search.levels: "),
        ({"search": {"widths": [0, 1]}}, [], "widths begin at 0, expected more than 0"),
        ({"search": {"centres": [2, 1]}}, [], "centres are 2 to 1, expected the lower one first"),
        ({"search": {"levels": {"data_ratio": [1, 0]}}}, [], "levels of data_ratio are 1 to 0, expected the lower"),
    ],
)
def test_a_pilot_that_cannot_be_is_one_line(
    pilot_plan: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], flags: list[str], words: str
) -> None:
    data = {**yaml.safe_load(pilot_plan.read_text()), **changes}
    pilot_plan.write_text(yaml.safe_dump({key: value for key, value in data.items() if value is not None}))
    assert main(["pilot", "--plan", str(pilot_plan), "--directory", str(pilot_plan.parent / "out"), *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_dry_run_says_what_is_left_and_a_report_runs_nothing(
    pilot_plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, flags = tmp_path / "out", ["--plan", str(pilot_plan), "--directory", str(tmp_path / "out")]
    assert main([*flags, "--dry-run"]) == 0
    assert "2 runs, 2 to do\n" in capsys.readouterr().out
    assert not directory.exists()
    other = tmp_path / "other.jsonl"
    append_row(other, row("random", 0, plan=load_plan(pilot_plan).hash))
    assert main([*flags, "--report", "--merge", str(other)]) == 0
    told = capsys.readouterr()
    assert "1 rows of other machines were added" in told.err
    assert told.out == (directory / "findings.md").read_text()
    assert "1 owed" in (directory / "report.html").read_text()
    assert main([*flags, "--dry-run"]) == 0
    assert "2 runs, 1 to do, about 1 min on one core" in capsys.readouterr().out
    with locked(directory):
        assert main([*flags, "--report"]) == 2
    assert "is in use by another study" in capsys.readouterr().err


def test_the_time_left_is_that_of_the_runs_so_far() -> None:
    clock = Progress(total=10, done=2, parallel=2)
    assert clock.finished(120) == "[3/10, about 7 min left]"
    assert clock.failed() == "[3/10, 1 failed]"
    assert clock.finished(7080) == "[4/10, about 2 h 30 min left]"
    last = Progress(total=1, done=0, parallel=8)
    assert last.finished(1) == "[1/1]"
