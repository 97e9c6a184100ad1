"""Role answers, findings and figures in one line each: the same words on the terminal, in the log and in the report."""

from __future__ import annotations

from typing import Any

from agents.designers import designer_title
from agents.gates import NOT_ENFORCED


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def points(value: float) -> str:
    return f"{100 * value:.1f}"


def whole(value: float) -> str:
    return f"{100 * value:.0f}"


def signed(value: float) -> str:
    return f"{100 * value:+.1f}"


def seconds(value: float | None) -> str:
    """A time that a person reads at a glance."""
    if value is None:
        return "–"
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    hours, rest = divmod(round(value), 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"


def clipped(text: str, length: int = 200) -> str:
    """One line of bounded length: text of a model may be anything."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else flat[: length - 3] + "..."


def change(data: dict[str, Any]) -> str:
    value = data.get("value")
    return f"{data['path']} {data['op']}" + (f" {value:g}" if value is not None else "")


def answer(parsed: dict[str, Any] | None) -> str:
    """One line of any role's parsed answer."""
    if parsed is None:
        return "no usable answer"
    if "dominant_fault" in parsed:
        standings = [f"{cell} {standing}" for cell, standing in parsed["cells"].items()]
        return f"{parsed['summary']} [{parsed['dominant_fault']}; {', '.join(standings)}]"
    if "changes" in parsed:
        moves = ", ".join(change(one) for one in parsed["changes"]) or "no change"
        return f"{parsed['rationale']} [{moves}]"
    if "verdict" in parsed:
        conditions = ", ".join(change(one) for one in parsed["conditions"])
        return f"{parsed['verdict']}: {parsed['reason']}" + (f" [{conditions}]" if conditions else "")
    if "steps" not in parsed:
        return "; ".join(f"{name}: {value}" for name, value in parsed.items())
    return f"{parsed['steps']} steps, learning rate x{parsed['learning_rate_scale']:g}: {parsed['reason']}"


def gates(report: dict[str, Any]) -> str:
    """One line of a gate report: what failed with its figures, or that all passed."""
    failed = [finding for finding in report["findings"] if not finding["passed"]]
    if not failed and not report.get("enforced", True):
        told = [one for one in report["findings"] if one["reason"].startswith(NOT_ENFORCED)]
        listed = "; ".join(f"{one['gate']} {one['reason']}" for one in told)
        return f"gates are off; {listed or 'all would have passed'}"
    if not failed:
        return f"all {len(report['findings'])} gates passed"
    return "; ".join(f"{one['gate']} failed: {one['reason']}" for one in failed)


def designer(spec: Any) -> str:
    """A designer's short name; of one that is not known here, what the settings say."""
    try:
        return designer_title(spec)
    except (AttributeError, TypeError, ValueError):
        return str(spec)
