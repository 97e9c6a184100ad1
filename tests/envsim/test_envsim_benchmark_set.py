"""The whole benchmark set, made anew: about a minute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from envsim.lake import sets


def test_whole_benchmark_is_the_committed_bytes(tmp_path: Path) -> None:
    instances = sets.frozen_set("benchmark", directory=tmp_path)
    counts = Counter((i.agents, i.size) for i in instances)
    assert set(counts.values()) == {150}
    assert len(counts) == 21
    assert all(i.certificate is not None and i.certificate.makespan is not None for i in instances)
