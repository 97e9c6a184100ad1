"""One role as data: the same pydantic model is the YAML file's schema and the run-time spec."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, PrivateAttr, field_validator

from agents.schemas import Budget, Critique, Diagnosis, Frozen, Proposal
from envsim.api import Style

PACKAGE = Path(__file__).parent
STYLES: tuple[Style, ...] = ("compact", "full")
OUTPUTS: dict[str, type[BaseModel]] = {
    "Diagnosis": Diagnosis,
    "Proposal": Proposal,
    "Critique": Critique,
    "Budget": Budget,
}
WRITES = {"Diagnosis": "diagnosis", "Proposal": "proposal", "Critique": "critique", "Budget": "budget"}
"""The one state key that each output may be written to."""


class PromptFiles(Frozen):
    """File names inside ``prompts/compact`` and ``prompts/full``; both styles need both files."""

    system: str = Field(pattern=r"^[a-z0-9_]+\.system\.j2$")
    user: str = Field(pattern=r"^[a-z0-9_]+\.user\.j2$")


class ExternalModel(Frozen):
    """A model behind an OpenAI-compatible URL."""

    base_url: str = Field(pattern=r"^https?://")
    name: str = Field(min_length=1)
    api_key_file: str | None = None
    """A file with the key; None sends none."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if any(character.isspace() or not character.isprintable() for character in url):
            raise ValueError("a URL holds no spaces and no control characters")
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ValueError(f"no usable URL: {error}; expected one such as 'http://localhost:8000/v1'") from error
        if not host:
            raise ValueError("the URL names no host; expected one such as 'http://localhost:8000/v1'")
        return url


class Place(Frozen):
    """Where the role stands: after these nodes or roles."""

    after: tuple[str, ...] = Field(min_length=1)


class TokenLimit(Frozen):
    """Tokens that an answer may take. A tiny model has a context of 1,024 tokens for the prompt and the answer."""

    compact: int = Field(256, gt=0)
    full: int = Field(1024, gt=0)


class Limits(Frozen):
    """Bounds on one visit."""

    max_repairs: int = Field(2, ge=0, le=5)
    max_new_tokens: TokenLimit = TokenLimit()


class RoleSpec(Frozen):
    """One role: what it reads, the one key it writes, how its model is asked and what happens if the answer fails."""

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    description: str = Field(min_length=1)
    kind: Literal["llm"] = "llm"
    prompt: PromptFiles
    inputs: tuple[str, ...] = Field(min_length=1)
    writes: str
    output: str
    tools: tuple[str, ...] = ()
    model: Literal["inherit", "base", "champion"] | ExternalModel = "inherit"
    temperature: float = Field(0.0, ge=0, le=2)
    place: Place
    limits: Limits = Limits()
    approval: Literal["never", "always", "on_reject"] = "never"
    on_failure: Literal["rule", "stop"] = "rule"
    """rule: the teacher's rule answers in its place and is counted; stop: the run ends with exit code 4."""
    enabled: bool = True

    _root: Path = PrivateAttr(default=PACKAGE)

    @property
    def output_type(self) -> type[BaseModel]:
        return OUTPUTS[self.output]

    def prompt_directories(self, style: Style) -> list[Path]:
        """Where its templates are looked for: beside its own file first, then the shipped ones."""
        return [self._root / "prompts" / style, PACKAGE / "prompts" / style]
