"""A tiny study through the real command: killed in the middle, gone on with, and nothing done twice."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from loops import finish, start, until
from processes import named

from graph.study.plan import load_plan
from graph.study.rows import read_rows

pytestmark = pytest.mark.loop


@pytest.fixture
def plan(tmp_path: Path, profile: Path) -> Path:
    path = tmp_path / "plan.yaml"
    data = {
        "name": "tiny",
        "question": "does a tiny study work?",
        "settings": {
            "environment": "parity:Parity",
            "profile": str(profile),
            "budget": "profile",
            "acceptance": {"samples": 2},
            "token_budget": 1100,
            "stages": 4,
        },
        "benchmark": True,
        "samples": 3,
        "arms": {"teacher": {"designer": "teacher"}, "fixed": {"designer": "fixed"}},
        "seeds": {"n": 1},
        "primary": {"treatment": "teacher", "control": "fixed"},
    }
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def study(plan: Path, directory: Path, *flags: str) -> subprocess.Popen[str]:
    return start(plan.parent, "--plan", plan, "--directory", directory, *flags, module="graph.study")


def test_a_study_is_killed_and_goes_on_with_nothing_repeated(plan: Path, tmp_path: Path) -> None:
    directory = tmp_path / "study"
    rows, first, second = directory / "rows.jsonl", *(directory / "runs" / name for name in ("teacher-0", "fixed-0"))
    process = study(plan, directory)
    until(lambda: rows.exists() and list(second.glob("stages/000/attempt-1/checkpoint-*")), process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # What the study started ends with it, or the next call would find its run in use.
    until(lambda: not named("graph.run", str(second)))
    done = (rows.read_bytes(), (first / "events.jsonl").read_bytes())
    assert rows.read_bytes().count(b"\n") == 1
    # A power cut tears what is being written.
    rows.write_bytes(rows.read_bytes() + b'{"schema_version":1,"pl')

    said = finish(study(plan, directory))
    assert "[2/2]" in said
    assert "teacher" not in said
    assert rows.read_bytes().startswith(done[0])
    assert (first / "events.jsonl").read_bytes() == done[1]
    sessions = [event for event in events(second) if event["event"] == "session"]
    assert [one["resumed"] for one in sessions] == [False, True]
    # The stage that was under way goes on from its checkpoint: every step is there once.
    result = json.loads((second / "stages" / "000" / "result.json").read_text())
    assert result["steps"] == 4

    loaded = load_plan(plan)
    teacher, fixed = read_rows(rows, loaded.hash)
    assert teacher.start == fixed.start
    for row in (teacher, fixed):
        # The second stage is cut to what the budget has left, and no shorter than the profile allows.
        assert [stage.steps for stage in row.stages] == [4, 3]
        # It ended because the budget was spent, and not before.
        assert row.stages[0].tokens < 1100 <= row.charged
        assert row.before["test"].instances == fixed.before["test"].instances
        assert set(row.after) == {"test", "test_sampled", "benchmark_0"}
        assert row.after["test_sampled"].samples == 3
        assert row.start_anchor.samples == 2
        assert {stage.anchor.samples for stage in row.stages} == {2}
        assert row.after["test_sampled"].instances == row.after["test"].instances
        assert row.cpu_seconds > 0
    assert pq.read_table(directory / "table.parquet").num_rows > 0
    assert "teacher - fixed" in (directory / "report.html").read_text()

    before = {path: path.stat().st_mtime_ns for path in (directory / "runs").rglob("*")}
    assert "2 runs in" in finish(study(plan, directory))
    assert {path: path.stat().st_mtime_ns for path in (directory / "runs").rglob("*")} == before

    published = tmp_path / "rows.jsonl.gz"
    published.write_bytes(gzip.compress(rows.read_bytes()))
    flags = ("--plan", plan, "--published", published, "--runs", "fixed:0", "--directory", tmp_path / "again")
    said = finish(start(plan.parent, "reproduce", *flags, module="graph.study"))
    assert "fixed, seed 0: the same to the last answer" in said

    plan.write_text(plan.read_text().replace("token_budget: 1100", "token_budget: 1200"))
    assert "belongs to the plan" in finish(study(plan, directory), code=2)
    # Without its rows too, a run is not taken for one of another plan.
    rows.unlink()
    said = finish(study(plan, directory), code=1)
    assert "holds another run: settings.token_budget (was 1100, now 1200)" in said


def test_a_run_that_fails_is_told_and_tried_again(plan: Path, tmp_path: Path) -> None:
    directory = tmp_path / "study"
    place = directory / "runs" / "fixed-0"
    place.mkdir(parents=True)
    (place / "in the way").touch()
    said = finish(study(plan, directory, "--arms", "fixed"), code=1)
    assert "[0/1, 1 failed] fixed, seed 0: ended with exit code 2" in said
    assert "is not empty and holds no run" in said
    assert "the same command tries them again" in said
    (place / "in the way").unlink()
    process = study(plan, directory, "--arms", "fixed")
    until((place / "events.jsonl").exists, process)
    process.send_signal(signal.SIGTERM)
    assert "the same command goes on" in finish(process, code=75)


def events(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
