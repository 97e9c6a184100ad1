"""The tools of a role in a run: over the last accepted configuration, the current checkpoint and the open sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents.places import part_of
from agents.rolespec import TOOL_RESULTS, RoleSpec
from agents.schemas import Cost
from graph import layout
from graph.state import RunState
from graph.work import Work
from tools.calling import call_as_text
from tools.context import ToolContext
from tools.log import ToolCall, ToolLog
from tools.registry import entry, toolbox
from trainer.evaluate import failures_path
from trainer.spec import EvalReport

OPEN_SETS = ("validation", "anchor")


def tool_log(work: Work, state: RunState, role: RoleSpec) -> ToolLog:
    """A log whose every call becomes an event of the run."""

    def tell(call: ToolCall) -> None:
        work.reporter.event(
            "tool", stage=state["stage"], revision=state["revision"], role=role.name, **call.model_dump(mode="json")
        )

    return ToolLog(tell=tell)


def tool_context(work: Work, state: RunState, role: RoleSpec, max_rollouts: int) -> ToolContext:
    """What the role's tools may touch at its place in the stage, and nothing of a later one."""
    stage, current = state["stage"], state["current"]
    looks_back = part_of(work.roles, role.name) == "design"
    proposed = layout.in_round(stage, state["revision"], "config.json")
    probe = work.profile.probe
    return ToolContext(
        environment=work.environment,
        config=work.config(state["config"]),
        proposed=None if looks_back or not work.run.exists(proposed) else work.config(proposed),
        policy=lambda: work.policy(current),
        style=work.profile.style,
        generation=work.profile.generation.model_copy(update={"temperature": probe.temperature}),
        samples=probe.samples,
        seed=work.seed(stage, "tools", role.name),
        failures=failures_path(work.run.path(layout.eval_dir(current["stage"])), "validation"),
        history=work.run.read(layout.in_stage(stage, "evidence.json"))["history"],
        evaluate=lambda name: evaluated(work, state, name),
        max_rollouts=max_rollouts,
        progress=lambda *_: work.reporter.check(),
    )


def evaluated(work: Work, state: RunState, set_name: str) -> EvalReport:
    """The current checkpoint's report on a set that roles may see. Raises ValueError for any other set."""
    if set_name not in OPEN_SETS:
        raise ValueError(f"the set {set_name!r} is sealed to roles; expected {' or '.join(OPEN_SETS)}")
    return work.evaluate(state["current"], set_name)


def called_before(work: Work, state: RunState, role: RoleSpec, file: str) -> dict[str, Any]:
    """The results of the role's fixed calls under the name that its template knows; nothing if it has none.

    They lie beside the answer, so that the same calls are made once.
    """
    if not role.tools_before:
        return {}
    inputs = {
        "calls": [call.model_dump(mode="json") for call in role.tools_before],
        "limits": role.limits.model_dump(mode="json"),
        "config": work.run.read(state["config"]),
        "policy": state["current"]["sha256"],
        "seed": work.seed(state["stage"], "tools", role.name),
        "revision": state["revision"],
    }

    def make() -> dict[str, Any]:
        log = tool_log(work, state, role)
        context = tool_context(work, state, role, role.limits.max_rollouts)
        tools = toolbox({call.tool for call in role.tools_before}, context, log)
        most = role.limits.max_result_characters
        with work.clock.span("roles"):
            results = {
                call.key: call_as_text(tools, log, call.tool, call.args, most_characters=most)
                for call in role.tools_before
            }
        return {"results": results, "tool_calls": dumped(log)}

    return {TOOL_RESULTS: work.run.once(layout.tool_results(file), inputs, make)["results"]}


def made_before(work: Work, role: RoleSpec, file: str) -> list[Mapping[str, Any]]:
    """The role's fixed calls as they were logged, once ``called_before`` has made them."""
    return list(work.run.read(layout.tool_results(file))["tool_calls"]) if role.tools_before else []


def cost_of_calls(calls: Iterable[Mapping[str, Any]]) -> Cost:
    """What the policy had to answer for logged calls."""
    calls = list(calls)
    return Cost(
        probe_rollouts=sum(call.get("rollouts", 0) for call in calls),
        probe_tokens=sum(call["tokens"] for call in calls),
    )


def may_call(role: RoleSpec) -> list[str]:
    """The tools that the role's model may call by itself."""
    return [name for name in role.tools if not entry(name).with_answer]


def dumped(log: ToolLog) -> list[Mapping[str, Any]]:
    return [call.model_dump(mode="json") for call in log.calls]
