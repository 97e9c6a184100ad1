"""A role speaks: its inputs become a prompt, its answer a file; the same question is never asked twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from agents.chat import chat_model
from agents.checks import semantic_checks
from agents.render import render_messages
from agents.rolespec import RoleSpec
from agents.schemas import Evidence
from agents.structured import RoleFailure, ask, output_schema
from graph import layout, words
from graph.state import RunState
from graph.work import Work, named_pointers


def speak(
    work: Work,
    state: RunState,
    role: RoleSpec,
    file: str,
    inputs: Mapping[str, Any],
    *,
    config: Any,
    evidence: Evidence,
    rule: Callable[[], BaseModel],
    bounds: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """The role's recorded answer: RoleAnswer as JSON, and who gave it in ``by``.

    ``config`` is the configuration that the answer's paths belong to. Raises RoleFailure under ``on_failure: stop``.
    """
    style = work.profile.style
    role = capped(role, work.profile.roles.max_new_tokens)
    messages = render_messages(role, style, {name: inputs[name] for name in role.inputs})
    ids = [failure.id for failure in evidence.failures]
    schema = output_schema(role.output_type, work.environment, config, style=style, evidence_ids=ids, bounds=bounds)
    checks = semantic_checks(work.environment, config, style=style, evidence=evidence, bounds=bounds)
    seed = work.seed(state["stage"], role.name, state["revision"])
    pointer = named_pointers(work, state).get(role.model) if isinstance(role.model, str) else None
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
        with work.clock.span("roles"), work.reporter.bar(f"{role.name.replace('_', ' ')} speaks"):
            given = ask(model, role, messages, schema, role.output_type, checks, style=style, rule=rule, seed=seed)
        return {"by": role.name, "seen": messages, **given.model_dump(mode="json")}

    return recorded(work, file, role.name, asked, answer)


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
