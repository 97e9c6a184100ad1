"""Rows of a study that no run made: answers by chance, two stages, the sets that a row may have."""

from __future__ import annotations

import random
from typing import Any

from graph.study.rows import Answers, CellCounts, Row, StageRow

CELLS = ("3x3", "10x10")
PLAN = "f" * 64


def answers(seed: int, valid: float, n: int = 12) -> Answers:
    generator = random.Random(seed)
    bits = {}
    for cell in CELLS:
        right = [generator.random() < valid for _ in range(n)]
        best = [one and generator.random() < 0.8 for one in right]
        bits[cell] = CellCounts(valid="".join(str(int(x)) for x in right), optimal="".join(str(int(x)) for x in best))
    return Answers(instances="set", cells=bits)


def row(arm: str, seed: int, valid: float = 0.5, **changes: Any) -> Row:
    stages = [
        StageRow(
            stage=stage,
            origin=stage - 1,
            tokens=500 * (stage + 1),
            steps=4,
            source="initial" if stage == 0 else arm,
            own=stage > 0,
            accepted=True,
            shares={"3x3": 0.5 + 0.1 * stage, "10x10": 0.5 - 0.1 * stage},
            knobs={"3x3.data_ratio": 0.5},
            kept_valid=valid * (stage + 1) / 2,
            kept_optimal=valid / 2,
            anchor=answers(seed + stage, valid * (stage + 1) / 2),
        )
        for stage in range(2)
    ]
    test = {"test": answers(seed, valid), "benchmark_3": answers(seed, valid / 2)}
    data: dict[str, Any] = {
        "plan": PLAN,
        "code": "c",
        "arm": arm,
        "seed": seed,
        "start": "s" * 64,
        "tokens": {"training": 900, "probes": 90, "roles": 10, "evaluation": 5},
        "seconds": 60.0,
        "cpu_seconds": 50.0,
        "role_fallbacks": 0,
        "champion": 1,
        "start_anchor": answers(7, 0.2),
        "stages": stages,
        "before": {"test": answers(9, 0.2), "benchmark_3": answers(9, 0.1)},
        "after": test,
    }
    return Row(**{**data, **changes})
