"""``python -m graph.serve --run-dir DIR``: LangGraph Studio on one run directory, new or begun before.

Starts ``langgraph dev`` on this machine without a browser and without reloading, tells it of the run's thread, and ends
with it. Needs the extra ``studio``. Exit codes: 0 the server was stopped, 1 it could not start, 2 bad input.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from graph.exits import Exit
from graph.lock import locked
from graph.rundir import RunDir, open_directory
from graph.settings import SettingsError
from graph.studio import DEFAULT_RUN_DIR, NAME, RECORDS, RUN_DIR, recorded_run, refuse_second_server

PATIENCE_SECONDS = 300.0
JOBS = 4
"""Runs that the server carries out at a time; LangGraph's own default, one, would let a training run block a look."""
CONFIGURATION = {
    "$schema": "https://langgra.ph/schema.json",
    "python_version": "3.11",
    "dependencies": ["."],
    "graphs": {
        NAME: {
            "path": "graph.studio:graph",
            "description": "The model that is being trained designs its own next training environment, stage by stage.",
        }
    },
    "checkpointer": {"path": "graph.studio.run_checkpointer"},
}
"""As ``langgraph.json`` in the repository, for those who have the package alone."""
QUIET = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGGRAPH_NO_VERSION_CHECK": "true"}
"""Without these LangGraph's command asks its makers' servers for a newer version and tells them that it was used."""


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="python -m graph.serve", description="Open one run directory in LangGraph Studio, under its lock."
    )
    flags.add_argument(
        "--run-dir",
        type=Path,
        default=DEFAULT_RUN_DIR,
        metavar="DIR",
        help=f"a run, or where a new one will lie (default: {DEFAULT_RUN_DIR})",
    )
    flags.add_argument("--port", type=int, default=2024, metavar="N", help="on 127.0.0.1 (default: 2024)")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        check(options.run_dir, options.port)
        return serve(options.run_dir.absolute(), options.port)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.BAD_INPUT


def check(root: Path, port: int) -> None:
    """What would make the server fail with a traceback. Raises SettingsError."""
    if any(importlib.util.find_spec(name) is None for name in ("langgraph_cli", "langgraph_api")):
        raise SettingsError("LangGraph Studio is not installed; pip install 'envwright[studio]'")
    if not 0 < port < 2**16:
        raise SettingsError(f"--port {port}, expected 1..65535")
    with socket.socket() as probe:
        # As the server does it: a port that a server has just left is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SettingsError(f"--port {port}: {error.strerror}; give another") from error
    with locked(open_directory(root).root):
        pass


def serve(root: Path, port: int) -> int:
    """The server from its start to its end."""
    forget_others(root)
    RECORDS.mkdir(exist_ok=True)
    configuration = RECORDS / "langgraph.json"
    configuration.write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    server = subprocess.Popen(
        command(port, configuration), env={**os.environ, **QUIET, **found_first(), RUN_DIR: str(root)}
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: server.terminate())
    url = f"http://127.0.0.1:{port}"
    if not answers(server, url):
        server.terminate()
        server.wait()
        print(f"error: the server did not start (exit code {server.returncode}); see above", file=sys.stderr)
        return Exit.FAILED
    thread = introduce(RunDir(root), url)
    print(f"{root} is open in LangGraph Studio, thread {thread}:", flush=True)
    print(f"  https://smith.langchain.com/studio/?baseUrl={url}   (stop with Ctrl-C)", flush=True)
    server.wait()
    return Exit.DONE if server.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM) else Exit.FAILED


def found_first() -> dict[str, str]:
    """The environment in which our packages are found before files of their names in the working directory.

    The server puts that directory last on its path, and an editable install is looked for after the whole path.
    """
    home = str(Path(__file__).resolve().parents[1])
    if home in sys.path:
        return {}
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": home if not before else f"{home}{os.pathsep}{before}"}


def command(port: int, configuration: Path) -> list[str]:
    """Without reloading, which would end a training run whenever a Python file is written; without the working
    directory on the path, where a file may be called as one of our packages is."""
    given = [
        "--no-browser",
        "--no-reload",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--n-jobs-per-worker",
        str(JOBS),
    ]
    return [sys.executable, "-P", "-m", "langgraph_cli", "dev", *given, "--config", str(configuration)]


def forget_others(root: Path) -> None:
    """Remove what a server noted here of another run; its checkpoints are its own. Raises SettingsError if it runs."""
    recorded = recorded_run()
    if recorded in (None, root):
        return
    refuse_second_server(recorded)
    shutil.rmtree(RECORDS)


def answers(server: subprocess.Popen[bytes], url: str) -> bool:
    """Whether the server is up; waits for it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with httpx.Client(trust_env=False) as client:
        while server.poll() is None and time.monotonic() < deadline:
            try:
                if client.get(f"{url}/ok").is_success:
                    return True
            except httpx.TransportError:
                time.sleep(0.1)
    return False


def introduce(run: RunDir, url: str) -> str:
    """Tell the server of the run's thread, which the command line may have made; returns its id."""
    from graph.checkpoints import thread_id  # noqa: PLC0415
    from graph.studio import stored_settings  # noqa: PLC0415

    settings = stored_settings(run)
    thread = thread_id(run, None if settings is None else settings.checkpoints)
    body = {"thread_id": thread, "if_exists": "do_nothing", "metadata": {"graph_id": NAME}}
    with httpx.Client(trust_env=False) as client:
        client.post(f"{url}/threads", json=body).raise_for_status()
    return thread


if __name__ == "__main__":
    sys.exit(main())
