"""Random layouts and the published oracle cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from envsim.lake.chance import stream
from envsim.lake.grid import Board
from envsim.lake.layout import draw

DATA = Path(__file__).parent / "data"
Layout = tuple[Board, list[str], list[int], list[int]]


def oracle(name: str) -> list[dict[str, Any]]:
    data = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return list(data["instances" if name == "instances" else "cases"])


def layouts(min_size: int = 3, max_size: int = 5, agents: tuple[int, int] = (2, 2)) -> st.SearchStrategy[Layout]:
    """Layouts as the generator draws them, from a seed."""

    def build(seed: int, size: int, count: int, share: float) -> Layout | None:
        rng = stream("test", seed)
        found = draw(rng, size, count, round(share * size * size))
        if found is None:
            return None
        board, marks, starts, goals = found
        return board, [marks[r * size : (r + 1) * size] for r in range(size)], starts, goals

    return st.builds(
        build,
        st.integers(0, 10**9),
        st.integers(min_size, max_size),
        st.integers(*agents),
        st.sampled_from([0.0, 0.2, 0.35, 0.5]),
    ).filter(lambda layout: layout is not None)  # type: ignore[return-value]
