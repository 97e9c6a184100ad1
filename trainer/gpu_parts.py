"""The parts of `trainer.gpu_check`: ``python -m trainer.gpu_parts PART... --work DIR [--cpu-dry]``.

A part writes ``DIR/PART.json``: figures, of which ``note`` is for a person. It fails by an exception, whose last line
says why.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint import load, load_tokenizer, reference, resolve
from trainer.coin import Coin
from trainer.dataset import write_dataset
from trainer.decoding import decode, encode, uniforms
from trainer.devices import FORWARD, TRAINED
from trainer.files import write_atomic
from trainer.metrics import read_stage
from trainer.seedling.model import Shape, build_model
from trainer.spec import (
    GenerationSettings,
    GrpoSettings,
    RewardWeights,
    StageResult,
    StageSpec,
    TransformersRollouts,
    VllmColocate,
)
from trainer.stage import run_stage


class CheckError(RuntimeError):
    """The device computes, and not what it should."""


@dataclass(frozen=True)
class Scale:
    """How large the parts are."""

    device: str
    shape: Shape
    matrix: int
    rows: int
    context: int
    steps: int
    answers: int
    answer_tokens: int
    grpo_steps: int
    grpo_batch: int
    grpo_group: int
    grpo_tokens: int


GPU = Scale("cuda", Shape(768, 10, 12, 64), 8192, 32, 1024, 30, 512, 256, 10, 256, 16, 128)
"""About 100 million parameters."""
CPU_DRY = Scale("cpu", Shape(64, 2, 2, 32), 128, 2, 64, 2, 4, 8, 2, 16, 8, 8)
"""Every line of the parts, and no figure that means anything."""
MAX_ERROR = 0.02
"""Of a product in bfloat16, whose mantissa has 8 bits, relative to float32."""


def bf16(scale: Scale, _: Path) -> dict[str, Any]:
    """Products in bfloat16 agree with float32 and are timed."""
    generator = torch.Generator(scale.device).manual_seed(0)
    left, right = (torch.randn(scale.matrix, scale.matrix, device=scale.device, generator=generator) for _ in range(2))
    exact = left[:256] @ right
    left, right = left.bfloat16(), right.bfloat16()
    error = float((left[:256] @ right - exact).norm() / exact.norm())
    if not error < MAX_ERROR:
        raise CheckError(f"a product in bfloat16 differs by {error:.3g} of its norm, expected less than {MAX_ERROR}")
    seconds = timed(scale.device, lambda: left @ right, repeats=20)
    return {
        "operations": 2.0 * scale.matrix**3,
        "seconds": seconds,
        "error": error,
        "note": f"products of {scale.matrix}x{scale.matrix}, off by {error:.1e}",
    }


def training(scale: Scale, work: Path) -> dict[str, Any]:
    """Forward and backward passes and Adam's step under autocast to bfloat16; the loss falls on one batch."""
    model, _ = load(reference(work / "model"), device=scale.device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    generator = torch.Generator(scale.device).manual_seed(0)
    ids = torch.randint(model.config.vocab_size, (scale.rows, scale.context), device=scale.device, generator=generator)
    losses = []

    def step() -> None:
        with torch.autocast(scale.device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    seconds = timed(scale.device, step, repeats=scale.steps)
    first, last = float(losses[0]), float(losses[-1])
    if not last < first < math.inf:
        raise CheckError(f"the loss went from {first} to {last} over {len(losses)} steps on one batch; expected a fall")
    tokens, parameters = scale.rows * scale.context, size_of(model)
    return {
        "tokens": tokens,
        "seconds": seconds,
        "operations": float(TRAINED * parameters * tokens),
        "parameters": parameters,
        "note": f"{parameters / 1e6:.1f} M parameters, {scale.rows}x{scale.context} tokens, "
        f"loss {first:.2f} to {last:.2f}",
    }


def generation(scale: Scale, work: Path) -> dict[str, Any]:
    """As many tokens as were asked for, by vLLM if it is installed for the device, else by `trainer.decoding`."""
    path = work / "model"
    tokenizer = load_tokenizer(reference(path))
    environment = Coin()
    prompts = encode(tokenizer, [environment.prompt(task, "compact") for task in environment.tasks(scale.answers)], {})
    engine = engine_of(scale)
    answers, seconds = (_vllm if engine == "vllm" else _transformers)(scale, path, prompts)
    lengths = {len(answer) for answer in answers}
    if len(answers) != scale.answers or lengths != {scale.answer_tokens}:
        raise CheckError(
            f"{engine} gave {len(answers)} answers of {sorted(lengths)} tokens, expected {scale.answers} of "
            f"{scale.answer_tokens}"
        )
    tokens, parameters = scale.answers * scale.answer_tokens, size_of(load(reference(path))[0])
    return {
        "engine": engine,
        "tokens": tokens,
        "seconds": seconds,
        "operations": float(FORWARD * parameters * tokens),
        "note": f"{engine}, {scale.answers} answers of {scale.answer_tokens} tokens at once",
    }


def grpo(scale: Scale, work: Path) -> dict[str, Any]:
    """A stage as runs have it, in its own process: TRL, rollouts, bfloat16, checkpoint, result."""
    engine = engine_of(scale)
    needed = scale.grpo_steps * scale.grpo_batch // scale.grpo_group
    spec = StageSpec(
        environment="trainer.coin:Coin",
        style="compact",
        stage=0,
        seed=0,
        init_model=reference(work / "model"),
        dataset=write_dataset(Coin().tasks(needed), work / "dataset.jsonl"),
        reward=RewardWeights(),
        generation=GenerationSettings(max_new_tokens=scale.grpo_tokens),
        grpo=GrpoSettings(
            steps=scale.grpo_steps,
            batch=scale.grpo_batch,
            group=scale.grpo_group,
            micro_batch=scale.grpo_batch // 2,
            learning_rate=1e-4,
            save_every=scale.grpo_steps,
            bf16=True,
        ),
        rollouts=VllmColocate(gpu_memory_utilization=0.3, max_model_length=512, sleep=False)
        if engine == "vllm"
        else TransformersRollouts(),
        device="cuda" if scale.device == "cuda" else "cpu",
        threads=1 if scale.device == "cpu" else 8,
    )
    result: StageResult = run_stage(spec, work / "stage", retries=0)
    # The first step waits for what is compiled and allocated once.
    rows = read_stage([work / "stage" / "attempt-1"])[1:]
    tokens, seconds = sum(row.tokens for row in rows), sum(row.seconds for row in rows)
    parameters = size_of(load(result.model)[0])
    return {
        "engine": engine,
        "tokens": tokens,
        "seconds": seconds,
        # Prompts are work too and are not counted.
        "operations": float((FORWARD + TRAINED) * parameters * tokens),
        "weight_change": result.weight_change,
        "note": f"{engine} rollouts, {result.steps} steps, reward {result.reward_first:.2f} to "
        f"{result.reward_last:.2f}, weights moved by {result.weight_change:.3g}",
    }


PARTS: dict[str, Callable[[Scale, Path], dict[str, Any]]] = {
    "bf16": bf16,
    "training": training,
    "generation": generation,
    "grpo": grpo,
}


def make_model(scale: Scale, directory: Path) -> None:
    """The seedling's architecture at the scale's size with random weights, and the seedling's tokenizer."""
    tokenizer: Any = load_tokenizer(resolve("seedling"))
    build_model(tokenizer, 0, scale.shape).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def engine_of(scale: Scale) -> str:
    """vllm where a GPU's build of it is installed."""
    return "vllm" if scale.device == "cuda" and find_spec("vllm") is not None else "transformers"


def size_of(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def timed(device: str, act: Callable[[], object], *, repeats: int) -> float:
    """Median seconds of an action after three that do not count."""
    taken = []
    for repeat in range(3 + repeats):
        started = time.perf_counter()
        act()
        if device == "cuda":
            torch.cuda.synchronize()
        if repeat >= 3:
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _transformers(scale: Scale, path: Path, prompts: list[list[int]]) -> tuple[list[list[int]], float]:
    model, tokenizer = load(reference(path), device=scale.device, dtype=torch.bfloat16)

    def answers(length: int) -> list[list[int]]:
        return decode(
            model,
            prompts,
            range(len(prompts)),
            max_new_tokens=length,
            temperature=1.0,
            # No token's: every answer has the length that was asked for.
            stop_tokens=(-1,),
            pad_token=int(tokenizer.pad_token_id or 0),
            draws=uniforms(len(prompts), length, 0),
        )

    answers(2)
    started = time.perf_counter()
    given = answers(scale.answer_tokens)
    return given, time.perf_counter() - started


def _vllm(scale: Scale, path: Path, prompts: list[list[int]]) -> tuple[list[list[int]], float]:
    import vllm  # type: ignore[import-not-found]  # noqa: PLC0415

    engine = vllm.LLM(model=str(path), dtype="bfloat16", gpu_memory_utilization=0.5, max_model_len=512, seed=0)
    requests = [{"prompt_token_ids": ids} for ids in prompts]

    def answers(length: int) -> list[list[int]]:
        sampling = vllm.SamplingParams(temperature=1.0, top_p=1.0, top_k=0, max_tokens=length, ignore_eos=True)
        return [list(answer.outputs[0].token_ids) for answer in engine.generate(requests, sampling, use_tqdm=False)]

    answers(2)
    started = time.perf_counter()
    given = answers(scale.answer_tokens)
    return given, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trainer.gpu_parts", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--cpu-dry", action="store_true")
    options = parser.parse_args()
    scale = CPU_DRY if options.cpu_dry else GPU
    if options.cpu_dry:
        torch.set_num_threads(1)
    for name in options.parts:
        write_atomic(options.work / f"{name}.json", json.dumps(PARTS[name](scale, options.work)))
        if scale.device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
