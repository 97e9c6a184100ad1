"""From a backend's settings to the policy that answers for a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from envsim.api import Message
from envsim.documents import read_text
from trainer.policy import Completion, OwnedPolicy, PolicyError, TransformersPolicy
from trainer.serving.client import OpenAIPolicy
from trainer.serving.server import SERVED_NAME, Server, ServingError, start_server
from trainer.serving.settings import Backend, UrlBackend, VllmBackend
from trainer.spec import ModelRef


class ServedPolicy:
    """A checkpoint behind a server of its own, which ends with `close`."""

    def __init__(self, server: Server, client: OpenAIPolicy) -> None:
        self.server = server
        self._client = client

    def generate(
        self,
        prompts: Sequence[list[Message]],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        seed: int = 0,
        schema: dict[str, Any] | None = None,
    ) -> list[list[Completion]]:
        """See `Policy.generate`. Raises PolicyError; with the end of the server's log if that one ended."""
        return self._client.generate(
            prompts, max_new_tokens=max_new_tokens, temperature=temperature, samples=samples, seed=seed, schema=schema
        )

    def stream(
        self,
        prompts: Sequence[list[Message]],
        seeds: Sequence[int],
        *,
        max_new_tokens: int,
        temperature: float,
        samples: int = 1,
        schema: dict[str, Any] | None = None,
    ) -> Iterator[tuple[int, list[Completion]]]:
        """See `StreamingPolicy.stream`. Raises PolicyError likewise."""
        return self._client.stream(
            prompts, seeds, max_new_tokens=max_new_tokens, temperature=temperature, samples=samples, schema=schema
        )

    def close(self) -> None:
        """End the server."""
        self._client.close()
        self.server.stop()


def open_policy(
    backend: Backend,
    ref: ModelRef,
    *,
    device: Literal["cpu", "cuda"],
    threads: int,
    batch_size: int,
    chat_template_kwargs: dict[str, Any],
    directory: Path,
) -> OwnedPolicy:
    """What answers for a checkpoint, ready and, where it is a server, checked by its canary.

    Args:
        backend: who answers.
        ref: the checkpoint; a URL answers with its own whatever this says.
        device: for transformers and vLLM.
        threads: on a CPU.
        batch_size: rows that transformers decodes together.
        chat_template_kwargs: for the rendering of prompts.
        directory: for a server's log and the record of its process.

    Raises:
        CheckpointError: the checkpoint cannot be loaded.
        PolicyError: a server does not come up, or ignores schemas.
    """
    if isinstance(backend, VllmBackend):
        return _served(backend, ref, device, threads, chat_template_kwargs, directory)
    if isinstance(backend, UrlBackend):
        return _remote(backend, chat_template_kwargs)
    return TransformersPolicy(
        ref, device=device, threads=threads, batch_size=batch_size, chat_template_kwargs=chat_template_kwargs
    )


def _served(  # noqa: PLR0917
    backend: VllmBackend,
    ref: ModelRef,
    device: Literal["cpu", "cuda"],
    threads: int,
    chat_template_kwargs: dict[str, Any],
    directory: Path,
) -> ServedPolicy:
    try:
        server = start_server(Path(ref.path), backend, directory, device=device, threads=threads)
    except ServingError as error:
        raise PolicyError(str(error)) from error
    client = OpenAIPolicy(
        server.base_url,
        SERVED_NAME,
        concurrency=backend.concurrency,
        timeout=backend.request_seconds,
        chat_template_kwargs=chat_template_kwargs,
        constraint="grammar",
        fate=server.fate,
    )
    policy = ServedPolicy(server, client)
    try:
        server.wait(backend.start_seconds)
        client.check()
    except BaseException as error:
        policy.close()
        if isinstance(error, ServingError):
            raise PolicyError(str(error)) from error
        raise
    return policy


def _remote(backend: UrlBackend, chat_template_kwargs: dict[str, Any]) -> OpenAIPolicy:
    key = "none" if backend.api_key_file is None else read_text(Path(backend.api_key_file)).strip()
    policy = OpenAIPolicy(
        backend.base_url,
        backend.model,
        api_key=key,
        concurrency=backend.concurrency,
        timeout=backend.request_seconds,
        chat_template_kwargs=chat_template_kwargs,
    )
    policy.check()
    return policy
