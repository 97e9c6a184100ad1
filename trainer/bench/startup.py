"""What a stage costs before its first step and after its last: workers of their own, and forked ones."""

from __future__ import annotations

import time
from pathlib import Path

from rich.table import Table

from trainer.bench.task import spec_of
from trainer.launch.contract import Launcher
from trainer.launch.local import LocalLauncher
from trainer.launch.warm import WarmLauncher
from trainer.stage import run_stage

_STEPS = 2


def measure(directory: Path, seed: int) -> Table:
    """The same short stage by each kind of worker; all end with the same weights."""
    spec = spec_of(_STEPS, directory, seed=seed)
    warm = WarmLauncher()
    kinds: dict[str, Launcher] = {
        "a process of its own": LocalLauncher(),
        "forked, the run's first stage": warm,
        "forked, a later stage": warm,
    }
    table = Table(
        "worker",
        "start-up s",
        "training s",
        "saving s",
        "all s",
        title=f"a stage of {_STEPS} steps, from call to result",
    )
    models = set()
    for number, (kind, launcher) in enumerate(kinds.items()):
        began = time.monotonic()
        result = run_stage(spec, directory / str(number), launcher=launcher)
        whole = time.monotonic() - began
        models.add(result.model.sha256)
        steps = result.seconds["generation"] + result.seconds["training"]
        saving = result.seconds["saving"]
        table.add_row(kind, f"{whole - steps - saving:.1f}", f"{steps:.1f}", f"{saving:.1f}", f"{whole:.1f}")
    table.caption = f"start-up: all but the steps and saving; {len(models)} set of weights in {len(kinds)} stages"
    return table
