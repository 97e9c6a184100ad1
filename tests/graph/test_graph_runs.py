"""Many runs: what their files and locks say of them, what is compared, and what may go."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from loops import finish, start

from graph import runs
from graph.exits import Exit
from graph.lock import STUDIO
from graph.rundir import RunDir
from graph.runs_compare import paired
from graph.runs_found import read_run, run_directories
from graph.settings import SettingsError
from trainer.evaluate import Rollout
from trainer.spec import ModelRef, StageResult

CELLS = ("3x3", "10x10")


def rollouts(valid: dict[str, int], *, instances: str = "s1", n: int = 20) -> str:
    """A file of greedy answers, so many of each cell valid."""
    header = {"set": "test", "instances": instances, "style": "compact", "samples": 1}
    rows = [
        {"id": f"{cell}-{i}", "cell": cell, "sample": 0, "answer": "", "tokens": 1, "regret": 1.0, "fault": None}
        | {"outcome": "odd", "valid": i < valid[cell], "optimal": False}
        for cell in CELLS
        for i in range(n)
    ]
    return "\n".join(json.dumps(row) for row in (header, *rows)) + "\n"


def make_run(
    root: Path,
    *,
    stages: int = 2,
    designer: str = "self",
    start: str = "a",
    environment: str = "lake",
    how: str | None = "done",
    valid: dict[str, int] | None = None,
    instances: str = "s1",
) -> Path:
    """The files of a run that has decided its stages; the last one made the champion."""
    root.mkdir(parents=True)
    settings = {"environment": environment, "designer": designer, "seed": 0, "profile": "tiny", "stages": stages - 1}
    identity = {"settings": settings, "profile": {"model": "seedling"}, "start_sha256": start}
    (root / "run.yaml").write_text(yaml.safe_dump(identity))
    (root / "lock").write_text("{}")
    run = RunDir(root)
    run.append_event({"event": "session", "session": "s"})
    run.append_event({"event": "node", "node": "train", "stage": 0})
    run.append_event({"event": "time", "session": "s", "seconds": {"training": 90.0, "other": 1.5}})
    if how is not None:
        run.append_event({"event": "ended", "how": how, "why": "no luck" if how == "failed" else ""})
    run.write("start/eval/anchor.eval.json", {"macro_valid": 0.25, "generated_tokens": 100})
    for stage in range(stages):
        decide(run, stage, champion=stages - 1)
    scores = {"before": macro(0.25), "after": macro(0.5)}
    test = {**scores, "valid": {"delta": 0.25, "low": 0.2, "high": 0.3}}
    if how == "done":
        run.write("result.json", {"sets": {"test": test}})
    place = root / f"stages/{stages - 1:03d}/eval"
    place.mkdir(parents=True)
    (place / "test.rollouts.jsonl").write_text(rollouts(valid or dict.fromkeys(CELLS, 10), instances=instances))
    return root


def macro(value: float) -> dict[str, float]:
    return {"macro_valid": value, "macro_optimal": value}


def decide(run: RunDir, stage: int, *, champion: int) -> None:
    folder = f"stages/{stage:03d}"
    result = StageResult(
        spec_hash="0",
        stage=stage,
        steps=10,
        model=ModelRef(path="model", sha256="0"),
        weight_change=1.0,
        generated_tokens=500,
        reward_first=0.1,
        reward_last=0.2,
        zero_variance_share=0.5,
        seconds={},
        attempt=2,
    )
    run.write(f"{folder}/result.json", result.model_dump(mode="json"))
    run.write(f"{folder}/plan.json", {"source": "self"})
    pointers = {"current": {"stage": champion, "anchor": 0.5}, "champion": {"stage": champion, "anchor": 0.5}}
    decision = {"accepted": stage != 1, "reason": "", "before": macro(0.25), "after": macro(0.5), **pointers}
    run.write(f"{folder}/decision.json", decision)
    for name in ("model", "attempt-1/checkpoint-1", "attempt-2/checkpoint-2"):
        place = run.path(f"{folder}/{name}")
        place.mkdir(parents=True)
        (place / "weights").write_bytes(b"x" * 1000)
    (run.path(folder) / "attempt-2/metrics.jsonl").write_text("kept")


@contextmanager
def at_work(root: Path) -> Iterator[None]:
    """Another process holds the run's lock."""
    handle = os.open(root / "lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("how", "held", "state"),
    [
        ("done", False, "done"),
        ("waiting", False, "waiting"),
        ("drained", False, "drained"),
        ("failed", False, "failed"),
        (None, False, "crashed"),
        (None, True, "running"),
        ("done", True, "done"),
        ("waiting", True, "waiting"),
        ("drained", True, "drained"),
    ],
)
def test_the_log_and_the_lock_tell_the_state(tmp_path: Path, how: str | None, held: bool, state: str) -> None:
    root = make_run(tmp_path / "run", how=how)
    if held:
        with at_work(root):
            assert read_run(root).state == state
    else:
        found = read_run(root)
        assert (found.state, found.why) == (state, "no luck" if how == "failed" else "")


