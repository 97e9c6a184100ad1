"""Models as designers: asked as the config designer role, which renders, constrains, parses and repairs."""

from __future__ import annotations

from agents.designers.base import DesignContext, Designer, ModelName
from agents.schemas import Proposal


class ModelDesigner(Designer):
    """The current checkpoint (``self``), the one that the run began with, its champion, or any model behind a URL."""

    def __init__(self, name: str, model: ModelName) -> None:
        self.name = name
        self.model = model

    def propose(self, context: DesignContext) -> Proposal:  # noqa: ARG002  the interface
        raise TypeError(f"the designer {self.name!r} is a model; ask the config designer role with {self.model!r}")
