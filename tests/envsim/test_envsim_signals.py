"""However a command ends, it says so in one line with the promised exit code, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LINUX = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to find the workers")
LONG = ["generate", "--n", "200000", "--processes", "2"]


@pytest.fixture(autouse=True)
def _heed_interrupts() -> Iterator[None]:
    """A shell lets what it runs in the background ignore Ctrl-C; children inherit that, but not a handler."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _begun(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "envsim", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _workers(process: subprocess.Popen[str]) -> list[int]:
    task = Path(f"/proc/{process.pid}/task")
    children = [int(pid) for thread in task.iterdir() for pid in (thread / "children").read_text().split()]
    return [pid for pid in children if _command(pid) == _command(process.pid)]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _two_workers(process: subprocess.Popen[str]) -> list[int]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if len(found := _workers(process)) == 2:
            return found
        time.sleep(0.02)
    raise AssertionError("no workers")


def _busy(pids: list[int]) -> None:
    """Wait until the workers are past their start."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        spent = [sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) for pid in pids]
        if min(spent) > 1.5 * os.sysconf("SC_CLK_TCK"):
            return
        time.sleep(0.05)
    raise AssertionError("the workers do not work")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _gone(pids: list[int]) -> bool:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if not any(map(_alive, pids)):
            return True
        time.sleep(0.05)
    return False


def _end(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=30)[1]
    finally:
        process.kill()


@LINUX
@pytest.mark.parametrize(
    ("number", "working", "code", "said"),
    [
        (signal.SIGINT, False, 130, "envsim: interrupted\n"),
        (signal.SIGINT, True, 130, "envsim: interrupted\n"),
        (signal.SIGTERM, True, 143, "envsim: terminated\n"),
    ],
)
def test_an_interrupted_command_ends_its_workers(number: int, working: bool, code: int, said: str) -> None:
    process = _begun(*LONG)
    workers = _two_workers(process)
    if working:
        _busy(workers)
    os.killpg(process.pid, number) if number == signal.SIGINT else os.kill(process.pid, number)
    began = time.monotonic()
    assert (_end(process), process.returncode) == (said, code)
    assert time.monotonic() - began < 10  # a second where nobody else is busy
    assert _gone(workers)


@LINUX
def test_workers_end_with_a_parent_that_is_killed() -> None:
    process = _begun(*LONG)
    workers = _two_workers(process)
    _busy(workers)
    process.kill()
    assert _gone(workers)
    _end(process)


@LINUX
def test_a_killed_worker_is_one_line() -> None:
    process = _begun(*LONG)
    workers = _two_workers(process)
    _busy(workers)
    os.kill(workers[1], signal.SIGKILL)
    said = _end(process)
    assert process.returncode == 3
    assert said.startswith("envsim: a worker process was killed")
    assert said.count("\n") == 1
    assert _gone(workers)


def test_an_interrupt_of_the_imports_is_one_line(tmp_path: Path) -> None:
    # Stands for the moment in which the libraries are imported.
    (tmp_path / "yaml.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    ended = subprocess.run(
        [sys.executable, "-m", "envsim", "schema"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (130, "envsim: interrupted\n")


def _sh(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = command.replace("ENVSIM", f"{sys.executable} -m envsim")
    return subprocess.run(
        ["sh", "-c", command], env=os.environ | environment, capture_output=True, check=False, timeout=60
    )


def test_closed_streams() -> None:
    ended = _sh("ENVSIM generate --n 2 >&-")
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"envsim: stdout is closed")
    assert ended.stderr.count(b"\n") == 1
    assert _sh("ENVSIM generate --n 2 2>&-").returncode == 0
    ended = _sh("ENVSIM generate --n 0 2>&-")
    assert (ended.returncode, ended.stdout) == (2, b"")
    if _sh("echo > /dev/full").returncode != 0:
        ended = _sh("ENVSIM schema >/dev/full")
        assert ended.returncode == 2
        assert ended.stderr.count(b"\n") == 1


def test_a_terminal_that_knows_only_ascii() -> None:
    ended = _sh("ENVSIM solve 'no\\303\\244me.json'".replace("\\303\\244", "ä"), PYTHONIOENCODING="ascii")
    assert ended.returncode == 2
    assert rb"no\xe4me.json" in ended.stderr
    assert ended.stderr.count(b"\n") == 1
    row = '{"rows": ["..."], "starts": [[0, 0]], "goals": [[0, 2]], "topology": "ä"}'
    ended = _sh(f"echo '{row}' | ENVSIM solve --certified -", PYTHONIOENCODING="ascii")
    assert json.loads(ended.stdout)["topology"] == "ä"
    ended = _sh(f"echo '{row}' | ENVSIM render -", PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, b"")
