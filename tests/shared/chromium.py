"""A headless Chromium for tests: DevTools commands over a pipe, which needs no port and no driver."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 60


def executable() -> str:
    """Where Chromium lies; Debian's package is installed if there is none."""
    found = shutil.which("chromium")
    if found is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "chromium"], check=True, stdout=subprocess.DEVNULL)
        found = shutil.which("chromium")
    assert found is not None, "apt-get installed chromium, and it is not on the path"
    return found


class Tab:
    """One page, and everything that it complained of."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command. Raises AssertionError for what the browser refuses."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return dict(answer["result"])
            self.events.append(answer)

    def wait(self, method: str) -> dict[str, Any]:
        """The next event of this name, from now on."""
        while True:
            answer = self._next()
            self.events.append(answer)
            if answer.get("method") == method:
                return dict(answer["params"])

    def open(self, page: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of this size."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=page.absolute().as_uri())
        self.wait("Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, and everything that was fetched beside the page itself."""
        found = []
        for event in self.events:
            name, values = event.get("method"), event.get("params", {})
            if name == "Runtime.exceptionThrown" or (
                name == "Runtime.consoleAPICalled" and values["type"] in {"error", "warning"}
            ):
                found.append(json.dumps(values))
            elif name == "Log.entryAdded" and values["entry"]["level"] in {"error", "warning"}:
                found.append(json.dumps(values["entry"]))
            elif name == "Network.requestWillBeSent" and not values["request"]["url"].startswith(("data:", "file:")):
                found.append(f"fetched {values['request']['url'][:200]}")
        return found

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def picture(self, *, whole: bool = True) -> bytes:
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser said nothing for {PATIENCE} s"
            block = os.read(self._read, 1 << 16)
            assert block, "the browser ended"
            self._buffer += block
        line, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(line))


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser of its own with an empty profile directory, gone afterwards."""
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()

    # The browser reads commands on 3 and answers on 4.
    script = f'exec "$0" "$@" 3<&{command_read} 4>&{answer_write}'
    process = subprocess.Popen(
        ["bash", "-c", script, executable(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(command_read, answer_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(command_read)
    os.close(answer_write)
    try:
        yield Tab(command_write, answer_read)
    finally:
        os.close(command_write)
        os.close(answer_read)
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
