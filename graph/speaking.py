"""A role speaks: its inputs become a prompt, its answer a file; the same question is never asked twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel

from agents.chat import chat_model, tool_model
from agents.checks import semantic_checks
from agents.consulting import consult
from agents.entrypoints import load_entrypoint, source_of
from agents.render import render_messages, to_plain
from agents.rolespec import ExternalModel, RoleSpec
from agents.schemas import Cost, Evidence
from agents.structured import Attempt, RoleFailure, ask, call, output_schema
from envsim.api import Message
from graph import layout, words
from graph.room import fitted
from graph.state import RunState
from graph.toolbox import called_before, cost_of_calls, dumped, made_before, may_call, tool_context, tool_log
from graph.work import Work, named_pointers
from tools.registry import toolbox
from trainer.policy import PolicyError


def speak(
    work: Work,
    state: RunState,
    role: RoleSpec,
    file: str,
    inputs: Mapping[str, Any],
    *,
    config: Any,
    evidence: Evidence,
    rule: Callable[[], BaseModel] | None,
    bounds: Mapping[str, int] | None = None,
    take: int = 0,
) -> dict[str, Any]:
    """The role's recorded answer: RoleAnswer as JSON, who gave it in ``by``, and in ``cost`` all that it cost, repairs
    and tools included; ``tokens`` are those that its model generated.

    ``config`` is the configuration that the answer's paths belong to; ``rule`` is None for a note; another ``take`` is
    another sample of the same question. Raises RoleFailure under ``on_failure: stop``.
    """
    style = work.profile.style
    role = capped(role, work.profile.roles.max_new_tokens)
    pointer = named_pointers(work, state).get(role.model) if isinstance(role.model, str) else None
    given = {name: inputs[name] for name in role.inputs}
    if role.entrypoint is None:
        given = fitted(work, role, given | called_before(work, state, role, file), pointer)
        evidence = given.get("evidence", evidence)
    ids = [failure.id for failure in evidence.failures]
    schema = output_schema(role.output_type, work.environment, config, style=style, evidence_ids=ids, bounds=bounds)
    checks = semantic_checks(work.environment, config, style=style, evidence=evidence, bounds=bounds)
    if role.entrypoint is not None:
        return recorded(work, file, role.name, *by_code(work, role, to_plain(given), schema, checks, rule))
    messages = render_messages(role, style, given)
    seed = work.seed(state["stage"], role.name, state["revision"], *([take] if take else []))
    asked = {
        "messages": messages,
        "schema": schema,
        "seed": seed,
        "role": role.model_dump(mode="json"),
        "model": pointer["sha256"] if pointer else None,
    }

    def answer() -> dict[str, Any]:
        policies = {str(role.model): work.policy(pointer)} if pointer else {}
        model = chat_model(role.model, policies)
        looked = Looked(messages)
        with work.clock.span("roles"), work.reporter.bar(f"{role.name.replace('_', ' ')} speaks"):
            try:
                if may_call(role):
                    looked = look(work, state, role, file, tool_model(role.model, policies, seed=seed), messages)
                given = ask(
                    model, role, looked.messages, schema, role.output_type, checks, style=style, rule=rule, seed=seed
                )
            except PolicyError as error:
                raise PolicyError(f"role {role.name}: {error}") from error
        told = given.model_dump(mode="json")
        cost = spoken(given.attempts) + looked.cost + cost_of_calls(made_before(work, role, file))
        shown = {"tokens": told["tokens"] + looked.written, "cost": cost.model_dump(mode="json")}
        return {"by": role.name, **played_by(role), "seen": messages, **told, **looked.record, **shown}

    return recorded(work, file, role.name, asked, answer)


def played_by(role: RoleSpec) -> dict[str, str]:
    """Which model spoke, if it is not the checkpoint that is being trained."""
    if isinstance(role.model, ExternalModel):
        return {"model": f"{role.model.name} at {role.model.base_url}"}
    return {} if role.model == "inherit" else {"model": role.model}


def by_code(  # noqa: PLR0917  what is called, then how its answer is read
    work: Work,
    role: RoleSpec,
    inputs: dict[str, Any],
    schema: dict[str, Any],
    checks: Callable[[BaseModel], list[str]],
    rule: Callable[[], BaseModel] | None,
) -> tuple[dict[str, Any], Callable[[], dict[str, Any]]]:
    """What decides the answer of a role of kind python, and how it is had."""
    entrypoint = str(role.entrypoint)
    asked = {
        "inputs": inputs,
        "schema": schema,
        "role": role.model_dump(mode="json"),
        "source": source_of(entrypoint),
    }

    def answer() -> dict[str, Any]:
        with work.clock.span("roles"):
            given = call(load_entrypoint(entrypoint), role, inputs, schema, role.output_type, checks, rule=rule)
        return {"by": role.name, **given.model_dump(mode="json"), "cost": Cost().model_dump(mode="json")}

    return asked, answer


def spoken(attempts: Sequence[Attempt]) -> Cost:
    """What the calls of a model for its answer cost."""
    return Cost(
        input_tokens=sum(one.input_tokens for one in attempts), output_tokens=sum(one.output_tokens for one in attempts)
    )


class Looked(NamedTuple):
    """The conversation that a role answers from, what is kept of its tool calls, what they and the turns that asked
    for them cost, and the tokens that its model wrote in these turns."""

    messages: Sequence[Any]
    record: Mapping[str, Any] = MappingProxyType({})
    cost: Cost = Cost()
    written: int = 0


def look(  # noqa: PLR0917  the visit, then who is asked what
    work: Work, state: RunState, role: RoleSpec, file: str, model: BaseChatModel, messages: Sequence[Message]
) -> Looked:
    """Let the role's model call its tools, within what its limits leave after the calls before it spoke."""
    log = tool_log(work, state, role)
    limits = role.limits
    left = limits.max_rollouts - cost_of_calls(made_before(work, role, file)).probe_rollouts
    found = consult(
        model,
        messages,
        toolbox(may_call(role), tool_context(work, state, role, left), log),
        log,
        max_calls=limits.max_tool_calls,
        max_new_tokens=getattr(limits.max_new_tokens, work.profile.style),
        most_characters=limits.max_result_characters,
    )
    calls = dumped(log)
    cost = Cost(input_tokens=found.input_tokens, output_tokens=found.output_tokens) + cost_of_calls(calls)
    return Looked(found.messages, {"tool_calls": calls}, cost, found.output_tokens)


