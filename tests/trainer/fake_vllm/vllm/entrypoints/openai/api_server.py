"""A server with vLLM's command line and health check, which answers at once, writes down each request, and can die."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CANARY = "ok-7f3"


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__((options.host, options.port), Handler)
        self.options = options
        self.lock = threading.Lock()
        self.answered = 0
        self.open = 0

    def process_request(self, request: Any, client_address: Any) -> None:
        # Here, where connections are accepted one after the other: whoever asks how many are open has all before it
        # counted.
        with self.lock:
            self.open += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.open -= 1

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        bound = json.dumps([request.get("structured_outputs"), request.get("response_format")])
        if CANARY in bound and not self.options.ignores:
            return completion(json.dumps({"answer": CANARY}))
        time.sleep(self.options.seconds)
        with self.lock:
            if self.answered == self.options.dies_after:
                print("the engine has died", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            self.answered += 1
            if self.options.requests is not None:
                with self.options.requests.open("a") as file:
                    file.write(
                        json.dumps({"prompt": request["messages"][0]["content"], "seed": request["seed"]}) + "\n"
                    )
        return completion(f"{chr(98 + request['seed'] % 2)}{request['seed']}")


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        """Health; and, to any path, how many connections are open, this one among them."""
        self.send_response(503 if self.server.options.deaf else 200)
        self.end_headers()
        self.wfile.write(str(self.server.open).encode())

    def do_POST(self) -> None:
        body = json.dumps(self.server.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


def completion(text: str) -> dict[str, Any]:
    return {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for flag in ("model", "served-model-name", "host", "dtype", "generation-config", "structured-outputs-config"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--no-enable-prefix-caching", action="store_true")
    parser.add_argument("--requests", type=Path)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--dies-after", type=int)
    parser.add_argument("--exits", type=int)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--ignores", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    print(f"arguments {sys.argv[1:]}", flush=True)
    if given.exits is not None:
        print("no weights to be found", flush=True)
        raise SystemExit(given.exits)
    Server(given).serve_forever()
