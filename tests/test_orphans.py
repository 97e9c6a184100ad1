"""What a failed test leaves running is found, grandchildren too, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from orphans import SESSION, end_left_by

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = f"import subprocess; child = subprocess.Popen({SLEEP!r}); print(child.pid, flush=True); child.wait()"


@pytest.fixture
def of_a_fixture() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(SLEEP, text=True) as process:
        yield process
        process.kill()


def test_what_a_test_left_is_ended(request: pytest.FixtureRequest, of_a_fixture: subprocess.Popen[str]) -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        grandchild = psutil.Process(int(process.stdout.readline()))
        assert set(end_left_by(request.node.nodeid)) == {process.pid, grandchild.pid}
    psutil.wait_procs([grandchild], timeout=10)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE
    assert of_a_fixture.poll() is None


def test_what_another_run_of_pytest_started_lives_on(request: pytest.FixtureRequest) -> None:
    with subprocess.Popen(SLEEP, env={**os.environ, SESSION: "another"}) as process:
        assert end_left_by(request.node.nodeid) == []
        assert process.poll() is None
        process.kill()
