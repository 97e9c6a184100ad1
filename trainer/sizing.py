"""``python -m trainer.sizing``: memory, tokens and hours of a stage on GPUs, derived from formulas and assumptions.

Nothing here was measured. It says which layout is worth trying, and which term to look at if it turns out otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.profile import Profile, ProfileError, load_profile
from trainer.spec import MAX_TOKENS

GB = 1e9


@dataclass(frozen=True)
class Shape:
    """A Qwen3-like decoder with tied embeddings, as its config.json has it."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head: int
    mlp: int
    vocabulary: int

    def parameters(self) -> int:
        attention = 2 * self.hidden * self.heads * self.head + 2 * self.hidden * self.kv_heads * self.head
        norms = 2 * self.hidden + 2 * self.head
        block = attention + 3 * self.hidden * self.mlp + norms
        return self.vocabulary * self.hidden + self.layers * block + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Adapters on all linear layers of the blocks: rank x (inputs + outputs)."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        attention = 2 * (self.hidden + queries) + 2 * (self.hidden + keys)
        return self.layers * rank * (attention + 3 * (self.hidden + self.mlp))

    def kv_bytes(self) -> int:
        """Of a token in vLLM's cache: keys and values of all layers in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head * 2


@dataclass(frozen=True)
class Gpu:
    """The vendor's figures: bytes, bytes a second, dense bfloat16 operations a second."""

    memory: float
    bandwidth: float
    flops: float


@dataclass(frozen=True)
class Assumptions:
    """What the formulas cannot know."""

    prompt_tokens: int = 400
    bandwidth_used: float = 0.5
    """Share of the memory's bandwidth that decoding reaches."""
    flops_used: float = 0.35
    """Share of the peak that forward and backward passes reach."""
    overhead: float = 4 * GB
    """CUDA contexts, buffers and what the allocator cannot use, a GPU."""
    start_up: float = 300.0
    """Seconds a stage for imports, loading, vLLM's engine and saving."""


