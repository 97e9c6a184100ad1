"""A vLLM server on this machine that is coming up: what starts it, where it may listen, and when it answers."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable

MODULE = "vllm.entrypoints.openai.api_server"
"""The console script ``vllm`` is not used: it fails where an optional package of its other commands is broken."""
_POLL_SECONDS = 0.5


class ServingError(RuntimeError):
    """A server cannot be started, does not come up, or is another's."""


class ServingInputError(ServingError):
    """A server cannot be started as it was asked for."""


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_healthy(fate: Callable[[], str | None], url: str, seconds: float) -> None:
    """Return once the server answers; ``fate`` says how it ended, None while it runs.

    Raises ServingError if it ends before, or takes longer.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (end := fate()) is not None:
            raise ServingError(f"{end}\nit never became healthy")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(_POLL_SECONDS)
    raise ServingError(f"the vLLM server at {url} was not healthy within {seconds:g} s")