STUDIO_HOLDS = json.dumps({"pid": 7, "host": "here", "what": STUDIO})


def test_a_server_that_has_a_run_open_does_not_work_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_run(tmp_path / "run", how="waiting")
    (root / "lock").write_text(STUDIO_HOLDS)
    with at_work(root):
        assert runs.main(["show", str(root)]) == Exit.DONE
        told = capsys.readouterr().out
        assert "run: waiting" in told
        assert "LangGraph Studio's server, process 7" in told
        assert "answer in its thread" in told
        assert "once that has ended, answer with" in told
        assert "--approve (or --reject" in told
        RunDir(root).append_event({"event": "session", "session": "t"})
        assert read_run(root).state == "running", "a session that has begun and noted no end"
    assert read_run(root).state == "waiting", "a session that was killed before it did anything changes nothing"


def test_a_session_that_only_finds_the_question_again_says_that_the_run_waits(tmp_path: Path) -> None:
    root = make_run(tmp_path / "run", how="failed")
    RunDir(root).append_event({"event": "session", "session": "t"})
    RunDir(root).append_event({"event": "ended", "session": "t", "how": "waiting", "why": ""})
    found = read_run(root)
    assert (found.state, found.why) == ("waiting", "")
    RunDir(root).append_event({"event": "node", "node": "approval", "stage": 1})
    assert read_run(root).state == "crashed", "it was answered at its terminal, and killed then"


@pytest.mark.parametrize(("lock", "state"), [("{}", "running"), (STUDIO_HOLDS, "new"), ("[torn", "running")])
def test_a_lock_on_a_run_without_a_session(tmp_path: Path, lock: str, state: str) -> None:
    root = make_run(tmp_path / "run")
    (root / "events.jsonl").unlink()
    (root / "lock").write_text(lock)
    with at_work(root):
        assert read_run(root).state == state


def test_a_run_is_told_in_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "group" / "one")
    make_run(tmp_path / "two", how=None)
    (tmp_path / "group" / "one" / "stages" / "run.yaml").write_text("a run inside a run is not looked for")
    assert [path.name for path in run_directories([tmp_path])] == ["one", "two"]
    assert runs.main(["--directory", str(tmp_path), "--json"]) == Exit.DONE
    one, two = json.loads(capsys.readouterr().out)
    assert (one["name"], one["state"], one["designer"], one["champion"]) == ("one", "done", "self", 1)
    assert (one["anchor"]["before"], one["anchor"]["after"]) == (0.25, 0.5)
    assert one["test"] == {"before": 0.25, "after": 0.5, "low": 0.2, "high": 0.3}
    assert (one["tokens"], one["seconds"], len(one["stages"]), one["planned"]) == (1100, 91.5, 2, 2)
    assert two["test"] is None
    assert runs.main(["list", "--directory", str(tmp_path)]) == Exit.DONE
    assert "crashed" in capsys.readouterr().out
    assert runs.main(["show", str(tmp_path / "two")]) == Exit.DONE
    told = capsys.readouterr().out
    assert "rolled back" in told
    assert "--resume --run-dir" in told


