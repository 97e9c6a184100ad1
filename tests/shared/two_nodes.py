"""A Ray cluster on this machine, of which a node can be lost as by a power cut."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from processes import children
from ray.cluster_utils import Cluster

from trainer.launch.on_ray import RayLauncher
from trainer.launch.settings import RaySettings


class TwoNodes:
    """A head that takes no tasks, and two nodes with a CPU each."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        self.cluster.wait_for_nodes()
        self.launcher = RayLauncher(RaySettings(address=self.cluster.address))

    def add_node(self) -> None:
        """In place of one that was lost."""
        self.nodes.append(self.cluster.add_node(num_cpus=1))
        self.cluster.wait_for_nodes()

    def lose_the_busy_one(self) -> None:
        """Kill the raylet of the node that carries a task, and its workers; what these started is left to itself."""
        free = ray._private.state.available_resources_per_node()
        busy = next(node for node in self.nodes if not free[node.node_id].get("CPU"))
        workers = children(busy.all_processes["raylet"][0].process.pid)
        self.nodes.remove(busy)
        self.cluster.remove_node(busy, allow_graceful=False)
        for worker in workers:
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def two_nodes(*python_path: Path) -> Iterator[TwoNodes]:
    """The cluster while the block runs; its workers can import from the paths."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, python_path), *([before] if before else [])])
    try:
        nodes = TwoNodes()
        yield nodes
        ray.shutdown()
        nodes.cluster.shutdown()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
