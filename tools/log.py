"""Every call of a tool is counted: what was asked, a digest of what came back, what it cost."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Frozen):
    """One call. ``error`` is the refusal that the caller got, None if it went well; seconds are wall time."""

    name: str
    args: dict[str, Any]
    result_sha256: str
    seconds: float
    tokens: int
    """Tokens that the policy generated for it."""
    rollouts: int = Field(0, exclude_if=lambda n: n == 0)
    """Answers of the policy that it took."""
    error: str | None = None


@dataclass
class ToolLog:
    """The calls of one visit or of one run, in order. ``tell`` hears of each when it is over."""

    calls: list[ToolCall] = field(default_factory=list)
    tell: Callable[[ToolCall], None] | None = None

    def add(self, call: ToolCall) -> None:
        self.calls.append(call)
        if self.tell is not None:
            self.tell(call)

    def tokens(self) -> int:
        """Generated tokens of all calls."""
        return sum(call.tokens for call in self.calls)

    def rollouts(self) -> int:
        """Answers of the policy that all calls took."""
        return sum(call.rollouts for call in self.calls)


@dataclass(frozen=True)
class ToolResult:
    """What a tool's function gives back: plain JSON, the tokens that it generated, and the answers that they made."""

    data: dict[str, Any]
    tokens: int = 0
    rollouts: int = 0


def table(columns: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Figures by row, such as a cell, with their names told once: a role pays for each character of a result."""
    return {"columns": list(columns), "rows": {name: list(values) for name, values in rows.items()}}


def logged_tool(
    log: ToolLog,
    *,
    name: str,
    description: str,
    args: type[BaseModel],
    call: Callable[[Any], ToolResult],
    refusals: tuple[type[Exception], ...] = (),
) -> StructuredTool:
    """A langchain tool with typed arguments whose result is JSON text and whose every call is in the log.

    Exceptions named in ``refusals`` are bad input of the caller: they come back as ``{"error": ...}``, so that a role
    can read them. All others propagate, after being logged.
    """

    def run(**values: Any) -> str:
        started = time.monotonic()
        request = args.model_validate(values)
        error = None
        result = ToolResult({})
        try:
            result = call(request)
        except refusals as refusal:
            error = str(refusal)
            result = ToolResult({"error": error})
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            text = json.dumps(result.data, allow_nan=False)
            log.add(
                ToolCall(
                    name=name,
                    args=request.model_dump(mode="json"),
                    result_sha256=sha256(text),
                    seconds=time.monotonic() - started,
                    tokens=result.tokens,
                    rollouts=result.rollouts,
                    error=error,
                )
            )
        return text

    return StructuredTool.from_function(func=run, name=name, description=description, args_schema=args)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
