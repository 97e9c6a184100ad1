"""An environment that any model answers right half of the time, random weights included: ``trainer.coin:Coin``.

GRPO has a signal from its first step whatever the model knows, so that machinery can be checked without a trained one.
An answer is right if the code of its first character is even, and optimal if that of its last one is even as well.
It has what a stage and its completions need of an environment, and no more: nothing is to be designed in it.
"""

from __future__ import annotations

import hashlib

from pydantic import BaseModel

from envsim.api import Fault, Instance, Message, Style, Verdict


class CoinTask(Instance):
    """A number to be said something about."""

    number: int


class CoinConfig(BaseModel):
    """There is nothing to set."""


class Coin:
    name = "coin"
    config_model = CoinConfig
    instance_model = CoinTask
    outcomes = ("empty", "odd", "valid_suboptimal", "optimal")
    knob_groups = ()

    def tasks(self, n: int) -> list[CoinTask]:
        """n different tasks."""
        return [
            CoinTask(
                id=f"coin-{number}",
                hash=hashlib.sha256(str(number).encode()).hexdigest(),
                split="training",
                number=number,
            )
            for number in range(n)
        ]

    def cells(self) -> list[str]:
        return ["coin"]

    def cell(self, instance: CoinTask) -> str:  # noqa: ARG002 - all tasks are alike
        return "coin"

    def prompt(self, instance: CoinTask, style: Style) -> list[Message]:
        question = f"toss {instance.number}"
        return [{"role": "user", "content": question if style == "compact" else f"Please {question}."}]

    def reference_answer(self, instance: CoinTask, style: Style) -> str:  # noqa: ARG002 - it is right for all of them
        return "0"

    def score(self, instance: CoinTask, answer: str) -> Verdict:  # noqa: ARG002 - so are their right answers
        if not answer:
            return Verdict(outcome="empty", valid=False, optimal=False, regret=1.0, fault=Fault(step=0))
        if ord(answer[0]) % 2:
            return Verdict(outcome="odd", valid=False, optimal=False, regret=1.0, fault=Fault(step=0))
        optimal = ord(answer[-1]) % 2 == 0
        outcome = "optimal" if optimal else "valid_suboptimal"
        return Verdict(outcome=outcome, valid=True, optimal=optimal, regret=0.0 if optimal else 1.0)
