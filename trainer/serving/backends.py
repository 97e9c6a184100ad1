"""From a backend's settings to the policy that answers for a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from envsim.documents import read_text
from trainer.policy import OwnedPolicy, PolicyError, TransformersPolicy
from trainer.serving.client import OpenAIPolicy
from trainer.serving.health import ServingError
from trainer.serving.server import SERVED_NAME, Server, start_server
from trainer.serving.settings import Backend, UrlBackend, VllmBackend
from trainer.spec import ModelRef


class ServedPolicy(OpenAIPolicy):
    """A checkpoint behind a server of its own, which ends with `close`."""

    def __init__(self, server: Server, backend: VllmBackend, chat_template_kwargs: dict[str, Any]) -> None:
        super().__init__(
            server.base_url,
            SERVED_NAME,
            concurrency=backend.concurrency,
            timeout=backend.request_seconds,
            chat_template_kwargs=chat_template_kwargs,
            constraint="grammar",
            fate=server.fate,
        )
        self.server = server

    def close(self) -> None:
        """End the server."""
        super().close()
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
    policy = ServedPolicy(server, backend, chat_template_kwargs)
    try:
        server.wait(backend.start_seconds)
        policy.check()
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
