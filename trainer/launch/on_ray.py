"""Tasks on a Ray cluster (extra ``ray``): Ray finds a node with the resources, the node runs the command line.

The nodes see the run directory at the same path and have this project installed. A task ends with the Ray worker that
carries it, so a lost node, a lost driver and a cancelled task leave no process behind. Ray itself never retries:
whoever supervises a task starts it again, because only the files say where it goes on.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

from trainer.launch.contract import LaunchError, Resources, Task
from trainer.launch.settings import RaySettings
from trainer.processes import GRACE_SECONDS

_CANCEL_SECONDS = 15.0
"""What Ray needs to say that a task was cancelled, beyond the grace of its command."""
_KNOCK_SECONDS = 10.0
_INHERITED = ("PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE")
"""What a task takes from the environment of the one that starts it; all else is its node's."""


def carry_out(
    name: str, arguments: tuple[str, ...], log: str, environment: Mapping[str, str], grace_seconds: float
) -> int:
    """On a node: run the command line to its end and give its exit code."""
    with open(log, "ab") as file:
        file.write(f"{name}: on node {ray.util.get_node_ip_address()}\n".encode())
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "trainer.launch.leash", "--grace", str(grace_seconds), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    try:
        while (code := process.poll()) is None:
            time.sleep(0.1)
    finally:
        process.terminate()
        process.wait()
    return code


class RayJob:
    """A task on some node, or in the queue for one."""

    pid = None

    def __init__(self, task: Task, reference: Any, grace_seconds: float) -> None:
        self._task = task
        self._patience = grace_seconds + _CANCEL_SECONDS
        self._reference = reference
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None and ray.wait([self._reference], timeout=0)[0]:
            self._code = self._outcome()
        return self._code

    def stop(self) -> None:
        if self.poll() is not None:
            return
        ray.cancel(self._reference, force=False)
        ray.wait([self._reference], timeout=self._patience)
        if self.poll() is None:
            ray.cancel(self._reference, force=True)
            ray.wait([self._reference], timeout=_CANCEL_SECONDS)
            self._code = -signal.SIGKILL

    def _outcome(self) -> int:
        try:
            return int(ray.get(self._reference))
        except TaskCancelledError:
            return -signal.SIGTERM
        except RayTaskError as error:
            raise LaunchError(
                f"{self._task.name} could not be started on its node: {error.cause!r}; expected this project to be "
                f"installed there, and {self._task.log.parent} to be on a file system that all nodes share"
            ) from error
        except RayError as error:
            with self._task.log.open("a", encoding="utf-8") as log:
                log.write(f"{self._task.name} was lost: {type(error).__name__}\n")
            return -signal.SIGKILL


def _knock(address: str) -> None:
    """Raises OSError if nobody listens at host:port; Ray itself would wait for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()


class RayLauncher:
    """A Ray cluster."""

    name = "ray"

    def __init__(self, settings: RaySettings, grace_seconds: float = GRACE_SECONDS) -> None:
        """Connect. Raises LaunchError if there is no cluster at the address."""
        self.grace_seconds = grace_seconds
        self.retries = settings.retries
        self._settings = settings
        if not ray.is_initialized():
            try:
                _knock(settings.address)
                ray.init(address=settings.address, log_to_driver=False, configure_logging=False)
            except (OSError, RuntimeError, ValueError) as error:
                raise LaunchError(
                    f"no Ray cluster at {settings.address!r}: {' '.join(str(error).split())}; start one with "
                    "'ray start --head', and more nodes with 'ray start --address HOST:6379'"
                ) from error

    def start(self, task: Task) -> RayJob:
        self._check(task.name, task.resources)
        remote = ray.remote(carry_out).options(
            name=task.name,
            num_cpus=task.resources.cpus,
            num_gpus=task.resources.gpus,
            resources=self._settings.resources or None,
            max_retries=0,
        )
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment = {**inherited, **task.environment}
        asked = remote.remote(task.name, task.arguments, str(task.log), environment, self.grace_seconds)
        return RayJob(task, asked, self.grace_seconds)

    def _check(self, name: str, wanted: Resources) -> None:
        """A task that no node could ever take would wait for good."""
        needs = {"CPU": wanted.cpus, "GPU": wanted.gpus, **self._settings.resources}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(all(node.get(kind, 0) >= amount for kind, amount in needs.items()) for node in nodes):
            return
        asked = ", ".join(f"{kind} {amount:g}" for kind, amount in needs.items() if amount)
        most = ", ".join(f"{kind} {max((n.get(kind, 0) for n in nodes), default=0):g}" for kind in needs)
        raise LaunchError(
            f"{name} needs a node with {asked}; the cluster has {len(nodes)} nodes, and the most that one has is {most}"
        )
