"""Designers in the real loop: killed and resumed they propose the same, and what they measure is charged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from loops import finish, settings_text, start, wait_for

from graph.rundir import RunDir

pytestmark = pytest.mark.loop

COUNTING = '''
from agents.designers import Designer, proposal, set_knob


class Counting(Designer):
    """Probes, and goes on from the number of its turns."""

    def __init__(self):
        self.turns = 0

    def propose(self, context):
        self.turns += 1
        tried = context.lab.probe(context.config, tasks=4, samples=2, draw=self.turns)
        noise = 0.1 * self.turns + 0.001 * sum(task.successes for task in tried)
        return proposal(context, f"turn {self.turns}", [set_knob(context, "long.noise_ratio", noise)])

    def state_dict(self):
        return {"name": self.name, "turns": self.turns}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.turns = state["turns"]
'''


def written(folder: Path, profile: Path, **changes: Any) -> Path:
    config = folder / "settings.yaml"
    config.write_text(settings_text(profile, **changes))
    return config


def proposals(root: Path) -> dict[str, Any]:
    """Every proposal of a run with what it cost, by its place."""
    run = RunDir(root)
    return {
        path.parent.relative_to(root).as_posix(): (
            json.loads(path.read_text())["parsed"],
            run.read(path.parent.relative_to(root).as_posix() + "/cost.json"),
        )
        for path in sorted(root.glob("stages/*/proposals/*/proposal.json"))
    }


def kill_at(root: Path, process: subprocess.Popen[str], event: Mapping[str, Any]) -> None:
    """kill -9 for the whole group as soon as the run tells of this."""
    wait_for(root, process, lambda seen: event.items() <= seen.items())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_designer_that_is_killed_goes_on_as_if_nothing_had_been(tmp_path: Path, profile: Path) -> None:
    (tmp_path / "mine.py").write_text(COUNTING)
    config = written(tmp_path, profile, designer="mine.py:Counting", stages=2, gates="off")
    finish(start(tmp_path, "--config", config, "--run-dir", tmp_path / "straight"))
    killed = tmp_path / "killed"
    process = start(tmp_path, "--config", config, "--run-dir", killed)
    kill_at(killed, process, {"event": "node", "node": "config_designer", "stage": 1})
    process = start(tmp_path, "--resume", "--run-dir", killed)
    kill_at(killed, process, {"event": "node", "node": "evidence", "stage": 2})
    finish(start(tmp_path, "--resume", "--run-dir", killed))
    straight = proposals(tmp_path / "straight")
    assert proposals(killed) == straight
    assert [found[0]["rationale"] for found in straight.values()] == ["turn 1", "turn 2"]
    assert all(found[1]["probe_rollouts"] == 8 and found[1]["probe_tokens"] > 0 for found in straight.values())


def test_what_a_model_says_as_designer_is_charged_and_the_gates_are_off_by_word(tmp_path: Path, profile: Path) -> None:
    config = written(
        tmp_path, profile, designer={"name": "best_of_k", "k": 2}, gates=False, evidence={"omit": ["history"]}
    )
    root = tmp_path / "run"
    finish(start(tmp_path, "--config", config, "--run-dir", root))
    run = RunDir(root)
    cost = run.read("stages/001/proposals/0/cost.json")
    takes = [json.loads(path.read_text()) for path in sorted(root.glob("stages/001/proposals/0/takes/[01].json"))]
    assert len(takes) == 2
    attempts = [attempt for take in takes for attempt in take["attempts"]]
    assert cost["input_tokens"] == sum(one["input_tokens"] for one in attempts) > 0
    assert cost["output_tokens"] == sum(one["output_tokens"] for one in attempts) > 0
    assert takes[0]["attempts"][0]["raw"] != takes[1]["attempts"][0]["raw"]
    assert run.read("stages/001/gates.json")["enforced"] is False
    assert run.read("stages/001/evidence.json")["omitted"] == ["history"]
    assert yaml.safe_load((root / "run.yaml").read_text())["settings"]["gates"]["enabled"] is False
    charged = [event for event in run.events() if event["event"] == "design_cost"]
    assert [event["revision"] for event in charged] == list(range(len(charged)))
    assert charged[0]["output_tokens"] == cost["output_tokens"]
