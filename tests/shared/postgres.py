"""A Postgres server of Debian's package on a port and in a directory of its own, run by a user who is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from served import free_port

USER = "postgres"
"""The user that Debian's package makes; used where the tests run as root, whom the server refuses."""


def binaries() -> Path:
    """Where initdb and postgres lie; the package is installed if it is not there."""
    if not (found := sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))):
        install()
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent


def install() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "postgresql"]):
        subprocess.run([*root, *command], check=True, env=environment, capture_output=True)


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of a database on a fresh server, which ends with the block."""
    programs, port = binaries(), free_port()
    place = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    own = os.geteuid() != 0
    if not own:
        shutil.chown(place, USER)
    as_user = [] if own else ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    data = place / "data"
    subprocess.run(
        [*as_user, str(programs / "initdb"), "-D", str(data), "-U", "envwright", "--auth=trust", "--no-sync"],
        check=True,
        capture_output=True,
        cwd=place,
    )
    log = (place / "log").open("w")
    server = subprocess.Popen(
        [*as_user, str(programs / "postgres"), "-D", str(data), "-p", str(port), "-k", str(place), "-F"],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=place,
    )
    try:
        wait_until_ready(programs, port, server, place / "log")
        yield f"postgresql://envwright@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(timeout=30)
        log.close()
        shutil.rmtree(place)


def wait_until_ready(programs: Path, port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ready, check=False).returncode != 0:
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
