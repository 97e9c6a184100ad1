"""A trace of a run as lines of JSON, ``trace.jsonl`` in the run directory: every node, step, model call and tool call.

A tracer among langchain's own: it hears what LangSmith and OpenTelemetry would hear, in the command line as in Studio.
A line is written when a span starts and one when it ends, so a kill leaves the span that it cut, and at most a torn
last line. A resumed run appends under a session of its own. A trace that cannot be written costs a line and no more.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from langchain_core.runnables.config import (
    ensure_config,
    get_callback_manager_for_config,
    patch_config,
    var_child_runnable_config,
)
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run

TRACE_FILE = "trace.jsonl"
TRACE_VERSION = 1
Content = Literal["full", "outline"]
"""full: with prompts, answers, tool arguments and results; outline: without any of them."""
CONTENTS: tuple[Content, ...] = get_args(Content)
TEXT_SHOWN = 8000
"""Characters of one text; a line says how many it leaves out."""
ERROR_SHOWN = 500
STEP = "step"
"""The tag of a part of a node that is a span of its own."""
LEFT = {"GraphInterrupt": "waits"} | dict.fromkeys(
    ("Stopped", "StageCancelled", "LaunchStopped", "GraphDrained", "CancelledError"), "drained"
)
"""Exceptions by which LangGraph leaves a span that has not failed."""
KINDS = {"chat_model": "model", "llm": "model", "tool": "tool"}


class JsonlTracer(BaseTracer):
    """Writes spans as they start and end. The file is opened, and made, with the first of them.

    ``trouble`` is told once, in one line, if it cannot be written; nothing is tried after that.
    """

    def __init__(self, path: Path, *, session: str, content: Content, trouble: Callable[[str], None]) -> None:
        super().__init__(_schema_format="original+chat")
        self._path = path
        self._session = session
        self._content: Content = content
        self._trouble = trouble
        self._lock = threading.Lock()
        self._file: int | None = None
        self._failed = False

    def _persist_run(self, run: Run) -> None:
        """Nothing is left to keep when the outermost span ends."""

    def _on_run_create(self, run: Run) -> None:
        kind = kind_of(run)
        if kind is None:
            return
        metadata = (run.extra or {}).get("metadata") or {}
        stage = run.inputs.get("stage") if kind == "node" else None
        self._write(
            {
                "record": "start",
                "id": str(run.id),
                "parent": None if run.parent_run_id is None else str(run.parent_run_id),
                "trace": str(run.trace_id),
                "kind": kind,
                "name": run.name,
                "time": round(run.start_time.timestamp(), 6),
                "node": metadata.get("langgraph_node"),
                "role": metadata.get("role"),
                "stage": stage if isinstance(stage, int) else None,
                "model": metadata.get("ls_model_name") if kind == "model" else None,
                "thread": metadata.get("thread_id"),
                "input": self._text(asked(run, kind)),
            }
        )

    def _on_run_update(self, run: Run) -> None:
        kind = kind_of(run)
        if kind is None:
            return
        ended = run.end_time or run.start_time
        message = last_message(run) if kind == "model" else {}
        usage = message.get("usage_metadata") or {"output_tokens": tool_tokens(run, kind)}
        self._write(
            {
                "record": "end",
                "id": str(run.id),
                "time": round(ended.timestamp(), 6),
                "seconds": round((ended - run.start_time).total_seconds(), 6),
                "input_tokens": usage.get("input_tokens"),
                "output_tokens": usage.get("output_tokens"),
                "finish_reason": finish_reason(run, message),
                "error": fault(run),
                "output": self._text(answered(run, kind, message)),
            }
        )

    def _text(self, text: str | None) -> str | None:
        return None if text is None or self._content == "outline" else shown(text, TEXT_SHOWN)

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps({**record, "session": self._session}, ensure_ascii=False, default=str)
        with self._lock:
            if self._failed:
                return
            try:
                if self._file is None:
                    self._file = self._begin()
                os.write(self._file, (line + "\n").encode())
            except OSError as error:
                self._failed = True
                self._trouble(f"trace: {self._path}: {error.strerror or error}; this session is traced no further")

    def _begin(self) -> int:
        """The open file, a session's first line in it; a line that a crash tore is ended."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        header = {
            "record": "session",
            "schema_version": TRACE_VERSION,
            "session": self._session,
            "time": round(time.time(), 6),
            "pid": os.getpid(),
            "content": self._content,
        }
        os.write(handle, b"\n" * torn + json.dumps(header).encode() + b"\n")
        return handle


