"""A real `langgraph dev` on a run directory, started as a person starts it, and what a client asks of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from loops import environment

PATIENCE = 300


@dataclass
class Served:
    """A server that is up."""

    url: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def client(self) -> SyncLangGraphClient:
        return get_sync_client(url=self.url, api_key=None)

    def assistant(self) -> str:
        [found] = self.client.assistants.search(graph_id="envwright")
        return str(found["assistant_id"])

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End it; with SIGKILL the server itself too, as a power cut would."""
        if how == signal.SIGKILL:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        return self.process.wait(timeout=PATIENCE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(folder: Path, run_dir: Path, *command: str) -> Iterator[Served]:
    """`python -m graph.serve` on the directory, or another command that serves; its working directory is the folder."""
    port = free_port()
    given = [*command, "--port", str(port)] if command else []
    log = folder / f"server-{port}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            given or [sys.executable, "-P", "-m", "graph.serve", "--run-dir", str(run_dir), "--port", str(port)],
            cwd=folder,
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    server = Served(f"http://127.0.0.1:{port}", process, log)
    try:
        deadline = time.monotonic() + PATIENCE
        # The thread of the run is made known last.
        while not (up(server.url) and (command or "is open in LangGraph Studio" in log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield server
    finally:
        if process.poll() is None:
            server.stop()


def up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ok", trust_env=False).is_success
    except httpx.TransportError:
        return False


def streamed(server: Served, thread: str, **given: Any) -> list[tuple[str, Any]]:
    """All that a run streams, as (mode, data)."""
    modes = ["updates", "custom", "tasks"]
    parts = server.client.runs.stream(thread, "envwright", stream_mode=modes, durability="sync", **given)  # type: ignore[call-overload]
    return [(part.event, part.data) for part in parts]


def nodes_of(parts: list[tuple[str, Any]]) -> list[str]:
    """Nodes in the order in which they ended; none of them by an error."""
    assert not [data for mode, data in parts if mode == "error"], parts
    return [name for mode, data in parts if mode == "updates" for name in data]


def waits(state: Mapping[str, Any]) -> dict[str, Any]:
    """The question that a thread waits with."""
    [task] = [task for task in state["tasks"] if task["interrupts"]]
    return dict(task["interrupts"][0]["value"])
