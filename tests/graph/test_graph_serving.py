"""A run whose profile asks for servers: one for each checkpoint that is asked, and none while a stage trains."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from graph import layout
from graph.nodes import train
from graph.prepare import prepare
from graph.rundir import open_run
from graph.session import new_work
from graph.settings import RunSettings, SettingsError
from graph.state import Pointer
from graph.timing import Clock
from graph.work import Work
from trainer.attempts import process_started
from trainer.profile import shipped_profiles
from trainer.serving.backends import ServedPolicy

STAND_IN = Path(__file__).parents[1] / "trainer" / "fake_vllm"


def profile(tmp_path: Path, backend: dict[str, Any]) -> str:
    data = yaml.safe_load(shipped_profiles()["seedling"])
    path = tmp_path / "served.yaml"
    path.write_text(yaml.safe_dump({**data, "backend": backend, "evaluation": {"validation": 24}}))
    return str(path)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    prepared = prepare(RunSettings(profile=profile(tmp_path, {"kind": "vllm", "python": sys.executable})))
    with open_run(tmp_path / "run", prepared.identity, resume=False) as run:
        made = new_work(prepared, run, Console(quiet=True), Clock(time.monotonic()))
        yield made
        made.release()


def pointer(work: Work, sha256: str) -> Pointer:
    return Pointer(stage=-1, path=str(Path(work.start.path).absolute()), sha256=sha256, anchor=0.0)


def pid(work: Work, sha256: str) -> int:
    policy = work.policy(pointer(work, sha256))
    assert isinstance(policy, ServedPolicy)
    assert policy.server.pid is not None
    return policy.server.pid


class Trains(Exception):
    pass


def test_servers_take_turns_and_are_gone_before_training(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pid(work, "a" * 64)
    assert pid(work, "a" * 64) == first
    assert work.run.path(layout.serving_dir("a" * 64)).joinpath("server.log").read_text()
    second = pid(work, "b" * 64)
    assert process_started(first) is None
    assert process_started(second) is not None

    def launch(*_: Any) -> None:
        assert process_started(second) is None
        raise Trains

    monkeypatch.setattr("graph.nodes.stage_budget", lambda *_: None)
    monkeypatch.setattr("graph.nodes.without_signal", lambda *_: False)
    monkeypatch.setattr("graph.nodes.launch", launch)
    with pytest.raises(Trains):
        train({"stage": 0, "current": pointer(work, "b" * 64)}, work)


def test_what_a_server_answered_is_written_down_as_such(work: Work) -> None:
    report = work.evaluate(pointer(work, "a" * 64), "validation")
    assert report.n == 24
    header = json.loads((work.run.path(layout.eval_dir(-1)) / report.rollouts).read_text().splitlines()[0])
    assert header["backend"] == {"kind": "vllm", "dtype": None, "max_model_length": None}


def test_a_run_by_url_is_refused(tmp_path: Path) -> None:
    given = {"kind": "url", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    with pytest.raises(SettingsError, match=r"backend\.kind is url, and http://127.0.0.1:1/v1 answers with one model"):
        prepare(RunSettings(profile=profile(tmp_path, given)))


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        ({"kind": "vllm", "pyton": "x"}, "did you mean 'python'"),
        ({"kind": "llama"}, "backend = "),
    ],
)
def test_slips_in_the_section_are_named(tmp_path: Path, backend: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        prepare(RunSettings(profile=profile(tmp_path, backend)))
