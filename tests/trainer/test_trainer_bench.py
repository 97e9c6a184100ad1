"""The figures are of the real thing: each is taken at a small size, and what times calls leaves them as they were."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from trainer.bench import spans
from trainer.bench.evaluation import Passes
from trainer.bench.spans import Spans
from trainer.policy import Completion


def answer(prompt_tokens: int, tokens: int) -> Completion:
    return Completion(text="", prompt_tokens=prompt_tokens, tokens=tokens, finish_reason="stop")


class Owner:
    inner: Any
    outer: Any


def test_spans_are_exclusive_and_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(spans.time, "perf_counter", lambda: now[0])

    def takes(seconds: float) -> None:
        now[0] += seconds

    owner = Owner()
    owner.inner = lambda: takes(2)
    owner.outer = lambda: (takes(1), owner.inner())
    before = owner.inner, owner.outer
    found = Spans()
    with found.watching({(owner, "inner"): "inner", (owner, "outer"): "outer"}):
        for step in (1, 2, 3):
            found.step = step
            owner.outer()
            if step == 3:
                owner.inner()
    assert (owner.inner, owner.outer) == before
    assert found.medians(range(1, 4)) == {"outer": 1, "inner": 2}
    assert found.medians(range(3, 4)) == {"outer": 1, "inner": 4}


def test_padding_is_what_passes_through_the_embedding_and_is_no_answer() -> None:
    embedding, passes = torch.nn.Embedding(10, 2), Passes()
    with passes.counting():
        embedding(torch.zeros(2, 5, dtype=torch.long))
        for _ in range(3):
            embedding(torch.zeros(2, 1, dtype=torch.long))
    embedding(torch.zeros(2, 5, dtype=torch.long))
    assert (passes.prompt, passes.answer) == (10, 6)
    answers = [answer(5, 4), answer(3, 2)]
    assert passes.prompt_waste(answers) == pytest.approx(0.2)
    assert passes.answer_waste(answers) == pytest.approx(1 - 4 / 6)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "no figure 'speed', expected some of stage, evaluation"),
        (["--steps", "0"], "--steps is 0"),
        (["startup", "--seed", "-1"], "--seed is -1, expected 0 or more"),
        (["startup", "--seed", str(2**32)], "--seed is 4294967296, expected 4294967295 or less"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.loop
def test_the_figures_come_from_runs() -> None:
    done = bench("stage", "evaluation", "step", "startup", "--steps", "2", "--tasks", "4")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 answers are the same" in done.stdout
    for row in ("TRL alone", "our stage", "backward pass", "its generation, alone", "forked, a later stage"):
        assert row in done.stdout
    assert "1 set of weights in 3 stages" in " ".join(done.stdout.split())
