"""The trace of a run: what is in it, what survives a kill, who else hears of it, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from listening import Quiet, listening
from loops import finish, kill, start, until
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from graph import trace
from graph.exits import Exit
from graph.rundir import RunDir
from graph.state import RunState
from graph.trace_spans import Span, from_events, from_trace, timeline, where_time_went
from graph.tracing import ERROR_SHOWN, TEXT_SHOWN, TRACE_FILE, Content, JsonlTracer, content_wanted, step

SECRET = "the question"


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return json.dumps({"seen": where, "generated_tokens": 5})


def traced(
    path: Path,
    speak: Callable[[RunState], RunState],
    *,
    content: Content = "full",
    session: str = "one",
    trouble: Callable[[str], None] = lambda _: None,
) -> Any:
    """A graph of one node under the tracer."""
    graph: StateGraph[RunState] = StateGraph(RunState)
    graph.add_node("analyst", speak, metadata={"kind": "role", "role": "failure_analyst"})
    graph.add_edge(START, "analyst")
    graph.add_conditional_edges("analyst", lambda _: "over", {"over": END})
    tracer = JsonlTracer(path, session=session, content=content, trouble=trouble)
    return graph.compile(checkpointer=InMemorySaver(), name="small").with_config(callbacks=[tracer])


def run(graph: Any, **state: Any) -> Any:
    return graph.invoke({"stage": 3, **state}, {"configurable": {"thread_id": "1"}})


def speaks(answer: str = "the answer") -> Callable[[RunState], RunState]:
    usage = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}

    def node(_: RunState) -> RunState:
        message = AIMessage(answer, usage_metadata=usage, response_metadata={"finish_reason": "length"})
        with step("roles"):
            GenericFakeChatModel(messages=iter([message])).invoke(SECRET)
        look.invoke({"where": "there"})
        return RunState(revision=1)

    return node


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_trace_holds_nodes_steps_models_and_tools_with_their_parents(tmp_path: Path) -> None:
    run(traced(tmp_path / TRACE_FILE, speaks()))
    spans = {span.kind: span for span in from_trace(tmp_path / TRACE_FILE)}
    assert set(spans) == {"run", "node", "step", "model", "tool"}, "and nothing of LangGraph's own routing"
    assert [spans[kind].name for kind in ("run", "node", "step", "tool")] == ["small", "analyst", "roles", "look"]
    assert spans["node"].parent == spans["run"].id
    assert spans["step"].parent == spans["tool"].parent == spans["node"].id
    assert spans["model"].parent == spans["step"].id
    model = spans["model"]
    assert (model.stage, model.role, model.input_tokens, model.output_tokens) == (3, "failure_analyst", 7, 2)
    assert model.finish_reason == "length"
    assert SECRET in str(model.input)
    assert (model.output, spans["tool"].output) == ("the answer", '{"seen": "there", "generated_tokens": 5}')
    assert spans["tool"].output_tokens == 5
    assert spans["tool"].input == '{"where": "there"}'
    assert all(span.seconds is not None and span.session == "one" for span in spans.values())
    assert spans["node"].seconds >= spans["model"].seconds  # type: ignore[operator]


def test_an_outline_holds_no_word_of_prompts_and_answers(tmp_path: Path) -> None:
    run(traced(tmp_path / TRACE_FILE, speaks(), content="outline"))
    text = (tmp_path / TRACE_FILE).read_text()
    assert "answer" not in text
    assert SECRET not in text
    assert "there" not in text
    assert [span.output_tokens for span in from_trace(tmp_path / TRACE_FILE) if span.kind == "model"] == [2]


def test_texts_are_bounded(tmp_path: Path) -> None:
    run(traced(tmp_path / TRACE_FILE, speaks("x" * (TEXT_SHOWN + 5))))
    (model,) = [span for span in from_trace(tmp_path / TRACE_FILE) if span.kind == "model"]
    assert str(model.output) == "x" * TEXT_SHOWN + " [5 more characters]"


def test_an_error_is_told_in_one_line_and_waiting_is_none(tmp_path: Path) -> None:
    def fails(_: RunState) -> RunState:
        raise ValueError("no\nluck " + "x" * 9000)

    with pytest.raises(ValueError, match="luck"):
        run(traced(tmp_path / TRACE_FILE, fails))
    node = from_trace(tmp_path / TRACE_FILE)[1]
    assert node.error is not None
    assert node.error.startswith("ValueError('no\\nluck x")
    assert len(node.error) < ERROR_SHOWN + 50

    def waits(_: RunState) -> RunState:
        return RunState(why=interrupt("may I?"))

    other = tmp_path / "waits.jsonl"
    run(traced(other, waits))
    assert [(span.error, span.finish_reason) for span in from_trace(other) if span.kind == "node"] == [(None, "waits")]


def test_a_trace_that_cannot_be_written_costs_one_line(tmp_path: Path) -> None:
    said: list[str] = []
    assert run(traced(tmp_path / "missing" / TRACE_FILE, speaks(), trouble=said.append))["revision"] == 1
    assert len(said) == 1
    assert "No such file" in said[0]


def test_a_step_is_nothing_where_nobody_listens() -> None:
    with step("roles"):
        assert look.invoke({"where": "here"}) == '{"seen": "here", "generated_tokens": 5}'


def test_sessions_append_and_a_torn_line_takes_none_with_it(tmp_path: Path) -> None:
    path = tmp_path / TRACE_FILE
    run(traced(path, speaks()))
    with path.open("ab") as file:
        file.write('{"record": "end", "id": "1", "output": "é'.encode()[:-1])
    run(traced(path, speaks(), session="two", content="outline"))
    spans = from_trace(path)
    assert [span.session for span in spans] == ["one"] * 5 + ["two"] * 5
    assert [span.stage for span in spans] == [None, 3, 3, 3, 3] * 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / TRACE_FILE
    run(traced(path, speaks()))
    return path.read_bytes()


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_kill_anywhere_costs_at_most_the_last_line(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("cut") / TRACE_FILE
    path.write_bytes(whole[:cut])
    starts = [one for one in map(json.loads, whole[:cut].split(b"\n")[:-1]) if one["record"] == "start"]
    found = [span.id for span in from_trace(path)]
    assert found[: len(starts)] == [one["id"] for one in starts]
    assert len(found) <= len(starts) + 1


@pytest.mark.parametrize(
    ("content", "setting", "wanted"),
    [
        (None, None, None),
        (None, "outline", "outline"),
        ("", None, "full"),
        ('{"content": "outline"}\n', None, "outline"),
        ('{"content": "outline"}\n', "full", "full"),
        ("{", None, "full"),
    ],
)
def test_a_run_that_was_traced_goes_on_being_traced(
    tmp_path: Path, content: str | None, setting: Content | None, wanted: Content | None
) -> None:
    if content is not None:
        (tmp_path / TRACE_FILE).write_text(content)
    assert content_wanted(tmp_path, setting) == wanted


def test_where_the_time_went_counts_every_second_once() -> None:
    def span(name: str, parent: str | None, seconds: float, **fields: Any) -> Span:
        return Span(id=name, parent=parent, session="", kind="node", name=name, started=0, seconds=seconds, **fields)

    rows = where_time_went([span("a", None, 10), span("b", "a", 6), span("c", "b", 5, output_tokens=3)])
    assert [(row["name"], row["own_seconds"]) for row in rows] == [("c", 5), ("a", 4), ("b", 1)]
    assert sum(row["own_seconds"] for row in rows) == 10
    assert rows[0]["tokens"] == 3


def test_events_tell_nodes_roles_and_tools() -> None:
    log = [
        {"time": 1.0, "event": "session", "session": "s"},
        {"time": 2.0, "event": "node", "node": "trainer", "stage": 1},
        {"time": 5.0, "event": "said", "role": "trainer", "text": "", "tokens": 7},
        {"time": 5.5, "event": "time", "session": "s", "seconds": {}},
        {"time": 6.0, "event": "node", "node": "train", "stage": 1},
        {"time": 9.0, "event": "tool", "name": "launch_stage", "seconds": 2.5, "tokens": 99, "error": None},
        {"time": 10.0, "event": "session", "session": "t"},
        {"time": "damaged", "event": "node"},
        {"time": 11.0, "event": "node", "node": "train", "stage": 1},
    ]
    spans = {(span.name, span.session): span for span in from_events(log)}
    assert spans["trainer", "s"].seconds in {3.0, 3.5}
    assert spans["launch_stage", "s"].output_tokens == 99
    assert spans["launch_stage", "s"].started == 6.5
    assert spans["train", "s"].seconds is None, "a kill cut it"
    assert spans["train", "t"].parent == "t"


def launched(time: float, session: str, stage: int, tokens: int) -> list[dict[str, Any]]:
    """What a pass through a stage's training leaves in the log."""
    return [
        {"time": time, "event": "session", "session": session},
        {"time": time, "event": "node", "node": "train", "stage": stage},
        {"time": time + 1, "event": "tool", "name": "launch_stage", "seconds": 0.5, "tokens": tokens, "error": None},
        {"time": time + 1, "event": "tool", "role": "scout", "name": "probe_policy", "seconds": 0.5, "tokens": 9},
    ]