SHAPES = {"Qwen/Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151_936)}
GPUS = {"h200": Gpu(141 * GB, 4.8e12, 989e12), "h100": Gpu(80 * GB, 3.35e12, 989e12)}


@dataclass(frozen=True)
class Memory:
    """Bytes a GPU: what training holds all the time, what a backward pass adds, and vLLM's share."""

    state: float
    activations: float
    engine: float
    overhead: float

    def peak(self, *, sleeps: bool) -> float:
        """An engine that sleeps gives its share back while the weights are trained."""
        busy = max(self.activations, self.engine) if sleeps else self.activations + self.engine
        return self.state + busy + self.overhead


def memory(profile: Profile, shape: Shape, gpu: Gpu, gpus: int, assumed: Assumptions) -> Memory:
    """One GPU: float32 weights, gradients and Adam, or frozen weights and adapters. More: ZeRO-2 under bfloat16.

    Raises ValueError if the rollouts are not by vLLM on the same GPUs.
    """
    n = shape.parameters()
    if profile.lora is not None:
        state = 4.0 * n + 16 * shape.lora_parameters(profile.lora.rank)
    elif gpus == 1:
        state = 16 * n
    else:
        # Whole bfloat16 weights everywhere; gradients in bfloat16 and weights, mean and variance in float32 in parts.
        state = 2 * n + (2 + 12) * n / gpus
    tokens = (profile.grpo.micro_batch or profile.grpo.batch) * (
        assumed.prompt_tokens + profile.generation.max_new_tokens
    )
    # Checkpointing keeps the input of each block, and one block at a time is computed again.
    block = 8 * shape.hidden + 4 * shape.heads * shape.head + 3 * shape.mlp
    activations = tokens * 2 * (shape.layers * shape.hidden + block)
    if profile.rollouts.kind != "vllm_colocate":
        raise ValueError(
            f"the rollouts of profile {profile.name!r} are {profile.rollouts.kind}; the formulas know vllm_colocate "
            "alone, where vLLM shares the GPUs that train"
        )
    return Memory(state, activations, profile.rollouts.gpu_memory_utilization * gpu.memory, assumed.overhead)


@dataclass(frozen=True)
class Stage:
    """Tokens that the policy writes in a stage, and the seconds of a step."""

    tokens: float
    generation: float
    training: float
    hours: float


def stage(profile: Profile, shape: Shape, gpu: Gpu, gpus: int, *, length: float, assumed: Assumptions) -> Stage:
    """A stage whose answers have ``length`` tokens in the mean."""
    grpo, n = profile.grpo, shape.parameters()
    own = grpo.batch / gpus
    held = memory(profile, shape, gpu, gpus, assumed)
    context = assumed.prompt_tokens + length / 2
    cache = held.engine - 2 * n - 2 * GB
    if cache <= 0:
        raise ValueError(f"vLLM's share of {held.engine / GB:.0f} GB has no room for {2 * n / GB:.0f} GB of weights")
    at_once = min(own, cache / (shape.kv_bytes() * context))
    # Each step of decoding reads the weights once and the cache of all sequences that it extends.
    decoding = (2 * n + at_once * context * shape.kv_bytes()) / (gpu.bandwidth * assumed.bandwidth_used)
    generation = own * length / at_once * decoding
    rows = own * (assumed.prompt_tokens + length)
    # Forward 2, backward 4, recomputation 2, and a forward pass of 2 for the log-probabilities before the step.
    attention = 4 * shape.layers * shape.heads * shape.head * (assumed.prompt_tokens + length) / 2
    training = rows * (10 * n + 5 * attention) / (gpu.flops * assumed.flops_used)
    seconds = assumed.start_up + grpo.steps * (generation + training)
    return Stage(grpo.steps * grpo.batch * length, generation, training, seconds / 3600)


def tables(profile: Profile, layouts: Sequence[tuple[str, int]], lengths: Sequence[float]) -> str:
    """Both tables as Markdown."""
    shape, assumed = SHAPES[profile.model], Assumptions()
    lines = [
        f"{profile.model}: {shape.parameters():,} parameters, {shape.kv_bytes():,} bytes of cache a token; "
        f"{profile.grpo.steps} steps of {profile.grpo.batch} answers.",
        "",
        "| GPUs | state | activations | vLLM | other | peak a GPU | of |",
        "|---|---|---|---|---|---|---|",
    ]
    sleeps = profile.rollouts.kind == "vllm_colocate" and profile.rollouts.sleep
    for name, gpus in layouts:
        held = memory(profile, shape, GPUS[name], gpus, assumed)
        cells = (held.state, held.activations, held.engine, held.overhead, held.peak(sleeps=sleeps), GPUS[name].memory)
        lines.append(f"| {gpus}x{name.upper()} | " + " | ".join(f"{value / GB:.0f} GB" for value in cells) + " |")
    lines += ["", "| GPUs | tokens an answer | tokens a stage | s generating | s training | hours a stage |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, gpus in layouts:
        for length in lengths:
            one = stage(profile, shape, GPUS[name], gpus, length=length, assumed=assumed)
            lines.append(
                f"| {gpus}x{name.upper()} | {length:,.0f} | {one.tokens / 1e6:.1f} M | {one.generation:.0f} a step | "
                f"{one.training:.0f} a step | {one.hours:.1f} |"
            )
    return "\n".join(lines)


def layout(text: str) -> tuple[str, int]:
    """``8xh100`` as ("h100", 8). Raises ValueError."""
    number, _, name = text.lower().partition("x")
    if name not in GPUS or not number.isdigit() or int(number) < 1:
        raise ValueError(f"no layout {text!r}; expected a number, x and one of {sorted(GPUS)}, such as 8xh100")
    return name, int(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.sizing", description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="qwen3-4b", help="a shipped profile or a YAML file")
    parser.add_argument("--gpus", nargs="+", default=["1xh200", "8xh100"], help="layouts such as 1xh200 8xh100")
    parser.add_argument("--tokens", nargs="+", type=float, default=[622, 2000, 7464], help="tokens an answer, in mean")
    options = parser.parse_args(arguments)
    try:
        for tokens in options.tokens:
            if not 1 <= tokens <= MAX_TOKENS:
                raise ValueError(f"--tokens is {tokens:g}, expected 1 to {MAX_TOKENS:,}")
        profile = load_profile(options.profile)
        if profile.model not in SHAPES:
            raise ValueError(f"the shape of {profile.model!r} is not known; expected one of {sorted(SHAPES)}")
        print(tables(profile, [layout(text) for text in options.gpus], options.tokens))
    except (ProfileError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
