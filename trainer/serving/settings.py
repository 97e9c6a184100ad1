"""The ``backend:`` section of a profile: who answers where a checkpoint is evaluated, probed or asked as a role."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from trainer.frozen import Frozen, short

Constraint = Literal["json_schema", "grammar"]
"""How a schema is sent: as ``response_format``, which every such server knows, or to vLLM as the grammar that
`trainer.grammar` decodes under, so that answers have the layout that they have in process."""
Dtype = Literal["float32", "bfloat16", "float16"]
OURS = (
    *("--model", "--served-model-name", "--host", "--port", "--dtype", "--max-model-len", "--seed"),
    *("--tensor-parallel-size", "-tp", "--gpu-memory-utilization"),
    *("--generation-config", "--structured-outputs-config"),
)
"""Flags that have a setting of their own, or that the starter sets."""


def check_url(name: str, url: str) -> str:
    """The URL of an OpenAI-compatible server, which bears a name in errors. Raises ValueError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError(f"{name} is {short(url)}, expected one such as 'http://127.0.0.1:8000/v1'")
    return url


class TransformersBackend(Frozen):
    """The checkpoint in this process, in float32."""

    kind: Literal["transformers"] = "transformers"

    def content(self) -> dict[str, Any]:
        """What of it decides the answers; not where, or with how much memory, they are given."""
        return self.model_dump(mode="json")


class VllmBackend(Frozen):
    """A vLLM server on this machine for each checkpoint, started when it is first asked and ended before training."""

    kind: Literal["vllm"] = "vllm"
    python: str | None = None
    """The interpreter that has vLLM, which may live in a virtual environment of its own; None = this one."""
    dtype: Dtype | None = None
    """None = float32 on a CPU, bfloat16 on a GPU."""
    max_model_length: int | None = Field(None, gt=0)
    """Tokens of prompt and answer together; None = what the checkpoint's configuration allows."""
    gpus: int = Field(1, gt=0, le=8)
    """GPUs that the server spreads the model over."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Of each GPU; the server is gone when a stage trains. More than one server at a time must share it."""
    kv_cache_gib: int = Field(1, gt=0)
    """Memory for keys and values on a CPU."""
    servers: int = Field(1, gt=0, le=4)
    """Servers at a time. Only a role that speaks with ``base`` or ``champion`` needs a second one beside the current
    checkpoint's; with one, they take turns."""
    concurrency: int = Field(64, gt=0, le=4096)
    """Requests under way at a time."""
    request_seconds: float = Field(600.0, gt=0)
    """For one answer."""
    start_seconds: float = Field(900.0, gt=0)
    """From the start to the first healthy answer."""
    arguments: tuple[str, ...] = ()
    """Further arguments of vLLM's server, such as ``[--enable-auto-tool-choice, --tool-call-parser, hermes]``."""

    @field_validator("arguments")
    @classmethod
    def _leaves_ours_alone(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        for argument in arguments:
            if argument.partition("=")[0] in OURS:
                raise ValueError(f"{short(argument)} is set by us; expected none of {', '.join(OURS)}")
        return arguments

    def content(self) -> dict[str, Any]:
        return {**self.model_dump(mode="json", include={"kind", "dtype", "max_model_length"}), **self._arguments()}

    def _arguments(self) -> dict[str, Any]:
        return {"arguments": list(self.arguments)} if self.arguments else {}


class UrlBackend(Frozen):
    """A model behind an OpenAI-compatible URL, which somebody else looks after. It is one model and stays so."""

    kind: Literal["url"] = "url"
    base_url: str
    """Such as http://127.0.0.1:8000/v1"""
    model: str = Field(min_length=1)
    """The name under which the server knows it."""
    api_key_file: str | None = None
    """A file with the key; None sends none."""
    concurrency: int = Field(16, gt=0, le=4096)
    request_seconds: float = Field(600.0, gt=0)

    @model_validator(mode="after")
    def _is_url(self) -> Self:
        check_url("base_url", self.base_url)
        return self

    def content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", include={"kind", "base_url", "model"})


Backend = TransformersBackend | VllmBackend | UrlBackend
AnyBackend = Annotated[Backend, Field(discriminator="kind")]


def usual(backend: Backend) -> bool:
    """Left out of files, so that one without it reads as it always did."""
    return backend == TransformersBackend()


def engine(backend: Backend) -> dict[str, Any] | None:
    """What the files of an evaluation say of the backend; None = transformers in process."""
    return None if usual(backend) else backend.content()