def capped(role: RoleSpec, most: int) -> RoleSpec:
    """The role with answers no longer than the profile's model may speak."""
    limit = role.limits.max_new_tokens
    shorter = limit.model_copy(update={"compact": min(limit.compact, most), "full": min(limit.full, most)})
    return role.model_copy(update={"limits": role.limits.model_copy(update={"max_new_tokens": shorter})})


def recorded(work: Work, file: str, role: str, inputs: Any, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An answer made once from its inputs, and said aloud when it is new.

    Raises RoleFailure under ``on_failure: stop``; what the role said lies beside the answer's place by then.
    """
    known = work.run.made(file, inputs)
    try:
        given: dict[str, Any] = work.run.once(file, inputs, answer)
    except RoleFailure as failure:
        log = layout.failed(file)
        work.run.write(log, {"role": failure.role, "errors": failure.errors, "raw": failure.raw})
        work.reporter.event("role_failed", role=failure.role, errors=failure.errors, file=log)
        work.reporter.line(f"what {failure.role} said: {work.run.path(log)}", indent=2)
        raise
    if not known:
        text = words.answer(given["parsed"])
        work.reporter.say(role, text, fallback=given["fallback"], by=given["by"], tokens=given["tokens"])
    return given


def parsed(answer: Mapping[str, Any] | None, model: type[BaseModel]) -> Any:
    """The validated output of a recorded answer, None if there is none."""
    return None if answer is None else model.model_validate(answer["parsed"])
