"""Answers graded into the paper's table, and the paper's own rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsim.__main__ import main
from envsim.api import EnvsimError
from envsim.lake import sets
from envsim.lake.config import EnvConfig
from envsim.lake.environment import Lake
from envsim.lake.instance import LakeInstance, write_instances
from envsim.lake.scoring import AnswerRow, Figures, Score, ScoreTable, as_text, grade, paper, score

LAKE = Lake()


@pytest.fixture(scope="module")
def instances() -> list[LakeInstance]:
    """Twelve instances of 3 and of 4 agents on 4x4 and 5x5."""
    sizes = {str(n): {"data_ratio": float(n in (4, 5)), "hole_ratio": 0.1, "wait_ratio": 0.0} for n in range(3, 11)}
    config = EnvConfig.model_validate({"sizes": sizes, "agents": {"3": 0.5, "4": 0.5}})
    return list(LAKE.generate(config, 24, 0).instances)


def _answers(rows: dict[str, str]) -> list[tuple[str, AnswerRow]]:
    return [(f"a:{n}", AnswerRow(id=key, answer=text)) for n, (key, text) in enumerate(rows.items(), 1)]


def test_the_papers_sums_are_the_means_of_its_columns() -> None:
    tables = paper().tables
    assert {agents: len(rows) for agents, rows in tables.items()} == {3: 7, 4: 7, 5: 7}
    full = [(rows[0].name, row) for rows in tables.values() for row in rows if row.acc]
    assert len(full) == 9
    for _, row in full:
        assert row.sum is not None
        assert sum(row.acc.values()) / len(row.acc) == pytest.approx(row.sum.acc, abs=0.011)
        if row.opt:
            assert sum(row.opt.values()) / len(row.opt) == pytest.approx(row.sum.opt, abs=0.011)
    recipe = sets.sets_file().recipe.benchmark
    for agents, rows in tables.items():
        cells = [f"{n}x{n}" for n in recipe.sizes[agents]]
        assert all(list(row.acc) in ([], cells) for row in rows)
        for row in rows:
            for value in (*row.acc.values(), *row.opt.values()):
                assert value == pytest.approx(round(value * 1.5) / 1.5, abs=0.005), "a multiple of 1/150"


def test_reference_answers_are_all_optimal(instances: list[LakeInstance]) -> None:
    verdicts = grade(instances, _answers({i.id: LAKE.reference_answer(i, "full") for i in instances}))
    found = score("mine.jsonl", instances, verdicts, "reference", partial=False)
    assert [table.agents for table in found.tables] == [3, 4]
    assert found.paper is None
    for table in found.tables:
        (row,) = table.rows
        assert table.cells == ["4x4", "5x5"]
        assert sum(table.n.values()) == 12
        assert row.acc == row.opt == {"4x4": 100, "5x5": 100}
        assert row.sum == Figures(acc=100, opt=100)
    full = "100.00/100.00"
    assert [line.split()[-3:] for line in as_text(found).splitlines() if full in line] == [[full] * 3] * 2


def test_shares_are_counted_by_agents_and_size(instances: list[LakeInstance]) -> None:
    """Every third answer optimal, every third a step slower, every third wrong."""

    def text(index: int, instance: LakeInstance) -> str:
        plan = json.loads(LAKE.reference_answer(instance, "full"))["plan"]
        slow = [[path[0], *path] for path in plan]
        return (json.dumps({"plan": plan}), json.dumps({"plan": slow}), "none")[index % 3]

    verdicts = grade(instances, _answers({i.id: text(n, i) for n, i in enumerate(instances)}))
    found = score("benchmark", instances, verdicts, "thirds", partial=False)
    for table in found.tables:
        mine, *others = table.rows
        assert [row.name for row in others] == [row.name for row in paper().tables[table.agents]]
        chosen = [(n, i) for n, i in enumerate(instances) if i.agents == table.agents]
        for cell in table.cells:
            here = [n for n, i in chosen if LAKE.cell(i) == cell]
            assert mine.acc[cell] == pytest.approx(100 * sum(n % 3 < 2 for n in here) / len(here), abs=0.01)
            assert mine.opt[cell] == pytest.approx(100 * sum(n % 3 == 0 for n in here) / len(here), abs=0.01)
        assert mine.sum.acc == pytest.approx(100 * sum(n % 3 < 2 for n, _ in chosen) / 12, abs=0.01)
    assert found.outcomes == {"optimal": 8, "valid_suboptimal": 8, "parse_error": 8}
    text_of = as_text(found)
    assert "Qwen3-4B + GRPO + LLM engineer" in text_of
    assert "64.67/41.33" in text_of
    assert "arXiv 2606.17682" in text_of


def test_missing_answers_are_wrong_unless_left_out(instances: list[LakeInstance]) -> None:
    some = [i for i in instances if i.agents == 3][:6]
    verdicts = grade(instances, _answers({i.id: LAKE.reference_answer(i, "compact") for i in some}))
    whole = score("mine", instances, verdicts, "some", partial=False)
    assert (whole.answers, whole.missing) == (6, 18)
    assert [_sum(table).acc for table in whole.tables] == [50, 0]
    assert "18 of 24 instances have no answer: counted as wrong" in as_text(whole)
    part = score("mine", instances, verdicts, "some", partial=True)
    assert [(table.agents, _sum(table).acc) for table in part.tables] == [(3, 100)]
    assert "left out" in as_text(part)


def _sum(table: ScoreTable) -> Figures:
    found = table.rows[0].sum
    assert found is not None
    return found


def test_the_papers_sum_stands_only_beside_one_of_the_same_make() -> None:
    """Over all of its sizes, each with as many instances; the rest of its rows stands always."""
    made = [
        i.model_copy(update={"id": f"{i.id}-{n}"}) for size in range(4, 11) for n, i in enumerate(_of_size(size) * 2)
    ]
    every, unequal, few = made, made[:-1], made[:8]
    for chosen, there in ((every, True), (unequal, False), (few, False)):
        verdicts = {i.id: LAKE.score(i, LAKE.reference_answer(i, "full")) for i in chosen}
        found = score("benchmark", made, verdicts, "mine", partial=True)
        (table,) = found.tables
        assert [row.sum is not None for row in table.rows] == [True] + [there] * 7
        assert ("left out (-)" in as_text(found)) is not there
        assert any(row.acc for row in table.rows[1:])
        assert ('"sum":null' in found.model_dump_json()) is not there


def _of_size(size: int) -> list[LakeInstance]:
    sizes = {str(n): {"data_ratio": float(n == size), "hole_ratio": 0.1, "wait_ratio": 0.0} for n in range(3, 11)}
    return list(LAKE.generate(EnvConfig.model_validate({"sizes": sizes, "agents": {"4": 1}}), 2, 0).instances)


def test_sets_and_answers_that_cannot_be_graded(instances: list[LakeInstance]) -> None:
    one = instances[0]
    with pytest.raises(EnvsimError, match=r"^a:2: id 'other' is not in the set of 24 instances"):
        grade(instances, _answers({one.id: "x", "other": "x"}))
    with pytest.raises(EnvsimError, match=r"^b: id .* has an answer in a:1 already"):
        grade(instances, [*_answers({one.id: "x"}), ("b", AnswerRow(id=one.id, answer="y"))])
    with pytest.raises(EnvsimError, match="is in the set twice"):
        grade([one, one], [])
    with pytest.raises(EnvsimError, match="no certified optimum"):
        grade([one.model_copy(update={"certificate": None})], [])


def test_the_command(instances: list[LakeInstance], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, prompts, answers, verdicts = (tmp_path / name for name in ("own.jsonl", "prompts", "base.jsonl", "verdicts"))
    write_instances(own, instances)
    assert main(["benchmark", "--prompts", str(prompts), "--style", "compact", "--set", str(own)]) == 0
    posed = [json.loads(line) for line in prompts.read_text().splitlines()]
    assert [row["id"] for row in posed] == [i.id for i in instances]
    assert posed[0]["messages"] == LAKE.prompt(instances[0], "compact")
    assert main(["benchmark", "--baseline", str(answers), "--set", str(own)]) == 0
    capsys.readouterr()
    scored = ["benchmark", "--score", str(answers), "--set", str(own)]
    assert main([*scored, "--json", "--verdicts", str(verdicts)]) == 0
    found = Score.model_validate_json(capsys.readouterr().out)
    assert (found.set, found.answers, found.missing) == (str(own), 24, 0)
    assert found.tables[0].rows[0].name == "base"
    given = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert [row["id"] for row in given] == [i.id for i in instances]
    assert sum(row["valid"] for row in given) == found.outcomes["optimal"]
    assert main([*scored, "--name", "each alone"]) == 0
    assert "each alone" in capsys.readouterr().out

    answers.write_text(answers.read_text() + answers.read_text().splitlines()[3] + "\n")
    assert main(scored) == 2
    assert f"{answers}:25: id '{instances[3].id}' has an answer in {answers}:4 already" in capsys.readouterr().err
    answers.write_text('{"id": "x"}\n')
    assert main(scored) == 2
    assert f"{answers}:1: answer: Field required" in capsys.readouterr().err


def test_a_frozen_set_has_a_table_by_size(
    sets_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sets, "cache_directory", lambda: sets_directory)
    answers = tmp_path / "answers.jsonl"
    assert main(["benchmark", "--baseline", str(answers), "--style", "compact", "--set", "validation"]) == 0
    assert main(["benchmark", "--score", str(answers), "--set", "validation"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("2 agents, acc./opt. (%)")
    assert lines[1].split()[-9:] == [f"{n}x{n}" for n in range(3, 11)] + ["Sum"]
    assert lines[2].split()[-1] == "336"
    assert lines[4] == ""
