"""The vLLM server of the preset ``server``: one for each attempt, on the last GPUs, ended with the attempt.

A server whose client died may keep a dead group of GPUs, so none is used twice. Written after TRL's and vLLM's sources;
it has not been run, because that takes at least two GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from trainer.processes import GRACE_SECONDS, end_own
from trainer.serving.health import MODULE, ServingError, free_port, wait_healthy
from trainer.spec import StageSpec

HEALTHY_WITHIN_SECONDS = 900.0


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
        *("-m", MODULE, "--model", spec.init_model.path),
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
        wait_healthy(partial(fate, server), url, HEALTHY_WITHIN_SECONDS)
        yield url
    finally:
        # The leash needs a grace of its own for what it holds.
        end_own(server, 2 * GRACE_SECONDS)


def start(line: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """On a leash, so that it does not outlive this process however that one ends."""
    command = [sys.executable, "-P", "-m", "trainer.launch.leash", *line]
    return subprocess.Popen(command, start_new_session=True, env={**os.environ, **environment})


def fate(server: subprocess.Popen[bytes]) -> str | None:
    """How it ended, None while it runs."""
    code = server.poll()
    return None if code is None else f"the vLLM server ended with {code}; what it said is above"
