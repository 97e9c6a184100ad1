"""``python docs/gates/anchor.py LABEL=RUN_DIRECTORY ...``: the anchor curve of runs, a table and ``anchor.svg``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("svg")
plt.rcParams["svg.hashsalt"] = "anchor"


def trained(run: Path) -> list[float]:
    """Valid rate on the anchor set before any training and after each stage's, kept or not."""
    decisions = [json.loads(path.read_text()) for path in sorted(run.glob("stages/*/decision.json"))]
    return [decisions[0]["before"]["macro_valid"], *(one["after"]["macro_valid"] for one in decisions)]


def current(run: Path) -> list[float]:
    """The same of the checkpoint that the run goes on with."""
    decisions = [json.loads(path.read_text()) for path in sorted(run.glob("stages/*/decision.json"))]
    return [decisions[0]["before"]["macro_valid"], *(one["current"]["anchor"] for one in decisions)]


def main(pairs: list[str]) -> int:
    if not pairs or any("=" not in pair for pair in pairs):
        print("error: expected LABEL=RUN_DIRECTORY for each run", file=sys.stderr)
        return 2
    figure, axes = plt.subplots(figsize=(6, 3.2))
    stages = len(trained(_run(pairs[0]))) - 1
    titles = ["run", "checkpoint", "start", *(f"stage {number:03d}" for number in range(stages))]
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for pair in pairs:
        label, run = pair.split("=", 1)[0], _run(pair)
        for kind, values, style in (("trained", trained(run), "o--"), ("kept", current(run), "-")):
            print(f"| {label} | {kind} | " + " | ".join(f"{100 * value:.1f}" for value in values) + " |")
            axes.plot(range(len(values)), [100 * value for value in values], style, label=f"{label}, {kind}")
    axes.set_xlabel("0 = start, then stages")
    axes.set_ylabel("valid on the anchor set, %")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "anchor.svg", metadata={"Date": None})
    return 0


def _run(pair: str) -> Path:
    return Path(pair.split("=", 1)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
