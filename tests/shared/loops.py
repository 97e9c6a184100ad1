"""Whole runs of the real loop as processes: start one, wait for something in it, and say what it computed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from processes import lives

from graph.rundir import EVENTS_FILE, RunDir

SHARED = Path(__file__).parent
PATIENCE = 600
RESULTS = ("config.json", "dataset.json", "budget.json", "plan.json")
LOOSE = {
    "g2": {"min_effective": 0.0, "min_success": 0.0, "max_success": 1.0},
    "g3": {"max_trivial": 1.0},
    "g4": {"max_hopeless": 1.0},
}
"""Gates that the second environment's random model passes."""


def environment(**changes: str) -> dict[str, str]:
    """That of the tests, with what they share in front of the path, and no way to the network and no key."""
    path = os.pathsep.join([str(SHARED), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LANGSMITH", "LANGCHAIN"))}
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    return {**kept, **nowhere, "NO_PROXY": "127.0.0.1,localhost", "PYTHONPATH": path, "COLUMNS": "200", **changes}


def start(cwd: Path, *arguments: object, module: str = "graph.run", **changes: str) -> subprocess.Popen[str]:
    """A command of ours in a process group of its own, outside the source tree."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *(str(argument) for argument in arguments)],
        cwd=cwd,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def settings_text(profile: Path, **changes: Any) -> str:
    data = {"environment": "parity:Parity", "profile": str(profile), "stages": 1}
    return yaml.safe_dump(data | changes)


def set_back(finished: Path, root: Path, node: str, stage: int) -> None:
    """A copy of a finished run as a kill before a node of a stage would have left it, without its database.

    What lies before is as it was made, so that a test of what follows need not make it once more. ``node`` is a stage's
    first, evidence, or one after its training: evaluate or report.
    """
    shutil.copytree(finished, root)
    gone = ["graph.sqlite*", "result.json", "report", "tensorboard/run"]
    if node == "report":
        gone.append("stages/*/eval/test.*")
    elif node == "evaluate":
        gone += [f"stages/{stage:03d}/{name}" for name in ("decision.json", "eval")]
    else:
        gone += [f"stages/{stage:03d}", f"tensorboard/stage-{stage:03d}"]
    for path in [path for name in gone for path in root.glob(name)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    run = RunDir(root)
    events = run.events()
    first = next(n for n, event in enumerate(events) if (event.get("node"), event.get("stage")) == (node, stage))
    run.path(EVENTS_FILE).write_text("".join(json.dumps(event) + "\n" for event in events[:first]))


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, output
    return output


def until(seen: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for it, as long as the process that is to bring it about lives."""
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def wait_for(root: Path, process: subprocess.Popen[str], seen: Callable[[dict[str, Any]], bool]) -> None:
    """Until an event of the run fits."""
    until(lambda: any(seen(event) for event in RunDir(root).events()), process)


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9 for the whole group; what is in a session of its own, as a worker is, outlives it."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def workers(root: Path) -> list[int]:
    """Training processes that still live."""
    found = [json.loads(record.read_text())["pid"] for record in root.glob("stages/*/attempt-*/worker.json")]
    return [pid for pid in found if lives(pid)]


def outcome(root: Path) -> dict[str, Any]:
    """All that a run computed, and nothing of when and where."""
    run = RunDir(root)
    stages = sorted(path.name for path in (root / "stages").iterdir())
    found: dict[str, Any] = {
        f"{stage}/{name}": run.read(f"stages/{stage}/{name}") for stage in stages for name in RESULTS
    }
    for stage in stages:
        decision = run.read(f"stages/{stage}/decision.json")
        found[stage] = {key: decision[key] for key in ("accepted", "before", "after", "valid", "cells")}
        found[f"{stage}/weights"] = run.read(f"stages/{stage}/result.json")["model"]["sha256"]
    found["result"] = run.read("result.json")["sets"]
    return found
