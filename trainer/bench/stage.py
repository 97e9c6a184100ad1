"""Our stage beside a script that calls TRL directly: seconds after start-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rich.table import Table

from trainer.bench.task import spec_of
from trainer.spec import StageSpec
from trainer.stage import run_stage


class BenchError(RuntimeError):
    """Something that was to be measured did not come to its end."""


def measure(directory: Path, steps: int, seed: int) -> Table:
    """Both one after the other, each in a process of its own with the same threads."""
    spec = spec_of(steps, directory, seed=seed)
    bare_seconds, bare_tokens = bare(spec, directory / "bare")
    result = run_stage(spec, directory / "stage")
    ours = result.seconds["total"] - result.seconds["start_up"]
    table = Table("", "seconds", "of TRL alone", "tokens", "tokens a second", title=f"a stage of {steps} steps")
    table.add_row("TRL alone", f"{bare_seconds:.1f}", "1.00", str(bare_tokens), f"{bare_tokens / bare_seconds:.0f}")
    table.add_row(
        "our stage",
        f"{ours:.1f}",
        f"{ours / bare_seconds:.2f}",
        str(result.generated_tokens),
        f"{result.generated_tokens / ours:.0f}",
    )
    table.caption = "after start-up; checkpoints, the model's hash and the result included"
    return table


def bare(spec: StageSpec, output: Path) -> tuple[float, int]:
    """Seconds and generated tokens of the bare script. Raises BenchError with what it said if it fails."""
    output.mkdir()
    file = output / "spec.json"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": str(spec.threads), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-P", "-m", "trainer.bench.bare", str(file), str(output)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"the script with TRL alone ended with {done.returncode}:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    if told["steps"] != spec.steps:
        raise BenchError(f"the script with TRL alone trained {told['steps']} steps, expected {spec.steps}")
    return float(told["seconds"]), int(told["tokens"])
