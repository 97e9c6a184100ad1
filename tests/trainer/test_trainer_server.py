"""The OpenAI-compatible policy against a small HTTP server that records what it is asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainer.grammar import ebnf
from trainer.policy import PolicyError
from trainer.serving import client
from trainer.serving.client import OpenAIPolicy, request_seed

PROMPTS = [[{"role": "user", "content": text}] for text in "abc"]


class Server(ThreadingHTTPServer):
    obeys = True
    hangs_up = 0
    """Requests whose connection is closed without a word."""
    seconds = 0.0
    counts = True
    finish_reason = "stop"
    status = 200
    body: bytes | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.under_way = self.most_under_way = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append(request)
            hangs_up = self.server.hangs_up > 0
            self.server.hangs_up -= hangs_up
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.most_under_way, self.server.under_way)
        time.sleep(self.server.seconds)
        with self.server.lock:
            self.server.under_way -= 1
        if hangs_up:
            self.close_connection = True
            return
        text = f"{request['messages'][0]['content']}-{request['seed']}"
        if "response_format" in request and self.server.obeys:
            schema = request["response_format"]["json_schema"]["schema"]
            text = json.dumps({name: rule["enum"][0] for name, rule in schema["properties"].items()})
        body = json.dumps(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": request["model"],
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": text},
                        "finish_reason": self.server.finish_reason,
                    }
                ],
                "usage": {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}
                if self.server.counts
                else None,
            }
        ).encode()
        body = body if self.server.body is None else self.server.body
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def policy(server: Server) -> OpenAIPolicy:
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    return OpenAIPolicy(url, "some-model", chat_template_kwargs={"enable_thinking": False})


def test_answers_come_in_order_and_nothing_is_left_to_the_server(server: Server, policy: OpenAIPolicy) -> None:
    answers = policy.generate(PROMPTS, max_new_tokens=9, temperature=0.5, samples=2, seed=10)
    assert [[answer.text for answer in group] for group in answers] == [
        [f"{name}-{request_seed(seed, sample)}" for sample in (0, 1)]
        for name, seed in (("a", 10), ("b", 11), ("c", 12))
    ]
    assert {(answer.prompt_tokens, answer.tokens) for group in answers for answer in group} == {(3, 7)}
    for request in server.requests:
        assert (request["temperature"], request["top_p"], request["max_tokens"]) == (0.5, 1.0, 9)
        assert request["chat_template_kwargs"] == {"enable_thinking": False}
        assert "response_format" not in request


def test_a_schema_is_sent_as_strict(server: Server, policy: OpenAIPolicy) -> None:
    schema = {"type": "object", "properties": {"op": {"enum": ["up"]}}, "required": ["op"]}
    [[answer]] = policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0, schema=schema)
    assert json.loads(answer.text) == {"op": "up"}
    assert server.requests[0]["response_format"]["json_schema"] == {"name": "answer", "schema": schema, "strict": True}


def test_the_canary_passes_only_where_schemas_bind(server: Server, policy: OpenAIPolicy) -> None:
    policy.check()
    server.obeys = False
    with pytest.raises(PolicyError, match="ignores response_format"):
        policy.check()


def test_failures_name_the_server(server: Server, policy: OpenAIPolicy) -> None:
    server.finish_reason = "content_filter"
    with pytest.raises(PolicyError, match="content_filter"):
        policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
    server.finish_reason, server.counts = "stop", False
    with pytest.raises(PolicyError, match="no usage"):
        policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
    server.status = 400
    with pytest.raises(PolicyError, match="some-model"):
        policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)


def completion(**changes: Any) -> bytes:
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 7}
    known = {"choices": [choice | changes.pop("choice", {})], "usage": usage | changes.pop("counts", {})}
    return json.dumps(known | changes).encode()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>Bad gateway</html>", "Bad gateway"),
        (b"", "the body"),
        (b"[1, 2]", "the body"),
        (b'{"foo": 1}', "choices"),
        (completion()[:40], "the body"),
        (b"\xff\x00\x9c", "the body"),
        (b"[" * 100_000, "the body"),
        (completion(choices=None), "choices"),
        (completion(choices=[]), "choices"),
        (completion(choice={"message": None}), "choices.0.message"),
        (completion(choice={"message": {"content": ["x"]}}), "choices.0.message.content"),
        (completion(choice={"finish_reason": 3}), "choices.0.finish_reason"),
        (completion(counts={"completion_tokens": -1}), "usage.completion_tokens"),
        (completion(counts={"prompt_tokens": "3"}), "usage.prompt_tokens"),
        (completion(usage="many"), "usage"),
        (completion(usage=None), "no usage"),
    ],
)
def test_an_answer_that_is_none_is_said_to_be_so(server: Server, policy: OpenAIPolicy, body: bytes, says: str) -> None:
    server.body = body
    with pytest.raises(PolicyError) as caught:
        policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
    assert says in str(caught.value)
    assert "some-model" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little patience between two tries."""
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.01)


