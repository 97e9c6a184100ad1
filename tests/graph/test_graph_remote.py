"""A whole run as a task of a real Ray cluster, of which the node that carries it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import parity
import pytest
import yaml
from two_nodes import TwoNodes, two_nodes

from graph.exits import Exit
from graph.remote import main, without_fork

pytestmark = pytest.mark.loop


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    with two_nodes(Path(parity.__file__).parent) as nodes:
        yield nodes


def test_a_run_goes_on_elsewhere_when_its_node_is_lost(
    cluster: TwoNodes, tmp_path: Path, profile: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config, run_dir = tmp_path / "run.yaml", tmp_path / "run"
    config.write_text(yaml.safe_dump({"environment": "parity:Parity", "profile": str(profile), "stages": 0}))

    def lose() -> None:
        while not list(run_dir.glob("stages/000/attempt-1")):
            time.sleep(0.1)
        cluster.lose_the_busy_one()

    power_cut = threading.Thread(target=lose, daemon=True)
    power_cut.start()
    address = cluster.cluster.address
    code = main(["--ray", address, "--run-dir", str(run_dir), "--", "--config", str(config)])
    assert code == Exit.DONE, capfd.readouterr().out[-3000:]
    assert not power_cut.is_alive()
    assert (run_dir / "report" / "index.html").exists()
    assert "was lost" in (tmp_path / "run.remote.log").read_text()
    # What a bad line says comes back as it would from the run itself.
    assert main(["--ray", address, "--run-dir", str(tmp_path / "x"), "--", "--designer", "slef"]) == Exit.BAD_INPUT
    assert "did you mean" in capfd.readouterr().out


@pytest.mark.parametrize("fork", [["--fork-from", "old", "--at-stage", "1"], ["--fork-from=old", "--at-stage=1"]])
def test_a_fork_is_begun_once(fork: list[str]) -> None:
    assert without_fork([*fork, "--designer", "fixed", "--stages", "3"]) == ["--designer", "fixed", "--stages", "3"]
