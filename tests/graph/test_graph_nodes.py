"""Nodes on their own: a proposal whose tasks cannot be had costs the stage nothing, and seeds and subsets hold."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from parity import Cell, ParityConfig
from rich.console import Console

from envsim.api import YieldError
from graph import nodes
from graph.prepare import prepare
from graph.rundir import RunDir
from graph.session import new_work
from graph.settings import RunSettings
from graph.state import RunState
from graph.timing import Clock
from graph.work import Work, thinned

NOISY = ParityConfig(short=Cell(noise_ratio=1.0))
"""A configuration that the second environment refuses to generate."""


@pytest.fixture
def work(tmp_path: Path, profile: Path) -> Work:
    prepared = prepare(RunSettings(environment="parity:Parity", profile=str(profile)))
    return new_work(prepared, RunDir(tmp_path), Console(file=io.StringIO()), Clock())


def state(stage: int) -> RunState:
    return RunState(stage=stage, revision=0, review="approve", why="", config="initial.json", reused=0)


def test_a_proposal_that_cannot_be_generated_is_replaced_by_the_accepted_configuration(work: Work) -> None:
    work.run.write("initial.json", ParityConfig().model_dump())
    work.run.write("stages/001/config.json", NOISY.model_dump())
    update = nodes.dataset(state(1), work)
    assert update["reused"] == 1
    assert work.config("stages/001/config.json") == ParityConfig()
    plan = work.run.read("stages/001/plan.json")
    assert plan["source"] == "reused"
    assert "0 % of the draws are that noisy" in plan["reason"]
    assert work.run.read("stages/001/dataset.json")["n"] == 8


def test_an_initial_configuration_that_cannot_be_generated_is_an_error(work: Work) -> None:
    work.run.write("initial.json", NOISY.model_dump())
    work.run.write("stages/000/config.json", NOISY.model_dump())
    with pytest.raises(YieldError):
        nodes.dataset(state(0), work)


def test_seeds_depend_on_the_run_and_on_the_purpose(work: Work) -> None:
    seeds = {work.seed(stage, purpose) for stage in range(3) for purpose in ("dataset", "training", "probe")}
    assert len(seeds) == 9
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_thinned_set_is_spread_over_the_whole() -> None:
    assert thinned(range(10), 5) == [0, 2, 4, 6, 8]
    assert thinned(range(3), 0) == thinned(range(3), 9) == [0, 1, 2]