def test_two_runs_are_compared_on_the_same_instances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_run(tmp_path / "one", valid={"3x3": 2, "10x10": 10})
    second = make_run(tmp_path / "two", designer="fixed", valid={"3x3": 18, "10x10": 10})
    assert runs.main(["compare", str(first), str(second), "--json"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert found["settings"] == ["settings.designer (was self, now fixed)"]
    (pair,) = found["sets"]
    easy, hard = pair["cells"]
    assert (easy["cell"], easy["a"], easy["b"], easy["only_a"], easy["only_b"]) == ("3x3", 0.1, 0.9, 0, 16)
    assert easy["difference"]["low"] > 0.5
    assert easy["p_value"] < 0.001
    assert (hard["cell"], hard["difference"]["delta"], hard["p_value"]) == ("10x10", 0, 1)
    assert pair["valid"]["delta"] == pytest.approx(0.4)
    assert runs.main(["compare", str(first), str(second)]) == Exit.DONE
    told = capsys.readouterr().out
    for text in ("designer", "champions on the same instances", "gain", "(50.0)"):
        assert text in told


def test_what_is_not_comparable_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = make_run(tmp_path / "base")
    other_start = make_run(tmp_path / "start", start="b")
    other_set = make_run(tmp_path / "set", instances="s2")
    other_world = make_run(tmp_path / "world", environment="sea")
    assert runs.main(["compare", str(base), str(other_start)]) == Exit.DONE
    told = capsys.readouterr().out
    assert "the starting checkpoints differ" in told
    assert "gain " not in told
    for root, why in ((other_set, "the instances differ"), (other_world, "environments"), (tmp_path, "holds no run")):
        assert runs.main(["compare", str(base), str(root)]) == Exit.BAD_INPUT
        told = capsys.readouterr().err
        assert why in told
        assert len(told.splitlines()) == 1


def test_a_comparison_with_oneself_is_nothing() -> None:
    rows = [Rollout.model_validate_json(line) for line in rollouts(dict.fromkeys(CELLS, 7)).splitlines()[1:]]
    pair = paired("test", rows, rows)
    assert pair.valid is not None
    assert (pair.valid.delta, pair.valid.low, pair.valid.high) == (0, 0, 0)
    assert pair.a == pair.b == 0.35


def test_sampled_answers_are_compared_task_by_task() -> None:
    rows = [Rollout.model_validate_json(line) for line in rollouts(dict.fromkeys(CELLS, 7)).splitlines()[1:]]
    never = [row.model_copy(update={"sample": take, "valid": False}) for row in rows for take in (0, 1)]
    once = [row.model_copy(update={"sample": take, "valid": row.valid and not take}) for row in rows for take in (0, 1)]
    pair = paired("anchor", never, once)
    assert (pair.a, pair.b) == (0, 0.175)
    for cell in pair.cells:
        assert (cell.n, cell.only_a, cell.only_b) == (20, 0, 7)
        assert cell.difference.delta == pytest.approx(0.175)
        assert cell.difference.n == 20


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_pruning_says_first_and_deletes_only_what_nothing_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = make_run(tmp_path / "done", stages=4)
    heir = make_run(tmp_path / "heir", how="drained")
    identity = yaml.safe_load((heir / "run.yaml").read_text())
    identity["profile"]["model"] = str(done / "stages/000/model")
    (heir / "run.yaml").write_text(yaml.safe_dump(identity))
    before, untouched = files(done), files(heir)
    assert runs.main(["prune", "--directory", str(tmp_path)]) == Exit.DONE
    told = capsys.readouterr().out
    assert "nothing was deleted" in told
    assert "not touched, the run is drained" in told
    assert files(done) == before
    assert runs.main(["prune", "--directory", str(tmp_path), "--delete", "--json"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    gone = before - files(done)
    # Stage 003 made champion and current, stage 000's is where another run began.
    weights = {f"stages/{stage:03d}/model/weights" for stage in (1, 2)}
    attempts = {f"stages/{stage:03d}/attempt-{n}/checkpoint-{n}/weights" for stage in range(4) for n in (1, 2)}
    assert gone == weights | attempts
    assert found["freed"] == found["bytes"] == 1000 * len(gone)
    assert files(heir) == untouched
    assert read_run(done).state == "done"


def test_what_stays_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_run(tmp_path / "done", stages=4)
    decision = RunDir(root).read("stages/003/decision.json")
    RunDir(root).write("stages/003/decision.json", {**decision, "champion": {"stage": 2, "anchor": 0.6}})
    stays = {}
    for keep in ("champion", "pointers", "kept"):
        assert runs.main(["prune", str(root), "--keep", keep, "--json"]) == Exit.DONE
        doomed = json.loads(capsys.readouterr().out)["runs"][0]["doomed"]
        weights = {Path(one["path"]).parent.name for one in doomed if one["what"] == "weights"}
        stays[keep] = {"000", "001", "002", "003"} - weights
    assert stays == {"champion": {"002"}, "pointers": {"002", "003"}, "kept": {"000", "002", "003"}}


def test_a_run_that_somebody_took_up_meanwhile_is_not_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_run(tmp_path / "run")
    before = files(root)
    with at_work(root):
        assert runs.main(["prune", str(root), "--delete"]) == Exit.FAILED
    assert "in use by another process" in capsys.readouterr().err
    assert files(root) == before


def test_a_link_is_never_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, elsewhere = make_run(tmp_path / "run"), tmp_path / "elsewhere"
    shutil.move(root / "stages/000/model", elsewhere)
    (root / "stages/000/model").symlink_to(elsewhere)
    assert runs.main(["prune", str(root), "--delete", "--keep", "champion"]) == Exit.DONE
    assert (elsewhere / "weights").is_file()


@pytest.mark.parametrize(
    "arguments",
    [["show", "/nowhere"], ["--directory", "/nowhere"], ["prune", "--keep", "all"], ["compare", "a"], ["dance"]],
)
def test_bad_input_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert runs.main(arguments) == Exit.BAD_INPUT
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1


def test_a_run_is_meant_by_its_name_in_the_list_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--directory", str(tmp_path)]
    make_run(tmp_path / "arms" / "first")
    make_run(tmp_path / "second")
    assert runs.main(["list", *where]) == Exit.DONE
    listed = capsys.readouterr().out
    for name in ("first", "second"):
        assert name in listed
        assert runs.main(["show", name, *where, "--json"]) == Exit.DONE
        assert json.loads(capsys.readouterr().out)["name"] == name
    assert runs.main([*where, "compare", "first", "second"]) == Exit.DONE
    assert runs.main(["prune", *where, "first"]) == Exit.DONE
    told = capsys.readouterr().out
    assert str(tmp_path / "arms" / "first") in told
    make_run(tmp_path / "other" / "first")
    assert runs.main(["show", "first", *where]) == Exit.BAD_INPUT
    assert "is the name of" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["show"], ["compare", "second"], ["prune"]])
def test_a_run_that_there_is_none_of_is_told_with_the_names_that_there_are(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "second")
    assert runs.main([*command, "secnd", "--directory", str(tmp_path)]) == Exit.BAD_INPUT
    told = capsys.readouterr().err
    assert "no run 'secnd'" in told
    assert "did you mean 'second'?" in told
    (tmp_path / "empty").mkdir()
    assert runs.main([*command, str(tmp_path / "empty"), "--directory", str(tmp_path)]) == Exit.BAD_INPUT
    told = capsys.readouterr().err
    assert "holds no run: it has no run.yaml; python -m graph.runs lists" in told
    assert "--r" not in told, "flags that these commands do not have"


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("settings: [")
    with pytest.raises(SettingsError, match=r"run\.yaml"):
        read_run(tmp_path)


@pytest.mark.loop
def test_a_real_run_is_found_compared_and_pruned(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, root = tmp_path / "settings.yaml", tmp_path / "runs" / "one"
    config.write_text(yaml.safe_dump({"environment": "parity:Parity", "profile": str(profile), "stages": 0}))
    finish(start(tmp_path, "--config", config, "--run-dir", root))
    found = read_run(root)
    assert (found.state, len(found.stages), found.planned) == ("done", 1, 1)
    assert found.test is not None
    assert found.tokens > 0
    shutil.copytree(root, tmp_path / "runs" / "two")
    assert runs.main(["compare", str(root), str(tmp_path / "runs/two"), "--json"]) == Exit.DONE
    compared = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in compared["sets"]} == {"anchor", "test"}
    assert all(one["valid"]["delta"] == 0 for one in compared["sets"])
    assert runs.main(["prune", str(root), "--delete", "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["freed"] > 1000
    assert not list(root.glob("stages/*/attempt-*/checkpoint-*"))
    finish(start(tmp_path, "--resume", "--run-dir", root))
    assert read_run(root).stages == found.stages
