"""Published runs made again: packed rows, where two runs part, the tolerance of their arm, and what bad input says."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from study_rows import answers, row

from graph.settings import SettingsError
from graph.study.__main__ import main
from graph.study.comparison import compared, told, tolerance
from graph.study.plan import Loaded, load_plan
from graph.study.reproduce import named
from graph.study.rows import Row, read_rows

BUDGET = 1000


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan = {
        "name": "tiny",
        "question": "?",
        "settings": {"budget": "profile", "token_budget": BUDGET},
        "arms": {"self": {"designer": "self"}, "random": {"designer": "random"}},
        "primary": {"treatment": "self", "control": "random"},
    }
    path.write_text(yaml.safe_dump(plan))
    return load_plan(path)


def write(path: Path, rows: list[Row], plan: str) -> Path:
    lines = "".join(one.model_copy(update={"plan": plan}).model_dump_json() + "\n" for one in rows)
    path.write_bytes(gzip.compress(lines.encode(), mtime=0) if path.suffix == ".gz" else lines.encode())
    return path


def test_packed_rows_are_read_like_others_and_a_torn_pack_is_told_of(tmp_path: Path) -> None:
    rows = [row("self", 0), row("random", 0)]
    packed, plain = (write(tmp_path / name, rows, "f" * 64) for name in ("rows.jsonl.gz", "rows.jsonl"))
    assert read_rows(packed, "f" * 64) == read_rows(plain, "f" * 64) == rows
    whole = packed.read_bytes()
    for spoilt in (whole[:-20], b"no pack", whole[:40] + bytes(20) + whole[60:]):
        packed.write_bytes(spoilt)
        with pytest.raises(SettingsError, match=r"rows.jsonl.gz cannot be read"):
            read_rows(packed, "f" * 64)


def test_what_costs_time_is_no_difference(loaded: Loaded) -> None:
    found = compared(row("self", 0), row("self", 0, seconds=1.0, cpu_seconds=2.0, code="d"), BUDGET)
    assert told(found, loaded, 0) == (["self, seed 0: the same to the last answer"], True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"start": "t" * 64}, "the starting checkpoint"),
        ({"start_anchor": answers(8, 0.2)}, "the start's answers to the anchor set"),
        ({"before": {"test": answers(8, 0.2)}}, "the start's answers to the sealed sets"),
        ({"stages": row("self", 1).stages}, "stage 000"),
        ({"stages": row("self", 0).stages[:1]}, "the number of stages"),
        ({"champion": 0}, "the champion"),
        ({"after": {"test": answers(8, 0.2)}}, "the champion's answers to the sealed sets"),
        ({"role_fallbacks": 1}, "tokens and fallbacks"),
    ],
)
def test_the_first_difference_is_named(loaded: Loaded, changes: dict[str, object], says: str) -> None:
    found = compared(row("self", 0), row("self", 0, **changes), BUDGET)
    assert found.parts == says
    lines, within = told(found, loaded, 0)
    assert lines[0] == f"self, seed 0: parts from the published run at {says}"
    assert not within, "nothing may differ"


def test_another_code_is_named_where_runs_part(loaded: Loaded) -> None:
    found = compared(row("self", 0), row("self", 0, champion=0, code="d"), BUDGET)
    lines, _ = told(found, loaded, 100)
    assert "made by the code c, and this is d" in "\n".join(lines)


@given(st.lists(st.floats(0.05, 0.95), min_size=2, max_size=8))
def test_the_tolerance_is_that_of_two_draws_of_the_arm(loaded: Loaded, levels: list[float]) -> None:
    rows = [row("self", seed, level) for seed, level in enumerate(levels)]
    others = [row("random", seed, 0.9 * (seed % 2)) for seed in range(4)]
    shares = [np.mean(list(one.after["test"].shares("valid").values())) for one in rows]
    quantiles = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
    expected = 100 * quantiles[len(rows)] * math.sqrt(2) * np.std(shares, ddof=1)
    assert tolerance(loaded, rows + others, "self") == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_one_published_seed_has_no_tolerance(loaded: Loaded) -> None:
    assert tolerance(loaded, [row("self", 0)], "self") is None
    lines, within = told(compared(row("self", 0), row("self", 0, champion=0), BUDGET), loaded, None)
    assert not within
    assert "give --tolerance" in lines[-1]


@pytest.mark.parametrize(("allowed", "within"), [(60.0, True), (1.0, False)])
def test_a_run_is_within_the_tolerance_or_outside(loaded: Loaded, allowed: float, within: bool) -> None:
    found = compared(row("self", 0, 0.2), row("self", 0, 0.6), BUDGET)
    lines, sound = told(found, loaded, allowed)
    assert sound is within
    assert f"{'within' if within else 'outside'} the tolerance of {allowed:.1f} points" in lines[-1]


def test_runs_are_named_by_arm_and_seed() -> None:
    rows = {one.key: one for one in (row("self", 1000), row("random-ungated", 1001))}
    assert named(["random-ungated:1001", "self:1000", "self:1000"], rows, Path("r")) == [
        ("random-ungated", 1001),
        ("self", 1000),
    ]
    for text in ("self:1001", "self", "1000", "self:-1", "self:²", ":"):
        with pytest.raises(SettingsError, match=r"no run of r; it has 2, such as random-ungated:1001, self:1000"):
            named([text], rows, Path("r"))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--runs", "self:0"], "rows.jsonl.gz is no file"),
        (["--runs", "self:0", "--tolerance", "-1"], "--tolerance -1.0, expected points of 0 or more"),
        (["--runs", "self:0", "--tolerance", "nan"], "--tolerance nan, expected points of 0 or more"),
        (["--runs", "self:0", "--parallel", "0"], "--parallel 0, expected at least 1"),
        ([], "--runs"),
    ],
)
def test_bad_input_is_told(loaded: Loaded, capsys: pytest.CaptureFixture[str], flags: list[str], says: str) -> None:
    assert main(["reproduce", "--plan", str(loaded.path), *flags]) == 2
    assert says in capsys.readouterr().err


def test_rows_of_another_plan_are_refused(loaded: Loaded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = write(tmp_path / "rows.jsonl.gz", [row("self", 0)], "e" * 64)
    assert main(["reproduce", "--plan", str(loaded.path), "--published", str(packed), "--runs", "self:0"]) == 2
    assert "belongs to the plan eeeeeeeeeeeeeeee" in capsys.readouterr().err
