"""The bench: what it prints and writes, and that it takes no wrong answer, ours or other people's."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from envsim.__main__ import main
from envsim.api import EnvsimError
from envsim.bench import ROWS, opponents
from envsim.contest import Full, Lane, Makespan, Row, SumOfCosts, agreements, contest
from envsim.figures import Figure, Goal, Report, Settings, Solving, goals
from envsim.oracles import ORACLES, W9CBS, Answer, Layout, Pymapf, Solver, W9AStar, priced

PAGE = Path(__file__).parents[2] / "docs" / "solver.md"
PATIENCE = 0.05
SMALL = [Row(*shape, holes) for shape in ((3, 2), (4, 2), (4, 3), (5, 2), (5, 3), (5, 4)) for holes in (0.0, 0.2, 0.35)]
SWAP = Layout(["..", "@."], [(0, 0), (0, 1)], [(0, 1), (0, 0)])


@pytest.mark.parametrize(("kind", "at_least"), [(W9CBS, 200), (W9AStar, 230), (Pymapf, 200)])
def test_other_people_find_the_same_costs(kind: type[W9CBS | W9AStar | Pymapf], at_least: int) -> None:
    """Also where they prove that there is no plan. A layout that somebody gives up is skipped."""
    other, ours = Lane(kind(PATIENCE)), Lane(SumOfCosts())
    compared = skipped = 0
    for row in SMALL:
        for layout in row.layouts(15):
            theirs, own = other.take(layout), ours.take(layout)
            compared += agreements(layout, {"theirs": theirs, "ours": own})
            skipped += None in (theirs.solvable, own.solvable)
    assert compared >= at_least
    assert compared + skipped == 15 * len(SMALL)


def test_our_questions_agree_with_each_other() -> None:
    run = contest(Row(4, 3, 0.35), [Makespan(), SumOfCosts(), Full()], seconds=60, layouts=60)
    assert [len(lane.times) for lane in run.lanes.values()] == [60, 60, 60]
    assert run.compared >= 120


class _Wrong(Solver[Layout, int]):
    """Finds everything a step more expensive than it is."""

    name: ClassVar[str] = "wrong"

    def prepare(self, layout: Layout) -> Layout:
        return layout

    def solve(self, problem: Layout) -> int:
        cost = SumOfCosts().read(SumOfCosts().solve(problem)).soc
        return -1 if cost is None else cost + 1

    def read(self, found: int) -> Answer:
        return Answer(True, soc=found, steps=1)


def test_a_different_answer_is_an_error_that_names_the_layout() -> None:
    row = Row(5, 2, 0.2)
    with pytest.raises(EnvsimError, match=r"sum of costs says sum of costs .* and wrong says sum of costs") as caught:
        contest(row, [SumOfCosts(), _Wrong()], seconds=1, layouts=3)
    layout = row.layouts(1)[0]
    assert str(layout.rows) in str(caught.value)
    assert str(layout.goals) in str(caught.value)


def test_a_plan_where_there_is_none_is_a_contradiction() -> None:
    nothing, something = Answer(False), Answer(True, soc=4, steps=120)
    with pytest.raises(EnvsimError, match="one says unsolvable and other says sum of costs 4"):
        agreements(SWAP, {"one": nothing, "other": something})
    assert agreements(SWAP, {"one": nothing, "other": nothing}) == 1
    assert agreements(SWAP, {"one": nothing._replace(within=100), "other": something}) == 0
    assert agreements(SWAP, {"one": Answer(True, makespan=4), "other": something}) == 0


def test_a_plan_that_the_verifier_refuses_is_an_error() -> None:
    with pytest.raises(EnvsimError, match=r"the plan of x has edge_conflict at step 1: rows \['..', '@.'\]"):
        priced("x", SWAP, [[(0, 0), (0, 1)], [(0, 1), (0, 0)]])
    aside = [[(0, 0), (0, 0), (0, 1)], [(0, 1), (1, 1)]]
    with pytest.raises(EnvsimError, match="goal_not_reached"):
        priced("x", SWAP, aside)


def test_all_get_the_same_layouts() -> None:
    for row in ROWS:
        some, more = row.layouts(5), row.layouts(8)
        assert some == more[:5]
        assert some != row.layouts(5, seed=1)
        for layout in some:
            assert sum(line.count("@") for line in layout.rows) == round(row.hole_ratio * row.size**2)
            assert len(layout.starts) == len(layout.goals) == row.agents


def test_a_ratio_is_over_the_layouts_that_both_did() -> None:
    ours, theirs = (Lane(SumOfCosts(), times) for times in ([1.0, 1.0, 50.0], [4.0, 2.0]))
    assert ours.ratio(theirs) == 3.0
    assert theirs.ratio(ours) == pytest.approx(1 / 3)


def test_quick_writes_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    assert main(["bench", "--quick", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    report = Report.model_validate_json(path.read_text(encoding="utf-8"))
    assert [row.row for row in report.solving] == [str(row) for row in ROWS]
    names = {"makespan", "sum of costs", "full certificate", "w9 CBS", "w9 joint A*", "pymapf CBS"}
    for row in report.solving:
        assert set(row.figures) == names
        assert row.compared > 0
        assert all(0 < figure.layouts <= 20 and figure.per_second > 0 for figure in row.figures.values())
        assert row.row in printed
    assert report.oracles == {"w9": "w9-pathfinding 0.1.3", "pymapf": "pymapf 0.9.0"}
    assert len(report.generating) == len(report.checking) == 2
    assert (report.spreading is None) == (report.machine.cores == 1)
    for what in [*report.generating, *report.checking, *report.goals]:
        assert what.what in printed
    assert "all agree" in printed
    assert main(["bench", "--quick", "--json", str(path)]) == 2
    assert "exists" in capsys.readouterr().err


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module in ("w9_pathfinding.mapf", "pymapf"):
        monkeypatch.setitem(sys.modules, module, None)
    assert opponents(tuple(ORACLES), 1.0)[0] == []
    assert main(["bench", "--quick", "--only", "solving"]) == 0
    printed = capsys.readouterr().out
    assert "w9-pathfinding is not installed: pip install 'envwright[oracle]'" in printed
    assert "pymapf is not installed: pip install 'envwright[oracle]'" in printed
    assert printed.count("not installed") == 2 + 3 * len(ROWS)
    assert "not measured" in printed


def test_parts_and_opponents_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bench.json"
    assert main(["bench", "--quick", "--only", "checking", "--against", "--json", str(path)]) == 0
    report = json.loads(path.read_text(encoding="utf-8"))
    assert (report["solving"], report["generating"], report["spreading"], report["oracles"]) == ([], [], None, {})
    assert [rate["what"].split(",")[0] for rate in report["checking"]] == ["verified plans", "environment steps"]
    assert "w9" not in capsys.readouterr().out


def test_a_goal_is_missed_if_too_much_stays_open() -> None:
    assert [goal.met for goal in _goals(gave_up=0.02) if "makespans" in goal.what] == [False]
    assert [goal.met for goal in _goals(gave_up=0.01) if "makespans" in goal.what] == [True]


def _goals(gave_up: float) -> list[Goal]:
    figure = Figure(solver="makespan", layouts=100, per_second=500, gave_up=gave_up, ratio=1)
    row = Solving(row="10x10/5/30%", size=10, agents=5, hole_ratio=0.3, compared=1, figures={"makespan": figure})
    return goals([row], [], None, [])


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_no_time_measures_nothing(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--seconds", seconds]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"envsim: the time for each figure is {float(seconds)} s, expected a positive number\n"
    assert printed.out == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--layouts", "0"], "the number of layouts of a row is 0; expected at least 1"),
        (["--instances", "-3"], "the number of instances to generate is -3; expected at least 1"),
        (["--against", "lacam"], "lacam"),
        (["--only", "speed"], "speed"),
        (["--json", "/nowhere/bench.json"], "/nowhere is no directory"),
    ],
)
def test_settings_that_cannot_be(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_the_page_about_the_solver_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code, expected), *more = re.findall(
        r"^```python\n(.*?)^```\n```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.S | re.M
    )
    assert more == []
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == expected


def test_quick_is_quicker() -> None:
    usual, quick = Settings(), Settings.quick()
    assert quick.seconds < usual.seconds
    assert quick.instances < usual.instances
