"""Every call of a tool is counted: what was asked, a digest of what came back, what it cost."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import StructuredTool
from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Frozen):
    """One call. ``error`` is the refusal that the caller got, None if it went well; seconds are wall time."""

    name: str
    args: dict[str, Any]
    result_sha256: str
    seconds: float
    tokens: int
    error: str | None = None


@dataclass
class ToolLog:
    """The calls of one run, in order."""

    calls: list[ToolCall] = field(default_factory=list)

    def tokens(self) -> int:
        """Generated tokens of all calls."""
        return sum(call.tokens for call in self.calls)


@dataclass(frozen=True)
class ToolResult:
    """What a tool's function gives back: plain JSON, and the tokens that it generated."""

    data: dict[str, Any]
    tokens: int = 0


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
            text = json.dumps(result.data, sort_keys=True, allow_nan=False)
            log.calls.append(
                ToolCall(
                    name=name,
                    args=request.model_dump(mode="json"),
                    result_sha256=hashlib.sha256(text.encode()).hexdigest(),
                    seconds=time.monotonic() - started,
                    tokens=result.tokens,
                    error=error,
                )
            )
        return text

    return StructuredTool.from_function(func=run, name=name, description=description, args_schema=args)
