"""One vLLM server for one checkpoint, started by us and ended by us, whatever happens in between.

It runs on a leash: it ends with `Server.stop`, and it ends when this process does, by an exception, by SIGTERM or by
SIGKILL. Its directory holds what it said (``server.log``) and which process it is (``process.json``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from trainer.files import make_directory
from trainer.processes import GRACE_SECONDS, Process, end, end_own, spawn
from trainer.serving.health import MODULE, ServingError, ServingInputError, free_port, wait_healthy
from trainer.serving.hold import lives, read_held
from trainer.serving.settings import VllmBackend

SERVED_NAME = "policy"
"""The model's name in requests."""
LOG = "server.log"
RECORD = "process.json"
STRUCTURED_OUTPUTS = {"backend": "xgrammar", "disable_any_whitespace": True}
"""One backend, since one that is picked for each request may differ between two of them; and no whitespace beyond the
usual, on which a small model under a JSON schema can spend all of its tokens."""
Device = Literal["cpu", "cuda"]
_TAIL = 25


class Server:
    """A server that has been started; `wait` for it before it is asked."""

    def __init__(self, process: Process, port: int, directory: Path) -> None:
        self._process = process
        self._directory = directory
        self.root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root}/v1"

    @property
    def log(self) -> Path:
        return self._directory / LOG

    @property
    def pid(self) -> int | None:
        """Of vLLM itself, which leads a process group; None before it has begun or after it was ended by us."""
        held = read_held(self._directory / RECORD)
        return None if held is None else held.server.pid

    def fate(self) -> str | None:
        """How the server ended, with the end of its log; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"the vLLM server {how}; the end of {self.log}:\n{self.tail()}"

    def tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-_TAIL:])

    def wait(self, seconds: float) -> None:
        """Return once the server is healthy. Raises ServingError if it ends before, or takes longer."""
        try:
            wait_healthy(self.fate, self.root, seconds)
        except ServingError as error:
            if self._process.poll() is not None:
                raise
            late = "raise start_seconds if it was still loading"
            raise ServingError(f"{error}; {late}; the end of {self.log}:\n{self.tail()}") from error

    def stop(self) -> None:
        """End it, gently first, with all that it started; its memory is free then. Twice does nothing."""
        # The leash needs a grace of its own for what it holds.
        end_own(self._process, 2 * GRACE_SECONDS)
        end_orphan(self._directory)


def start_server(
    model: Path,
    backend: VllmBackend,
    directory: Path,
    *,
    device: Device = "cpu",
    threads: int | None = None,
    seed: int = 0,
) -> Server:
    """Start a server on a free port and return at once.

    Args:
        model: a checkpoint's directory.
        backend: how.
        directory: for its log and the record of its process; made if missing. A server that a dead process left
            behind there is ended first.
        device: decides data type and memory flags; which GPUs there are is the environment's business.
        threads: of the computation on a CPU; None = as many as vLLM takes.
        seed: of what is sampled without a seed of its own.

    Raises:
        ServingError: no such interpreter, no vLLM in it, or a live process serves from the directory already.
        DirectoryError: the directory cannot be had.
    """
    python = interpreter(backend)
    make_directory(directory)
    end_orphan(directory)
    port = free_port()
    command = [
        *(sys.executable, "-P", "-m", "trainer.serving.hold", str(directory / RECORD)),
        *(python, "-m", MODULE, *server_arguments(model, backend, port, device=device, seed=seed)),
    ]
    process = spawn(command, directory / LOG, server_environment(backend, device=device, threads=threads))
    return Server(process, port, directory)


@contextmanager
def serving(
    model: Path,
    backend: VllmBackend,
    directory: Path,
    *,
    device: Device = "cpu",
    threads: int | None = None,
    seed: int = 0,
) -> Iterator[Server]:
    """A healthy server for the length of a block; see `start_server`. Raises ServingError."""
    server = start_server(model, backend, directory, device=device, threads=threads, seed=seed)
    try:
        server.wait(backend.start_seconds)
        yield server
    finally:
        server.stop()


def interpreter(backend: VllmBackend) -> str:
    """The Python that has vLLM. Raises ServingInputError in one line if there is none or it has not."""
    python = backend.python or sys.executable
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    try:
        found = subprocess.run(
            [python, "-c", look],
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            check=False,
            timeout=60,
        ).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServingInputError(
            f"backend.python is {python!r}, which cannot be run: {error}; expected a Python that has vllm"
        ) from error
    if found != 0:
        raise ServingInputError(
            f"{python} has no vllm; install it there (GPU: pip install 'vllm>=0.28,<=0.31', CPU: docs/serving.md), or "
            "name the Python of another environment in backend.python"
        )
    return python


def server_arguments(model: Path, backend: VllmBackend, port: int, *, device: Device, seed: int) -> list[str]:
    """What follows the module."""
    return [
        *("--model", str(model), "--served-model-name", SERVED_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", backend.dtype or ("float32" if device == "cpu" else "bfloat16")),
        *([] if backend.max_model_length is None else ["--max-model-len", str(backend.max_model_length)]),
        *("--seed", str(seed)),
        # Else the checkpoint's generation_config.json decides what a request leaves open.
        *("--generation-config", "vllm"),
        *("--structured-outputs-config", json.dumps(STRUCTURED_OUTPUTS)),
        *(_memory_arguments(backend) if device == "cuda" else []),
        *backend.arguments,
    ]


def _memory_arguments(backend: VllmBackend) -> list[str]:
    share = backend.gpu_memory_utilization
    return ["--tensor-parallel-size", str(backend.gpus), "--gpu-memory-utilization", str(share)]


def server_environment(backend: VllmBackend, *, device: Device, threads: int | None) -> dict[str, str]:
    """This process's environment, and what makes the server keep to itself."""
    own = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # Nothing is imported from the working directory by luck; -P is unknown to Python 3.10.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if device == "cpu":
        own["VLLM_CPU_KVCACHE_SPACE"] = str(backend.kv_cache_gib)
        if threads is not None:
            # Left alone vLLM binds every server of a machine to the same cores.
            own |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(threads)}
    return {**os.environ, **own}


def end_orphan(directory: Path) -> None:
    """End the server that a directory's record names, if nobody holds it any more.

    Raises:
        ServingError: a live process holds it.
    """
    record = directory / RECORD
    held = read_held(record)
    if held is None:
        return
    if lives(held.holder):
        raise ServingError(
            f"process {held.holder.pid} serves from {directory} already; stop it, or serve from another directory"
        )
    end(held.server.pid, partial(lives, held.server), GRACE_SECONDS)
    record.unlink(missing_ok=True)