def test_a_stage_that_is_passed_again_is_counted_once(tmp_path: Path) -> None:
    """An empty form on a finished run leads through every node again, over the files that are there."""
    log = [*launched(1, "s", 0, 500), *launched(3, "s", 1, 700), *launched(5, "t", 0, 500), *launched(7, "t", 1, 700)]
    rows = where_time_went(timeline(RunDir(logged(tmp_path, log))).spans)
    sums = {row["name"]: (row["calls"], row["tokens"]) for row in rows if row["kind"] == "tool"}
    assert sums == {"launch_stage": (4, 1200), "probe_policy": (4, 36)}
    other = [*log, *launched(9, "u", 1, 650)]
    rows = where_time_went(timeline(RunDir(logged(tmp_path, other))).spans)
    assert {row["name"]: row["tokens"] for row in rows}["launch_stage"] == 1850, "another course trained it anew"


def test_a_traced_stage_that_is_read_again_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def launch_stage() -> str:
        """Trains."""
        return json.dumps({"generated_tokens": 500})

    def train(_: RunState) -> RunState:
        launch_stage.invoke({})
        return RunState(stage=0)

    for session in ("s", "t"):
        run(traced(tmp_path / TRACE_FILE, train, session=session, content="outline"))
    assert trace.main([str(logged(tmp_path, []))]) == Exit.DONE
    told = [line for line in capsys.readouterr().out.splitlines() if "launch_stage" in line]
    assert told[0].endswith("500 tokens")
    assert told[1].endswith("read again")
    assert " 500 " in told[2]


