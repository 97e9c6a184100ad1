"""A toy environment whose frozen sets are large enough to be interrupted in."""

from __future__ import annotations

from toy import Toy, ToyInstance

TASKS = 60


class Many(Toy):
    def frozen_set(self, _: str) -> list[ToyInstance]:
        return self.instances(TASKS)
