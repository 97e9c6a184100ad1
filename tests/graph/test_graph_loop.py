"""Whole tiny runs of the real loop: kill -9 anywhere, drains, adversaries, approval, and the same bytes twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from loops import LOOSE, finish, kill, outcome, set_back, settings_text, start, wait_for, workers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from graph.rundir import RunDir

pytestmark = pytest.mark.loop


def test_the_same_seed_gives_the_same_bytes(straight: tuple[Path, Path], tmp_path: Path) -> None:
    config, root = straight
    finish(start(tmp_path, "--config", config, "--run-dir", tmp_path / "run"))
    assert outcome(tmp_path / "run") == outcome(root)


def test_a_run_leaves_readable_files_and_one_page(straight: tuple[Path, Path]) -> None:
    _, root = straight
    run = RunDir(root)
    for name in ("config", "evidence", "diagnosis", "proposal", "gates", "critique", "budget", "decision", "result"):
        assert run.exists(f"stages/001/{name}.json"), name
    page = (root / "report/index.html").read_text()
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    spent = [event["seconds"] for event in run.events() if event["event"] == "time"][-1]
    assert spent["other"] <= 0.10 * sum(spent.values()), spent


def assert_curves_are_whole(root: Path) -> None:
    """Every step of every stage once in TensorBoard's files, and a point a stage in the run's own series."""
    run, stages = RunDir(root), sorted(path.name for path in (root / "stages").iterdir())
    steps = {f"stage-{stage}": run.read(f"stages/{stage}/result.json")["steps"] for stage in stages}
    series = {folder.name: EventAccumulator(str(folder)).Reload() for folder in (root / "tensorboard").iterdir()}
    assert set(series) == {*steps, "run"}
    for name, last in steps.items():
        assert [event.step for event in series[name].Scalars("train/reward")] == list(range(1, last + 1))
    anchor = series["run"].Scalars("run/anchor_valid")
    after = [run.read(f"stages/{stage}/decision.json")["after"]["macro_valid"] for stage in stages]
    assert [event.step for event in anchor] == list(range(len(stages)))
    assert [event.value for event in anchor] == pytest.approx(after)


def test_a_run_draws_its_curves_and_keeps_its_answers(straight: tuple[Path, Path]) -> None:
    _, root = straight
    assert_curves_are_whole(root)
    for stage in (root / "stages").iterdir():
        found = pq.read_table(stage / "completions").to_pydict()
        result = json.loads((stage / "result.json").read_text())
        assert sorted(set(found["step"])) == list(range(1, result["steps"] + 1))


def test_the_checkpointer_holds_little_and_plain_json(straight: tuple[Path, Path]) -> None:
    _, root = straight
    with sqlite3.connect(root / "graph.sqlite") as database:
        sizes = [size for (size,) in database.execute("select length(checkpoint) from checkpoints")]
    assert len(sizes) > 10
    assert max(sizes) < 16 * 1024


@pytest.mark.parametrize(
    ("node", "stage", "with_worker"),
    [
        ("failure_analyst", 1, False),
        ("gates", 1, False),
        ("train", 0, False),
        ("train", 1, True),
        ("evaluate", 1, False),
        ("report", 2, False),
    ],
)
def test_kill_and_resume(straight: tuple[Path, Path], tmp_path: Path, node: str, stage: int, with_worker: bool) -> None:
    """kill -9 of the whole group in a node; what was finished is not done again, and the end is the same."""
    config, undisturbed = straight
    root = tmp_path / "run"
    if stage == 0:
        process = start(tmp_path, "--config", config, "--run-dir", root)
    else:
        set_back(undisturbed, root, node if node in ("evaluate", "report") else "evidence", stage)
        process = start(tmp_path, "--resume", "--run-dir", root)
    wait_for(root, process, lambda event: event.get("node") == node and event["stage"] == stage)
    if node == "train":
        metrics = root / f"stages/{stage:03d}/attempt-1/metrics.jsonl"
        while not metrics.exists() and process.poll() is None:
            time.sleep(0.01)
    kill(process)
    if with_worker:
        for pid in workers(root):
            os.killpg(pid, signal.SIGKILL)
    done = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.glob("stages/*/result.json")}
    finish(start(tmp_path, "--run-dir", root, "--resume"))
    assert outcome(root) == outcome(undisturbed)
    assert_curves_are_whole(root)
    for path, before in done.items():
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before, f"{path} was made again"
    for folder in root.glob("stages/*"):
        attempts = len(list(folder.glob("attempt-*")))
        restarted = with_worker and folder.name == f"{stage:03d}"
        assert attempts <= 1 + restarted, f"{folder.name} was trained {attempts} times"


def test_a_lost_database_costs_no_training(straight: tuple[Path, Path], tmp_path: Path) -> None:
    """Files win: without the checkpointer the run is read again from its files."""
    _, undisturbed = straight
    root = tmp_path / "run"
    shutil.copytree(undisturbed, root)
    for path in root.glob("graph.sqlite*"):
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in root.glob("stages/*/*/*") if path.is_file()}
    finish(start(tmp_path, "--run-dir", root, "--resume"))
    assert outcome(root) == outcome(undisturbed)
    again = {path: path.stat().st_mtime_ns for path in root.glob("stages/*/*/*") if path.is_file()}
    assert again == before


def test_sigterm_drains_while_training(straight: tuple[Path, Path], tmp_path: Path) -> None:
    _, undisturbed = straight
    root = tmp_path / "run"
    set_back(undisturbed, root, "evidence", 1)
    process = start(tmp_path, "--resume", "--run-dir", root)
    wait_for(root, process, lambda event: event.get("node") == "train" and event["stage"] == 1)
    process.send_signal(signal.SIGTERM)
    assert "drained" in finish(process, 75)
    assert workers(root) == []
    finish(start(tmp_path, "--run-dir", root, "--resume"))
    assert outcome(root) == outcome(undisturbed)


def test_a_stage_without_any_signal_does_not_end_the_run(tmp_path: Path, profile: Path) -> None:
    """Sampling this cold draws the same answer every time, so that no group differs and no weight moves."""
    cold = yaml.safe_load(profile.read_text()) | {"generation": {"max_new_tokens": 8, "temperature": 1e-6}}
    (tmp_path / "cold.yaml").write_text(yaml.safe_dump(cold))
    config = tmp_path / "settings.yaml"
    config.write_text(settings_text(tmp_path / "cold.yaml", designer="fixed"))
    root = tmp_path / "run"
    finish(start(tmp_path, "--config", config, "--run-dir", root))
    run = RunDir(root)
    for stage in ("000", "001"):
        decision = run.read(f"stages/{stage}/decision.json")
        assert decision["reason"].startswith("no learning signal")
        assert (decision["accepted"], decision["current"]["stage"], decision["valid"]["delta"]) == (False, -1, 0.0)
    assert run.read("stages/001/evidence.json")["zero_variance_share"] == 1.0
    assert run.read("result.json")["champion"]["stage"] == -1


def test_a_stage_that_a_tripwire_stops_is_rolled_back_and_the_next_evidence_names_it(
    tmp_path: Path, profile: Path
) -> None:
    armed = yaml.safe_load(profile.read_text())
    armed["grpo"]["tripwires"] = {"window": 2, "clipped_above": None, "gradient_norm_above": 1e-8}
    (tmp_path / "armed.yaml").write_text(yaml.safe_dump(armed))
    config = tmp_path / "settings.yaml"
    config.write_text(settings_text(tmp_path / "armed.yaml", designer="self"))
    root = tmp_path / "run"
    said = finish(start(tmp_path, "--config", config, "--run-dir", root))
    run = RunDir(root)
    for stage in ("000", "001"):
        result, decision = run.read(f"stages/{stage}/result.json"), run.read(f"stages/{stage}/decision.json")
        assert (result["steps"], result["tripped"]["wire"]) == (2, "gradient_norm_above")
        assert (decision["accepted"], decision["current"]["stage"]) == (False, -1)
        assert decision["reason"] == f"stopped by a tripwire: {decision['stopped']}"
        assert decision["after"]["n"] > 0, "what became of it is on record"
    stopped = run.read("stages/000/decision.json")["stopped"]
    assert stopped.startswith("gradient_norm_above 1e-08 was crossed at step 2: ")
    assert run.read("stages/001/evidence.json")["stopped"] == stopped
    assert "stopped early, gradient_norm_above" in said


def test_a_person_edits_and_approves(straight: tuple[Path, Path], tmp_path: Path) -> None:
    _, parent = straight
    config, root = tmp_path / "settings.yaml", tmp_path / "run"
    config.write_text(yaml.safe_dump({"designer": "fixed", "approval": "always", "gates": LOOSE}))
    given = ("--fork-from", parent, "--at-stage", 1, "--run-dir", root, "--config", config)
    assert "waits for approval" in finish(start(tmp_path, *given), 3)
    assert "waits for approval" in finish(start(tmp_path, "--run-dir", root, "--resume"), 3)
    mine = tmp_path / "mine.json"
    change = {"path": "short.noise_ratio", "op": "set", "value": 0.3}
    mine.write_text(
        json.dumps(RunDir(root).read("stages/001/proposals/0/proposal.json") | {"parsed": {"changes": [change]}})
    )
    finish(start(tmp_path, "--run-dir", root, "--resume", "--approve", mine))
    assert RunDir(root).read("stages/001/plan.json")["source"] == "person"
    assert RunDir(root).read("stages/001/config.json")["short"]["noise_ratio"] == 0.3