ROLE_LOG: list[dict[str, Any]] = [
    {"time": 1.0, "event": "session", "session": "s"},
    {"time": 1.0, "event": "node", "node": "baseline", "stage": None},
    {"time": 2.0, "event": "node", "node": "scout", "stage": 1},
    {"time": 4.0, "event": "tool", "role": "scout", "name": "probe_policy", "seconds": 1.5, "tokens": 9},
    {"time": 5.0, "event": "said", "role": "scout", "text": "", "tokens": 7},
    {"time": 6.0, "event": "said", "role": "scout", "text": "again", "tokens": 8},
    {"time": 6.0, "event": "node", "node": "report", "stage": 2},
    {"time": 7.0, "event": "ended", "session": "s", "how": "failed", "why": "no room"},
    {"time": 7.5, "event": "time", "session": "s", "seconds": {}},
]


def logged(folder: Path, log: list[dict[str, Any]]) -> Path:
    (folder / "run.yaml").write_text(yaml.safe_dump({"settings": {}}))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in log))
    return folder


def test_the_tools_of_a_role_lie_within_its_time_and_are_not_its_own(tmp_path: Path) -> None:
    spans = timeline(RunDir(logged(tmp_path, ROLE_LOG))).spans
    first, second = [span for span in spans if span.kind == "model"]
    [tool] = [span for span in spans if span.kind == "tool"]
    assert tool.parent == first.id
    assert (first.started, first.seconds, second.started, second.seconds) == (2.0, 3.0, 5.0, 1.0)
    own = {(row["kind"], row["name"]): row["own_seconds"] for row in where_time_went(spans)}
    assert own["model", "scout"] == 3.0 - 1.5 + 1.0
    assert own["tool", "probe_policy"] == 1.5
    assert [span.started for span in spans] == sorted(span.started for span in spans)


def test_the_tree_shows_tools_beneath_their_role_no_empty_stage_and_why_it_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trace.main([str(logged(tmp_path, ROLE_LOG))]) == Exit.DONE
    told = capsys.readouterr().out.partition("where the time went")[0].splitlines()
    names = [line[:30].rstrip() for line in told if line]
    assert names[1:] == [
        "  baseline",
        "  stage 001",
        "  scout",
        "    scout",
        "      probe_policy",
        "    scout",
        "  end",
        "  report",
    ]
    assert told[0].endswith("failed: no room")
    assert told[8].endswith("no room"), "and where"


