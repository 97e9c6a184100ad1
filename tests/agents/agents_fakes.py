"""Scripted stand-ins for a checkpoint: one that says given texts, one whose success depends on the task."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.schemas import CellEvidence, Evidence, FailureExample
from envsim.api import Environment, Message
from trainer.policy import Completion


def characters(prompt: Sequence[Message]) -> int:
    return sum(len(message["content"]) for message in prompt)


@dataclass
class ScriptedPolicy:
    """Says ``texts`` one after the other, the last one for ever; keeps every call."""

    texts: list[str]
    finish_reason: str = "stop"
    calls: list[dict[str, Any]] = field(default_factory=list)

    def generate(self, prompts: Sequence[list[Message]], **arguments: Any) -> list[list[Completion]]:
        self.calls.append({"prompts": list(prompts), **arguments})
        text = self.texts[min(len(self.calls), len(self.texts)) - 1]
        reason = self.finish_reason if len(self.calls) == 1 else "stop"
        given = {"text": text, "tokens": len(text), "finish_reason": reason}
        return [
            [Completion.model_validate(given | {"prompt_tokens": characters(prompt)})] * arguments.get("samples", 1)
            for prompt in prompts
        ]


@dataclass
class SkillPolicy:
    """Solves a known task with a probability of its own, else stays where it is; the same seed, the same answers."""

    environment: Environment
    skill: Callable[[Any], float]
    tasks: dict[str, Any] = field(default_factory=dict)

    def know(self, instances: Sequence[Any]) -> None:
        for instance in instances:
            self.tasks[self.environment.prompt(instance, "compact")[-1]["content"]] = instance

    def generate(
        self, prompts: Sequence[list[Message]], *, samples: int = 1, seed: int = 0, **_: Any
    ) -> list[list[Completion]]:
        answers = []
        for prompt in prompts:
            task = self.tasks[prompt[-1]["content"]]
            right = self.environment.reference_answer(task, "compact")
            wrong = self.environment.null_answers(task, "compact", 0)["all_stay"]
            rng = random.Random(f"{seed}/{task.id}")
            texts = [right if rng.random() < self.skill(task) else wrong for _ in range(samples)]
            answers.append(
                [
                    Completion(text=text, prompt_tokens=characters(prompt), tokens=len(text), finish_reason="stop")
                    for text in texts
                ]
            )
        return answers


def evidence_of(environment: Environment, valid: Sequence[float], **changes: Any) -> Evidence:
    """Evidence with these valid rates by cell and the default configuration's knobs."""
    knobs = environment.knobs(environment.default_config())
    cells = [
        CellEvidence(
            cell=cell,
            n=40,
            valid=rate,
            optimal=rate / 2,
            change=None,
            top_fault="hole" if rate < 1 else None,
            knobs={path.rpartition(".")[2]: knob.value for path, knob in knobs.items() if path.startswith(f"{cell}.")},
            outcomes={"hole": 40 - round(40 * rate)},
            mean_first_fault_step=2.0,
        )
        for cell, rate in zip(environment.cells(), valid, strict=True)
    ]
    failure = FailureExample(
        id="e1", instance="plan 3 2", cell="3x3", outcome="hole", kind="typical", where="step 1", answer="(0,0)"
    )
    whole = Evidence(
        stage=1,
        model_sha256="0" * 64,
        macro_valid=sum(valid) / len(valid),
        macro_optimal=sum(valid) / len(valid) / 2,
        zero_variance_share=0.5,
        no_signal=False,
        cells=cells,
        outcomes={"hole": 10},
        failures=[failure],
        anchor=dict(zip(environment.cells(), valid, strict=True)),
        history=[],
    )
    return whole.model_copy(update=changes)
