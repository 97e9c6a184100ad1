"""`python -m trainer.gpu_check`: whether this machine's GPU can do what a stage needs, and how fast, in ten minutes.

Parts: bfloat16 products, training of the seedling's architecture at about 100 million random parameters, generation by
vLLM or transformers, and a GRPO stage. Each has its own limit of time and passes or fails by itself. Prints a table and
as last line one JSON object. Exit codes: 0 all parts passed, 1 one failed, 2 there is no GPU; ``--cpu-dry`` runs
every part at a tiny size on the CPU instead, to see that the check itself works.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from trainer.devices import peak_tflops, share_of_peak
from trainer.gpu_parts import CPU_DRY, GPU, make_model

LIMITS = {"bf16": 60.0, "training": 100.0, "generation": 180.0, "grpo": 220.0}
"""Seconds, the start of a process among them; together with the making of the model less than ten minutes."""
GROUPS = (("bf16", "training", "generation"), ("grpo",))
"""What shares a process. vLLM gives its memory back when its process ends, and the stage needs it."""
LOG = "parts.log"
LATE = "late"
POLL_SECONDS = 0.1
LEAVE_SECONDS, GRACE_SECONDS = 5.0, 20.0
EXIT_FAILED, EXIT_NO_GPU = 1, 2
UNKNOWN = "unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.gpu_check", description=__doc__.partition("\n")[0])
    parser.add_argument("--cpu-dry", action="store_true", help="every part at a tiny size on the CPU")
    options = parser.parse_args(arguments)
    if not options.cpu_dry and not torch.cuda.is_available():
        print(
            f"no GPU: torch {torch.__version__} finds no CUDA device; --cpu-dry runs the check without", file=sys.stderr
        )
        return EXIT_NO_GPU
    device = platform.processor() or platform.machine() if options.cpu_dry else torch.cuda.get_device_name(0)
    peak = None if options.cpu_dry else peak_tflops(device)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        make_model(CPU_DRY if options.cpu_dry else GPU, Path(folder) / "model")
        parts = run_parts(Path(folder), dry=options.cpu_dry, peak=peak)
    report = {
        "device": device,
        "dry": options.cpu_dry,
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "trl": version("trl"),
        "peak_tflops": UNKNOWN if peak is None else peak,
        "passed": all(part["passed"] for part in parts.values()),
        "parts": parts,
    }
    Console().print(table_of(report))
    print(json.dumps(report))
    return 0 if report["passed"] else EXIT_FAILED


def run_parts(work: Path, *, dry: bool, peak: float | None) -> dict[str, dict[str, Any]]:
    """Every part, whether it passed and its figures or why it failed; their processes are gone when this returns.

    Parts that leave the device as they found it share a process, which starts once; one that fails takes it with it,
    and the next part gets another.
    """
    found: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        while left := [name for name in group if name not in found]:
            found |= run_process(left, work, dry=dry, peak=peak)
    return found


def run_process(names: Sequence[str], work: Path, *, dry: bool, peak: float | None) -> dict[str, dict[str, Any]]:
    """The parts up to the first that fails."""
    command = [sys.executable, "-P", "-m", "trainer.gpu_parts", *names, "--work", str(work), *(["--cpu-dry"] * dry)]
    # One device: several without a launcher are refused by TRL.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "HF_HUB_OFFLINE": "1"}
    found: dict[str, dict[str, Any]] = {}
    with (work / LOG).open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
        try:
            for name in names:
                started = time.monotonic()
                why = wait_for(process, work / f"{name}.json", started + LIMITS[name])
                took = round(time.monotonic() - started, 1)
                if why is not None:
                    found[name] = {"passed": False, "why": f"not done after {took:g} s" if why == LATE else why}
                    found[name]["took"] = took
                    break
                found[name] = {"passed": True, "took": took, **judged(work / f"{name}.json", peak)}
        finally:
            end(process)
    return found


def wait_for(process: subprocess.Popen[bytes], result: Path, deadline: float) -> str | None:
    """None once the result is there; else why it will not be."""
    while not result.exists():
        if process.poll() is not None and not result.exists():
            said = (result.parent / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
            lines = [line.strip() for line in said if line.strip()]
            return lines[-1] if lines else f"its process ended with exit code {process.returncode}"
        if time.monotonic() > deadline:
            return LATE
        time.sleep(POLL_SECONDS)
    return None


def end(process: subprocess.Popen[bytes]) -> None:
    """Let the process leave, or end it: politely first, so that it ends the worker that it may have started."""
    try:
        process.wait(LEAVE_SECONDS)
        return
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def judged(result: Path, peak: float | None) -> dict[str, Any]:
    """A part's figures with the rates that follow from them."""
    figures: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    rate = figures["tokens"] / figures["seconds"] if "tokens" in figures else None
    share = share_of_peak(figures["operations"], figures["seconds"], peak)
    return {
        "tokens_per_second": None if rate is None else round(rate, 1),
        "tflops": round(figures["operations"] / figures["seconds"] / 1e12, 3),
        "share_of_peak": UNKNOWN if share is None else round(share, 4),
        **figures,
    }


def table_of(report: dict[str, Any]) -> Table:
    peak = report["peak_tflops"]
    title = f"{report['device']}, peak {peak if peak == UNKNOWN else f'{peak:g} TFLOP/s'}"
    table = Table("part", "result", "tokens/s", "TFLOP/s", "share of peak", "took", "what", title=title)
    for name, part in report["parts"].items():
        took = f"{part['took']:.0f} s"
        if not part["passed"]:
            table.add_row(name, "FAILED", "", "", "", took, part["why"])
            continue
        rate, share = part["tokens_per_second"], part["share_of_peak"]
        table.add_row(
            name,
            "passed",
            "" if rate is None else f"{rate:,.0f}",
            f"{part['tflops']:,.2f}",
            share if share == UNKNOWN else f"{share:.1%}",
            took,
            part["note"],
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
