"""A tiny environment for the trainer's tests: an answer is valid if its first character has an even code.

An untrained model over bytes is right about half the time, so GRPO has a signal from the first step.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from envsim.api import Fault, Instance, Message, Replay, Style, Verdict


class ToyInstance(Instance):
    number: int


class ToyConfig(BaseModel):
    pass


class Toy:
    name = "toy"
    config_model = ToyConfig
    instance_model = ToyInstance
    outcomes = ("empty", "odd", "valid_suboptimal", "optimal")

    def instances(self, n: int, start: int = 0) -> list[ToyInstance]:
        return [
            ToyInstance(id=f"toy-{number}", hash=f"{number:08x}", split="training", number=number)
            for number in range(start, start + n)
        ]

    def frozen_set(self, name: str) -> list[ToyInstance]:
        return self.instances(10, start=1000 + len(name))

    def cells(self) -> list[str]:
        return ["even", "odd"]

    def cell(self, instance: ToyInstance) -> str:
        return "odd" if instance.number % 2 else "even"

    def prompt(self, instance: ToyInstance, style: Style) -> list[Message]:
        text = f"say {instance.number}"
        return [{"role": "user", "content": text if style == "compact" else text + " please"}]

    def reference_answer(self, instance: ToyInstance, style: Style) -> str:
        return "b" if style == "compact" else "b" * (instance.number + 1)

    def demonstration(self, _: ToyInstance, __: Style, seed: int, careless: float = 0.0) -> str:
        return random.Random(seed).choice("bdfhjl") + ("!" if careless == 0 else "")

    def score(self, instance: ToyInstance, answer: str) -> Verdict:
        assert isinstance(instance, ToyInstance)
        if not answer:
            return Verdict(outcome="empty", valid=False, optimal=False, regret=1.0, fault=Fault(step=0))
        if ord(answer[0]) % 2:
            return Verdict(outcome="odd", valid=False, optimal=False, regret=1.0, fault=Fault(step=0))
        optimal = len(answer) <= 2
        outcome = "optimal" if optimal else "valid_suboptimal"
        return Verdict(outcome=outcome, valid=True, optimal=optimal, regret=0.0 if optimal else 0.5)

    def replay(self, instance: ToyInstance, answer: str) -> Replay:
        verdict = self.score(instance, answer)
        return Replay(states=["start", *answer], actions=list(answer), rewards=[0.0] * len(answer), verdict=verdict)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the toy environment has no {name}")


class Slow(Toy):
    """Takes its time over each verdict, so that something can happen to a stage in the middle."""

    def score(self, instance: ToyInstance, answer: str) -> Verdict:
        time.sleep(0.04)
        return super().score(instance, answer)


class Patient(Toy):
    """Takes its time over each demonstration."""

    def demonstration(self, task: ToyInstance, style: Style, seed: int, careless: float = 0.0) -> str:
        time.sleep(0.02)
        return super().demonstration(task, style, seed, careless)


class Mortal(Toy):
    """Kills its process with SIGKILL at the 50th verdict, once: the file that it leaves saves the next process."""

    def __init__(self) -> None:
        self._verdicts = 0

    def score(self, instance: ToyInstance, answer: str) -> Verdict:
        self._verdicts += 1
        mark = Path(os.environ["TOY_MARK"])
        if self._verdicts == 50 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(instance, answer)


class Small(Toy):
    """Makes its process one whose memory holds the passes of at most three completions when there is a gradient."""

    def __init__(self) -> None:
        torch.nn.modules.module.register_module_forward_pre_hook(_hold_three)


class SecondIsSmall(Small):
    """As `Small`, in the second of several processes alone."""

    def __init__(self) -> None:
        if os.environ.get("RANK") == "1":
            super().__init__()


def _hold_three(module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
    if isinstance(module, torch.nn.Embedding) and torch.is_grad_enabled() and arguments[0].shape[0] > 3:
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to embed {arguments[0].shape[0]} rows")
