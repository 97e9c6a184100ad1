"""One role as data: the same pydantic model is the YAML file's schema and the run-time spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, PrivateAttr, StringConstraints, Tag, field_validator

from agents.notes import Form, note_type
from agents.schemas import Budget, Critique, Diagnosis, Frozen, Note, Proposal
from envsim.api import Style
from trainer.serving.settings import Constraint, check_url

PACKAGE = Path(__file__).parent
STYLES: tuple[Style, ...] = ("compact", "full")
OUTPUTS: dict[str, type[BaseModel]] = {
    "Diagnosis": Diagnosis,
    "Proposal": Proposal,
    "Critique": Critique,
    "Budget": Budget,
}
WRITES = {"Diagnosis": "diagnosis", "Proposal": "proposal", "Critique": "critique", "Budget": "budget"}
"""The one state key that each output may be written to. Any other output is a note, under a key of its own."""
NOTES: dict[str, type[BaseModel]] = {"Note": Note}
Approval = Literal["never", "on_doubt", "always"]
"""Whether a person decides: on no proposal, on those that the review left in doubt, or on every one. The same words for
a role and for a run."""
MOST_ROLLOUTS = 4096
TOOL_RESULTS = "tools"
"""The template variable with the results of ``tools_before``, by name, as text."""


class PromptFiles(Frozen):
    """File names inside ``prompts/{compact,full}``, or inside ``prompts`` for one file that serves both styles."""

    system: str | None = Field(None, pattern=r"^[a-z0-9_]+\.system\.j2$")
    user: str = Field(pattern=r"^[a-z0-9_]+(\.user)?\.j2$")

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """(speaker, file) in the order of the messages."""
        system = () if self.system is None else (("system", self.system),)
        return (*system, ("user", self.user))


class ExternalModel(Frozen):
    """A model behind an OpenAI-compatible URL."""

    base_url: str = Field(pattern=r"^https?://")
    name: str = Field(min_length=1)
    api_key_file: str | None = None
    """A file with the key; None sends none."""
    constraint: Constraint = Field("json_schema", exclude_if=lambda constraint: constraint == "json_schema")
    """grammar gives answers the layout that they have in process, which a tiny model needs; vLLM alone knows it."""

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        return check_url("base_url", url)


class Place(Frozen):
    """Where the role stands: after and before these roles and nodes of code, not necessarily next to them."""

    after: tuple[str, ...] = Field(("evidence",), min_length=1)
    before: tuple[str, ...] = Field((), exclude_if=lambda names: not names)


class TokenLimit(Frozen):
    """Tokens that an answer may take. A tiny model has a context of 1,024 tokens for the prompt and the answer."""

    compact: int = Field(256, gt=0)
    full: int = Field(1024, gt=0)


def _is(default: int) -> Any:
    return lambda value: value == default


class Limits(Frozen):
    """Bounds on one visit."""

    max_repairs: int = Field(2, ge=0, le=5)
    max_new_tokens: TokenLimit = TokenLimit()
    max_tool_calls: int = Field(0, ge=0, le=16, exclude_if=_is(0))
    """Calls that the model may make by itself before it answers; ``tools_before`` are the file's and count nothing."""
    max_rollouts: int = Field(256, ge=0, le=MOST_ROLLOUTS, exclude_if=_is(256))
    """Answers of the policy that all its tools may ask for, ``tools_before`` first; a call that needs more is
    refused."""
    max_result_characters: int = Field(1600, ge=80, le=8000, exclude_if=_is(1600))
    """How much of a tool's result, or of its error, the role gets to read."""


class ToolBefore(Frozen):
    """A call with fixed arguments whose result is there when the role begins to speak."""

    tool: str
    args: dict[str, Any] = Field({})
    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")] | None = None
    """What the template calls the result; None = the tool's name."""

    @property
    def key(self) -> str:
        return self.name or self.tool


def _kind_of(value: Any) -> str:
    return "word" if isinstance(value, str) else "mapping"


class RoleSpec(Frozen):
    """One role: what it reads, the one key it writes, how its model is asked and what happens if the answer fails."""

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)
    description: str = Field(min_length=1)
    kind: Literal["llm", "python"] = "llm"
    """llm: a model answers a prompt; python: a function of one's own answers."""
    entrypoint: str | None = Field(
        None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", exclude_if=lambda entrypoint: entrypoint is None
    )
    """``package.module:function`` of a python role. It gets the inputs as plain data and returns the output as such."""
    prompt: PromptFiles | None = None
    """One file name serves both styles as the user message; a mapping names the system and the user message."""
    inputs: tuple[str, ...] = Field(min_length=1)
    writes: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)
    output: Annotated[Annotated[str, Tag("word")] | Annotated[Form, Tag("mapping")], Discriminator(_kind_of)]
    """Diagnosis, Proposal, Critique, Budget, Note, or the fields of a note of its own."""
    tools: tuple[str, ...] = ()
    """Tools that the model may call by itself, up to ``limits.max_tool_calls``."""
    tools_before: tuple[ToolBefore, ...] = Field((), max_length=16, exclude_if=lambda calls: not calls)
    model: Annotated[
        Annotated[Literal["inherit", "base", "champion"], Tag("word")] | Annotated[ExternalModel, Tag("mapping")],
        Discriminator(_kind_of),
    ] = "inherit"
    temperature: float = Field(0.0, ge=0, le=2)
    place: Place
    limits: Limits = Limits()
    approval: Approval = "never"
    """Whether a person decides on the stage's proposals that passed the gates, beside what the run's settings say."""
    on_failure: Literal["rule", "stop", "skip"] = "rule"
    """rule: the teacher's rule answers in its place and is counted; stop: the run ends with exit code 4; skip: its note
    is null."""
    enabled: bool = True

    _roots: tuple[Path, ...] = PrivateAttr(default=(PACKAGE,))

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_file(cls, prompt: Any) -> Any:
        return {"user": prompt} if isinstance(prompt, str) else prompt

    @property
    def output_type(self) -> type[BaseModel]:
        if isinstance(self.output, str):
            return {**OUTPUTS, **NOTES}[self.output]
        return note_type(self.output)

    @property
    def writes_note(self) -> bool:
        """Whether it writes a note and none of the four outputs that the loop knows."""
        return not (isinstance(self.output, str) and self.output in OUTPUTS)

    @property
    def variables(self) -> tuple[str, ...]:
        """What its template may use, all of which it must."""
        return (*self.inputs, *([TOOL_RESULTS] if self.tools_before else []))

    def prompt_directories(self, style: Style) -> list[Path]:
        """Where its templates are looked for: in the user's directory first, then among the shipped ones."""
        return [place for root in self._roots for place in (root / "prompts" / style, root / "prompts")]
