"""The vLLM server of the preset ``server``: one for each attempt, on the last GPUs, ended with the attempt.

A server whose client died may keep a dead group of GPUs, so none is used twice. Written after TRL's and vLLM's sources;
it has not been run, because that takes at least two GPUs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from trainer.processes import GRACE_SECONDS, end_own
from trainer.spec import StageSpec

HEALTHY_WITHIN_SECONDS = 900.0
_POLL_SECONDS = 1.0


class ServingError(RuntimeError):
    """There are too few GPUs, or the server does not come up."""


def split_gpus(visible: list[str], processes: int, served: int) -> tuple[list[str], list[str]]:
    """GPUs of the training processes and of the server. Raises ServingError if there are too few."""
    if len(visible) < processes + served:
        raise ServingError(
            f"preset server needs {processes + served} GPUs, {processes} to train and {served} to serve, got "
            f"{len(visible)}; set launch.processes or rollouts.gpus lower"
        )
    return visible[:processes], visible[-served:]


def serve_line(spec: StageSpec, port: int) -> list[str]:
    """What follows the interpreter: vLLM with the flags under which TRL can send it weights."""
    if spec.rollouts.kind != "vllm_server":
        raise ValueError(f"rollouts are {spec.rollouts.kind}, expected vllm_server")
    return [
        *("-m", "vllm.entrypoints.cli.main", "serve", spec.init_model.path),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--tensor-parallel-size", str(spec.rollouts.gpus)),
        *("--max-model-len", str(spec.rollouts.max_model_length)),
        *("--gpu-memory-utilization", str(spec.rollouts.gpu_memory_utilization)),
        *("--weight-transfer-config", json.dumps({"backend": "nccl"})),
        *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"),
        *("--seed", str(spec.seed)),
    ]


@contextmanager
def serving(spec: StageSpec, gpus: list[str]) -> Iterator[str]:
    """The URL of a healthy server, which ends with the block. Raises ServingError."""
    port = free_port()
    environment = {"VLLM_SERVER_DEV_MODE": "1", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    server = start(serve_line(spec, port), environment)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_healthy(server, url)
        yield url
    finally:
        # The leash needs a grace of its own for what it holds.
        end_own(server, 2 * GRACE_SECONDS)


def start(line: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """On a leash, so that it does not outlive this process however that one ends."""
    command = [sys.executable, "-P", "-m", "trainer.launch.leash", *line]
    return subprocess.Popen(command, start_new_session=True, env={**os.environ, **environment})


def wait_healthy(server: subprocess.Popen[bytes], url: str, seconds: float = HEALTHY_WITHIN_SECONDS) -> None:
    """Return once the server answers. Raises ServingError if it ends or takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (code := server.poll()) is not None:
            raise ServingError(f"the vLLM server ended with {code} before it was healthy; what it said is above")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(_POLL_SECONDS)
    raise ServingError(f"the vLLM server at {url} was not healthy within {seconds:.0f} s")


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
