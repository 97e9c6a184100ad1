"""``solve`` and ``verify`` agree, and plain joint search answers as the solver's tables do."""

from __future__ import annotations

import random

import fuzz
import pytest
from envsim_cases import layouts as random_layouts
from hypothesis import HealthCheck, given, settings

from envsim.commands import questions
from envsim.commands.lines import Layout, PlannedLayout
from envsim.commands.questions import optimal_makespan, solution
from envsim.commands.verify import judgement
from envsim.lake.grid import Board

Drawn = tuple[Board, list[str], list[int], list[int]]
QUIET = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


def _layout(drawn: Drawn) -> Layout:
    board, rows, starts, goals = drawn
    ends = {"starts": starts, "goals": goals}
    return Layout(rows=rows, **{what: [divmod(v, board.columns) for v in cells] for what, cells in ends.items()})


@QUIET
@given(random_layouts(agents=(1, 4)))
def test_what_solve_prints_is_optimal_to_verify(drawn: Drawn) -> None:
    layout = _layout(drawn)
    found = solution("x", layout, None)
    if found.status == "limit":
        # Four agents in a thicket can be too much for the default limit; then it says what stays open.
        assert found.open
        assert found.reason
        return
    assert found.status in ("solved", "unsolvable")
    if found.status == "unsolvable":
        assert found.paths is None
        return
    judged = judgement("x", PlannedLayout(**layout.model_dump(), plan=found.paths), None)
    assert (judged.verdict, judged.makespan) == ("optimal", found.makespan)
    assert judged.sum_of_costs is not None
    assert found.sum_of_costs is not None
    assert judged.sum_of_costs >= found.sum_of_costs


@QUIET
@given(random_layouts(max_size=4, agents=(2, 3)))
def test_plain_search_answers_as_the_tables_do(drawn: Drawn) -> None:
    layout = _layout(drawn)
    with pytest.MonkeyPatch.context() as patched:
        by_tables = solution("x", layout, None)
        patched.setattr(questions, "MAX_JOINT_CELLS", 0)
        by_search = solution("x", layout, None)
    assert by_search.model_dump(exclude={"paths"}) == by_tables.model_dump(exclude={"paths"})


@QUIET
@given(random_layouts(agents=(2, 2)))
def test_via_cells_cost_something_or_nothing(drawn: Drawn) -> None:
    """Goals as via cells of their own change nothing; those of the other agent never make a plan cheaper."""
    layout = _layout(drawn)
    plain = solution("x", layout, None)
    same = solution("x", layout.model_copy(update={"via": layout.goals}), None)
    assert same.model_dump(exclude={"paths"}) == plain.model_dump(exclude={"paths"})
    crossed = layout.model_copy(update={"via": layout.goals[::-1]})
    found = solution("x", crossed, None)
    if found.status == "solved":
        assert plain.makespan is not None
        assert found.makespan is not None
        assert found.makespan >= plain.makespan
        row = PlannedLayout(**crossed.model_dump(), plan=found.paths)
        assert judgement("x", row, None).verdict == "optimal"
        assert optimal_makespan(crossed, None) == found.makespan
        before = judgement("x", row.model_copy(update={"plan": [[start] for start in row.starts]}), None)
        assert before.verdict == "goal_not_reached"


def _maze(side: int, rng: random.Random) -> list[str]:
    """A maze without rings: two agents may have to go back a long way for each other."""
    marks = [["@"] * side for _ in range(side)]
    marks[0][0], way = ".", [(0, 0)]
    while way:
        r, c = way[-1]
        ahead = [(r + dr, c + dc) for dr, dc in ((2, 0), (-2, 0), (0, 2), (0, -2))]
        ahead = [(y, x) for y, x in ahead if 0 <= y < side and 0 <= x < side and marks[y][x] == "@"]
        if not ahead:
            way.pop()
            continue
        y, x = rng.choice(ahead)
        marks[(r + y) // 2][(c + x) // 2] = marks[y][x] = "."
        way.append((y, x))
    return ["".join(row) for row in marks]


@pytest.mark.parametrize("seed", range(2))
def test_a_maze_has_an_answer_in_bounded_time(seed: int) -> None:
    rng = random.Random(seed)
    rows = _maze(25, rng)
    free = [(r, c) for r, row in enumerate(rows) for c, mark in enumerate(row) if mark == "."]
    layout = Layout(rows=rows, starts=rng.sample(free, 5), goals=rng.sample(free, 5))
    with fuzz.at_most(30):
        found = solution("maze", layout, 20_000)
    assert found.status == "solved" or found.open
