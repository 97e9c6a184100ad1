"""Small HTTP servers in this process: any handler, and one that gives the same chat completion to everything."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Quiet(BaseHTTPRequestHandler):
    """A handler that writes nothing on the terminal."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server with this handler, without a path."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def answering(text: str, *, read: int = 1, wrote: int = 1) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible server that says ``text`` to everything: its URL, and the requests that it got."""
    requests: list[dict[str, Any]] = []

    class Answers(Quiet):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {"role": "assistant", "content": text}
            body = json.dumps(
                {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "any",
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote},
                }
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Answers) as address:
        yield f"{address}/v1", requests