@contextmanager
def step(name: str) -> Iterator[None]:
    """A part of a node as a span of its own, for whatever tracer listens; nothing where none does."""
    config = ensure_config()
    manager = get_callback_manager_for_config(config)
    if not manager.handlers or manager.parent_run_id is None:
        yield
        return
    manager.add_tags([STEP], inherit=False)
    span = manager.on_chain_start({"name": name}, {}, name=name)
    token = var_child_runnable_config.set(patch_config(config, callbacks=span.get_child()))
    try:
        yield
    except BaseException as error:
        span.on_chain_error(error)
        raise
    else:
        span.on_chain_end({})
    finally:
        var_child_runnable_config.reset(token)


def content_wanted(root: Path, setting: Content | None) -> Content | None:
    """What to trace of the run in a directory: the setting, else as it was traced before; None = nothing.

    An empty ``trace.jsonl`` asks for a full trace, which is how a run that Studio opens is traced from its start.
    """
    path = root / TRACE_FILE
    if setting is not None or not path.is_file():
        return setting
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    try:
        return "outline" if json.loads(first)["content"] == "outline" else "full"
    except (ValueError, KeyError, TypeError):
        return "full"


def kind_of(run: Run) -> str | None:
    """The kind of a span; None for what LangGraph runs within a node for itself, such as its routing."""
    if run.run_type in KINDS:
        return KINDS[run.run_type]
    if run.parent_run_id is None:
        return "run"
    if STEP in (run.tags or []):
        return "step"
    metadata = (run.extra or {}).get("metadata") or {}
    return "node" if run.name == metadata.get("langgraph_node") else None


def asked(run: Run, kind: str) -> str | None:
    """What a model or a tool was given."""
    if kind == "tool":
        return json.dumps(run.inputs, ensure_ascii=False, default=str)
    if kind != "model":
        return None
    batches = run.inputs.get("messages") or [[]]
    fields = [message.get("kwargs", {}) for message in batches[0]]
    return "\n\n".join(f"[{one.get('type')}]\n{_content(one.get('content'))}" for one in fields)


def answered(run: Run, kind: str, message: dict[str, Any]) -> str | None:
    """What a model or a tool gave back; of a node, which of the state's keys it wrote."""
    if kind == "model":
        calls = message.get("tool_calls") or []
        return "\n".join([_content(message.get("content")), *(json.dumps(call, ensure_ascii=False) for call in calls)])
    if kind == "tool":
        output = (run.outputs or {}).get("output")
        return _content(getattr(output, "content", output))
    return None


def tool_tokens(run: Run, kind: str) -> int | None:
    """Tokens that a tool says it generated."""
    output = (run.outputs or {}).get("output") if kind == "tool" else None
    try:
        found = json.loads(_content(getattr(output, "content", output)))
    except json.JSONDecodeError:
        return None
    tokens = found.get("generated_tokens") if isinstance(found, dict) else None
    return tokens if isinstance(tokens, int) else None


def last_message(run: Run) -> dict[str, Any]:
    """The answer's message as plain data; empty if there is none."""
    generations = (run.outputs or {}).get("generations") or [[]]
    message = generations[0][-1].get("message") if generations[0] else None
    return dict(message.get("kwargs") or {}) if isinstance(message, dict) else {}


def finish_reason(run: Run, message: dict[str, Any]) -> str | None:
    """How a model ended its answer, or how a span was left that went well until then."""
    left = next((how for name, how in LEFT.items() if (run.error or "").startswith(f"{name}(")), None)
    reason = (message.get("response_metadata") or {}).get("finish_reason")
    return left or (None if reason is None else str(reason))


def fault(run: Run) -> str | None:
    """What went wrong, in one line; waiting for a person and stopping on request are no faults."""
    if run.error is None or any(run.error.startswith(f"{name}(") for name in LEFT):
        return None
    return shown(" ".join(run.error.split("Traceback (most recent call last)", 1)[0].split()), ERROR_SHOWN)


def shown(text: str, limit: int) -> str:
    """The text, cut at the limit."""
    return text if len(text) <= limit else f"{text[:limit]} [{len(text) - limit} more characters]"


def _content(content: Any) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