@pytest.mark.parametrize(("how", "word"), [("waiting", "waits"), ("drained", "drained"), ("done", None)])
def test_other_ends_are_no_faults(tmp_path: Path, how: str, word: str | None) -> None:
    log = [event | ({"how": how} if event["event"] == "ended" else {}) for event in ROLE_LOG]
    spans = timeline(RunDir(logged(tmp_path, log))).spans
    assert [span.error for span in spans] == [None] * len(spans)
    assert [span.finish_reason for span in spans if span.kind == "run"] == [word]


def test_a_traced_session_tells_why_it_failed_too(tmp_path: Path) -> None:
    def fails(_: RunState) -> RunState:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="luck"):
        run(traced(tmp_path / TRACE_FILE, fails, session="s"))
    root, node = timeline(RunDir(logged(tmp_path, ROLE_LOG))).spans
    assert (root.kind, root.error) == ("run", "failed: no room")
    assert str(node.error).startswith("ValueError")


@pytest.mark.parametrize("arguments", [[], ["/nowhere"], [".", "--stage", "9"]])
def test_bad_input_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trace.main(arguments) == Exit.BAD_INPUT
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: ")
    assert len(told.err.splitlines()) == 1


@contextmanager
def listener() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that keeps what is posted to it: its address, and (path, body) of every request."""
    kept: list[tuple[str, bytes]] = []

    class Keeps(Quiet):
        def do_POST(self) -> None:
            kept.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self._thanks()

        def do_GET(self) -> None:
            self._thanks()

        def _thanks(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with listening(Keeps) as address:
        yield address, kept


@pytest.mark.loop
def test_a_run_is_traced_over_a_kill_and_heard_by_a_collector_and_by_langsmith(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, root = tmp_path / "settings.yaml", tmp_path / "run"
    config.write_text(yaml.safe_dump({"environment": "parity:Parity", "profile": str(profile), "stages": 1}))
    with listener() as (url, kept):
        langsmith = {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "none", "LANGSMITH_ENDPOINT": url}
        process = start(tmp_path, "--config", config, "--run-dir", root, "--trace", **langsmith)
        until(lambda: any(span.name == "launch_stage" for span in from_trace(root / TRACE_FILE)), process)
        kill(process)
        assert any(path == "/runs/multipart" and b"baseline" in body for path, body in kept), [p for p, _ in kept]
        otlp = {
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_OTEL_ENABLED": "true",
            "LANGSMITH_OTEL_ONLY": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        }
        finish(start(tmp_path, "--run-dir", root, "--resume", **otlp))
        exported = [ExportTraceServiceRequest.FromString(body) for path, body in kept if path == "/v1/traces"]

    names = {
        span.name
        for one in exported
        for resource in one.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert {"envwright", "train", "launch_stage", "failure_analyst", "CheckpointChatModel", "report"} <= names

    run_dir = RunDir(root)
    spans = timeline(run_dir).spans
    sessions = list(dict.fromkeys(span.session for span in spans))
    assert len(sessions) == 2
    cut = {span.name for span in spans if span.seconds is None}
    assert cut >= {"envwright", "train", "launch_stage"}, "the spans that the kill cut have no end"
    assert all(span.session == sessions[0] for span in spans if span.seconds is None)
    ids = {span.id for span in spans}
    assert all(span.parent in ids for span in spans if span.kind != "run")
    models = [span for span in spans if span.kind == "model"]
    assert {span.role for span in models} == {"failure_analyst", "config_designer", "safety_critic", "trainer"}
    assert all(span.stage == 1 and span.input_tokens and span.output and span.input for span in models)

    assert trace.main([str(root)]) == Exit.DONE
    told = capsys.readouterr().out
    for text in ("stage 001", "launch_stage", "tokens in", "no end", "where the time went"):
        assert text in told
    assert trace.main([str(root), "--json", "--stage", "1"]) == Exit.DONE
    found = json.loads(capsys.readouterr().out)
    assert {span.get("stage") for span in found["spans"]} == {None, 1}

    (root / TRACE_FILE).unlink()
    assert timeline(run_dir).source == "events.jsonl"
    assert trace.main([str(root)]) == Exit.DONE
    told = capsys.readouterr().out
    for text in ("failure_analyst", "launch_stage", "from events.jsonl"):
        assert text in told
