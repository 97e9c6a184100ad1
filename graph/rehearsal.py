"""The role episodes that a run's stages rehearse from: drawn once a run, the same whoever designs its stages."""

from __future__ import annotations

import json
from typing import Any

from agents.episodes import episodes
from graph import layout
from graph.work import Work
from trainer.role_rehearsal import write_episodes
from trainer.spec import DataRef

PLANTED = 0.0
"""Share of episodes on policies with a planted weakness: each of those takes many times as long as an invented one."""


def role_episodes(work: Work) -> DataRef | None:
    """The file of episodes, made if it is not there; None if the profile rehearses no roles.

    It depends on the run's seed, its environment and the number of episodes.
    """
    settings = work.profile.role_rehearsal
    if settings is None:
        return None
    seed = work.seed("rehearsal")
    path = work.run.path(layout.EPISODES)

    def make() -> dict[str, Any]:
        with work.clock.span("instances"):
            rows = [json.dumps(row) for row in episodes(work.environment, settings.episodes, seed, PLANTED)]
        path.parent.mkdir(exist_ok=True)
        return write_episodes(rows, path).model_dump(exclude={"path"})

    made = work.run.once(layout.EPISODES_RECORD, {"n": settings.episodes, "seed": seed}, make)
    return DataRef(path=str(path), **made)