def test_a_lost_connection_is_tried_again(server: Server, policy: OpenAIPolicy, soon: None) -> None:
    server.hangs_up = client.TRIES - 1
    [[answer]] = policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
    assert answer.text.startswith("a-")
    assert len(server.requests) == client.TRIES


def test_it_is_not_tried_for_ever_and_the_others_are_let_go(server: Server, policy: OpenAIPolicy, soon: None) -> None:
    server.hangs_up = 10_000
    with pytest.raises(PolicyError, match=r"cannot be reached for model 'some-model', tried 5 times") as caught:
        policy.generate(PROMPTS * 100, max_new_tokens=9, temperature=0)
    assert "\n" not in str(caught.value)
    assert len(server.requests) < 300


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_what_a_server_says_is_not_asked_again(server: Server, policy: OpenAIPolicy, status: int) -> None:
    server.status = status
    with pytest.raises(PolicyError, match=f"failed for model 'some-model': Error code: {status}"):
        policy.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
    assert len(server.requests) == 1


def test_a_server_of_pages_is_no_server_of_models() -> None:
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{pages.server_port}/v1"
        with pytest.raises(PolicyError, match=r"/v1/ answered with status 501 and no JSON; is it OpenAI-compatible\?"):
            OpenAIPolicy(url, "some-model").generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
        pages.shutdown()


def test_an_answer_that_takes_too_long_is_not_asked_for_again(server: Server) -> None:
    server.seconds = 2.0
    hasty = OpenAIPolicy(f"http://127.0.0.1:{server.server_address[1]}/v1", "some-model", timeout=0.3)
    with pytest.raises(PolicyError, match=r"gave no answer of model 'some-model' within 0.3 s; raise the limit"):
        hasty.generate(PROMPTS[:1], max_new_tokens=9, temperature=0)
    assert len(server.requests) == 1


def test_requests_under_way_are_bounded_and_use_their_bound(server: Server) -> None:
    server.seconds = 0.05
    few = OpenAIPolicy(f"http://127.0.0.1:{server.server_address[1]}/v1", "some-model", concurrency=3)
    few.generate(PROMPTS * 5, max_new_tokens=9, temperature=0)
    assert server.most_under_way == 3


def test_answers_are_handed_out_as_they_come_whatever_their_place(server: Server, policy: OpenAIPolicy) -> None:
    whole = policy.generate(PROMPTS, max_new_tokens=9, temperature=1.0, samples=2, seed=4)
    streamed = dict(policy.stream(PROMPTS, [4, 5, 6], max_new_tokens=9, temperature=1.0, samples=2))
    assert [streamed[index] for index in range(3)] == whole
    [(_, last)] = policy.stream(PROMPTS[2:], [6], max_new_tokens=9, temperature=1.0, samples=2)
    assert last == whole[2]


def test_no_two_requests_share_a_seed() -> None:
    seeds = {
        request_seed(seed * 1_000_003 + place, sample)
        for seed in range(4)
        for place in range(500)
        for sample in range(4)
    }
    assert len(seeds) > 8000 - 10
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_schema_goes_to_vllm_as_the_grammar_of_this_process(server: Server) -> None:
    vllm = OpenAIPolicy(f"http://127.0.0.1:{server.server_address[1]}/v1", "some-model", constraint="grammar")
    vllm.generate(PROMPTS[:1], max_new_tokens=9, temperature=0, schema={"enum": ["up"]})
    [request] = server.requests
    assert "response_format" not in request
    assert request["structured_outputs"] == {"grammar": ebnf({"enum": ["up"]})}
