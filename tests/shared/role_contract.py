"""What asking a role promises, whatever answers: the same cases for a scripted stand-in, xgrammar in process, and vLLM.

``check`` runs them all on one maker of chat models. A real back end has no use for the texts; a scripted one says them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from role_sets import HISTORIAN

from agents import teacher
from agents.checks import semantic_checks
from agents.episodes import answer_text
from agents.parsing import parse_object
from agents.render import render_messages
from agents.roles import load_roles
from agents.rolespec import RoleSpec
from agents.schemas import CellEvidence, Critique, Evidence, FailureExample, GateReport
from agents.structured import RoleAnswer, RoleFailure, ask, output_schema, read_answer
from envsim import registry

Maker = Callable[[Sequence[str]], BaseChatModel]

LAKE = registry.get("lake")
CONFIG = LAKE.default_config()
BOUNDS = {"steps_low": 80, "steps_high": 110}
VALID = (0.6, 0.4, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0)


def evidence() -> Evidence:
    knobs = LAKE.knobs(CONFIG)
    cells = [
        CellEvidence(
            cell=cell,
            n=40,
            valid=valid,
            optimal=valid / 2,
            change=None,
            top_fault="hole",
            knobs={path.rpartition(".")[2]: knob.value for path, knob in knobs.items() if path.startswith(f"{cell}.")},
            outcomes={"hole": 20},
            mean_first_fault_step=2.0,
        )
        for cell, valid in zip(LAKE.cells(), VALID, strict=True)
    ]
    failure = FailureExample(
        id="e1", instance="plan 3 2", cell="3x3", outcome="hole", kind="typical", where="step 1", answer="(0,0)"
    )
    return Evidence(
        stage=1,
        model_sha256="0" * 64,
        macro_valid=0.1,
        macro_optimal=0.1,
        zero_variance_share=0.5,
        no_signal=False,
        cells=cells,
        outcomes={"hole": 10},
        failures=[failure],
        anchor=dict(zip(LAKE.cells(), VALID, strict=True)),
        history=[],
    )


SEEN = evidence()
DIAGNOSIS = teacher.diagnose(SEEN)
PROPOSAL = teacher.propose(SEEN, DIAGNOSIS, LAKE.knobs(CONFIG), None, [])
RULES: dict[str, Any] = {
    "failure_analyst": DIAGNOSIS,
    "config_designer": PROPOSAL,
    "safety_critic": Critique(reason="follows the evidence", verdict="approve", conditions=[]),
    "trainer": teacher.budget(SEEN, **BOUNDS),
}
INPUTS = {
    "evidence": SEEN,
    "diagnosis": DIAGNOSIS,
    "proposal": PROPOSAL,
    "gate_report": GateReport(passed=True, findings=[], probe={}, probe_tokens=0),
    "conditions": [],
    "bounds": BOUNDS,
}
HISTORIAN_ROLE = RoleSpec.model_validate(HISTORIAN)
NOTE = HISTORIAN_ROLE.output_type.model_validate({"trend": "flat", "advice": "go on"})


def question(model: BaseChatModel, role: RoleSpec, **more: Any) -> RoleAnswer[Any]:
    """One role asked as the run asks it, in the compact style."""
    schema = output_schema(role.output_type, LAKE, CONFIG, style="compact", evidence_ids=["e1"], bounds=BOUNDS)
    checks = semantic_checks(LAKE, CONFIG, style="compact", evidence=SEEN, bounds=BOUNDS)
    if role.prompt is None or role.name not in RULES:
        messages = [{"role": "user", "content": "stages 0"}]
    else:
        messages = render_messages(role, "compact", {name: INPUTS[name] for name in role.inputs})
    arguments = {"validate": checks, "style": "compact", "seed": 1} | more
    return ask(model, role, messages, schema, role.output_type, **arguments)


def limited(role: RoleSpec, tokens: int, repairs: int = 1) -> RoleSpec:
    limits = role.limits
    fewer = limits.max_new_tokens.model_copy(update={"compact": tokens})
    return role.model_copy(
        update={"limits": limits.model_copy(update={"max_new_tokens": fewer, "max_repairs": repairs})}
    )


def assert_accounted(answer: RoleAnswer[Any], role: RoleSpec) -> None:
    """What holds of every answer: nothing unvalidated in it, every attempt kept and paid for."""
    schema = output_schema(role.output_type, LAKE, CONFIG, style="compact", evidence_ids=["e1"], bounds=BOUNDS)
    checks = semantic_checks(LAKE, CONFIG, style="compact", evidence=SEEN, bounds=BOUNDS)
    assert 1 <= len(answer.attempts) <= role.limits.max_repairs + 1
    assert answer.tokens == sum(attempt.output_tokens for attempt in answer.attempts) > 0
    assert all(attempt.input_tokens > 0 for attempt in answer.attempts)
    assert all(attempt.errors for attempt in answer.attempts[:-1])
    assert answer.errors == answer.attempts[-1].errors
    assert answer.fallback == bool(answer.errors)
    if not answer.fallback:
        parsed, errors = read_answer(answer.raw, schema, role.output_type, checks)
        assert (parsed, errors) == (answer.parsed, [])
    answer.model_dump_json().encode()


def check(make: Maker) -> None:
    """Every case on one back end."""
    roles = load_roles()
    for name, rule in RULES.items():
        role = limited(roles[name], 512, repairs=2)
        answer = question(make([answer_text(rule)]), role, rule=lambda rule=rule: rule)
        assert_accounted(answer, role)
        assert isinstance(answer.parsed, role.output_type)
        # Under the constraint an answer that was finished is of the schema's form.
        for attempt in answer.attempts:
            if attempt.finish_reason == "stop":
                assert isinstance(parse_object(attempt.raw), dict)
    check_notes(make)
    check_the_end_of_patience(make, roles["trainer"])


def check_notes(make: Maker) -> None:
    """A form of a user's own is held as strictly, and no rule speaks where a note fails."""
    role = limited(HISTORIAN_ROLE, 64)
    answer = question(make([NOTE.model_dump_json()]), role)
    assert_accounted(answer, role)
    assert not answer.fallback, answer.attempts
    assert answer.parsed.trend in ("rising", "flat", "falling")
    assert question(make([NOTE.model_dump_json()]), role) == answer, "the same question has the same answer"
    cut = limited(HISTORIAN_ROLE, 2)
    nothing = question(make(["{"]), cut)
    assert (nothing.parsed, nothing.fallback, len(nothing.attempts)) == (None, True, 2)


def check_the_end_of_patience(make: Maker, role: RoleSpec) -> None:
    """Cut off, or never content: bounded repair, then the role's failure policy."""
    rule = RULES["trainer"]
    cut = limited(role, 2)
    answer = question(make(["{"]), cut, rule=lambda: rule)
    assert (answer.parsed, answer.fallback, len(answer.attempts)) == (rule, True, 2)
    strict = cut.model_copy(update={"on_failure": "stop"})
    with pytest.raises(RoleFailure) as failure:
        question(make(["{"]), strict)
    assert failure.value.role == "trainer"
    hard = limited(role, 256, repairs=2)
    refused = question(make([answer_text(rule)]), hard, rule=lambda: rule, validate=lambda _: ["steps: never right"])
    assert (refused.parsed, refused.fallback, len(refused.attempts)) == (rule, True, 3)
    assert all(attempt.errors for attempt in refused.attempts)
