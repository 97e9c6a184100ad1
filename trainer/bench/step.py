"""One step of GRPO taken apart: its parts, and its generation and its backward pass measured alone.

A stage is trained in this process with its calls timed. What its steps generated and learnt from is kept and done again
afterwards by the model alone. The learning rate is so small that the model, and so the work, stays the same.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from trainer.bench.spans import Spans
from trainer.bench.task import spec_of
from trainer.spec import StageSpec

_WARM = 2
"""Steps that are left out: the first ones load what is used for the first time."""
_RATE_SCALE = 1e-3
Batch = dict[str, Any]


def measure(directory: Path, steps: int, seed: int) -> Table:
    """The table of one step, medians over all but the first steps."""
    spec = spec_of(steps + _WARM, directory, seed=seed, learning_rate_scale=_RATE_SCALE)
    spans, generated, learnt = trained(spec, directory)
    counted = range(_WARM + 1, spec.steps + 1)
    parts = spans.medians(counted)
    whole = parts.pop("step")
    generation, learning = alone(spec, generated[_WARM:], learnt[_WARM:])
    table = Table("", "ms a step", "share", title=f"a step of {spec.batch} completions in groups of {spec.grpo.group}")
    for name, seconds in sorted(parts.items(), key=lambda part: -part[1]):
        table.add_row(name, f"{1000 * seconds:.1f}", f"{seconds / (whole + sum(parts.values())):.1%}")
    total = whole + sum(parts.values())
    table.add_row("everything else", f"{1000 * whole:.1f}", f"{whole / total:.1%}")
    table.add_section()
    table.add_row("whole step", f"{1000 * total:.1f}", "100.0%")
    table.add_row("its generation, alone", f"{1000 * generation:.1f}", f"{generation / total:.1%}")
    table.add_row("its backward pass, alone", f"{1000 * learning:.1f}", f"{learning / total:.1%}")
    table.caption = f"the step takes {total / (generation + learning):.2f} times both alone"
    return table


def trained(spec: StageSpec, directory: Path) -> tuple[Spans, list[Batch], list[list[Batch]]]:
    """Train the stage with its calls timed; what each step generated from and learnt from."""
    import accelerate  # type: ignore[import-untyped]  # noqa: PLC0415 - after what TRL reads was prepared

    from trainer import grpo, reporter, rollouts  # noqa: PLC0415
    from trainer.compaction import compact  # noqa: PLC0415
    from trainer.decoding import decode  # noqa: PLC0415

    spans, generated, learnt = Spans(), list[Batch](), list[list[Batch]]()

    def noted_decode(model: Any, prompts: Any, rows: Any, **named: Any) -> Any:
        generated.append({"prompts": prompts, "prompt_of_row": rows, **named})
        return decode(model, prompts, rows, **named)

    def noted_compact(batches: Any, **named: Any) -> Any:
        learnt.append(compact(batches, **named))
        return learnt[-1]

    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        spans.step += 1
        on_step_begin(self, *arguments, **named)

    on_step_begin = reporter.StepReporter.on_step_begin
    trainer: Any = grpo.StageTrainer
    places: dict[tuple[Any, str], str] = {
        (trainer, "get_batch_samples"): "tasks of the step",
        (trainer, "training_step"): "step",
        (trainer, "_generate_and_score_completions"): "TRL's tensors, advantages and logs",
        (trainer, "_calculate_rewards"): "verifying answers",
        (trainer, "compute_loss"): "forward pass and loss",
        (trainer, "log"): "metrics, heartbeat and kept answers",
        (trainer, "_save_checkpoint"): "checkpoint",
        (rollouts, "encode"): "rendering prompts",
        (rollouts, "decode"): "generation",
        (grpo, "compact"): "compaction",
        (accelerate.Accelerator, "backward"): "backward pass",
        (accelerate.Accelerator, "clip_grad_norm_"): "norm of the gradient",
        (accelerate.optimizer.AcceleratedOptimizer, "step"): "optimizer",
        (accelerate.optimizer.AcceleratedOptimizer, "zero_grad"): "optimizer",
    }
    patched = {(rollouts, "decode"): noted_decode, (grpo, "compact"): noted_compact}
    kept = {(rollouts, "decode"): decode, (grpo, "compact"): compact}
    for (owner, name), call in patched.items():
        setattr(owner, name, call)
    reporter.StepReporter.on_step_begin = begin  # type: ignore[method-assign]
    try:
        with spans.watching(places):
            attempt = directory / "attempt-1"
            attempt.mkdir()
            (attempt / "spec.json").write_text(spec.model_dump_json(), encoding="utf-8")
            grpo.train(spec, attempt, directory / "model", resume=None, started=time.time())
    finally:
        reporter.StepReporter.on_step_begin = on_step_begin  # type: ignore[method-assign]
        for (owner, name), call in kept.items():
            setattr(owner, name, call)
    return spans, generated, learnt


def alone(spec: StageSpec, generated: list[Batch], learnt: list[list[Batch]]) -> tuple[float, float]:
    """Median seconds of generating a step's completions, and of learning from them, with nothing around it."""
    import torch  # noqa: PLC0415 - after what TRL reads was prepared

    from trainer.checkpoint import load  # noqa: PLC0415
    from trainer.decoding import decode  # noqa: PLC0415

    model, _ = load(spec.init_model)
    times = []
    for asked in generated:
        began = time.perf_counter()
        decode(model, asked["prompts"], asked["prompt_of_row"], **{k: asked[k] for k in asked if k not in _ROWS})
        times.append(time.perf_counter() - began)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9, fused=True, weight_decay=0.0)
    learning = []
    for batches in learnt:
        began = time.perf_counter()
        for batch in batches:
            loss(model, batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        learning.append(time.perf_counter() - began)
    return statistics.median(times), statistics.median(learning)


_ROWS = ("prompts", "prompt_of_row")


def loss(model: Any, batch: Batch) -> Any:
    """The policy gradient of a batch on its own policy, whose importance ratios are 1, as plain torch has it."""
    import torch  # noqa: PLC0415

    answers = batch["completion_ids"]
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    logits = model(
        input_ids=torch.cat([batch["prompt_ids"], answers], dim=1),
        attention_mask=mask,
        logits_to_keep=answers.shape[1] + 1,
    ).logits[:, :-1]
    chosen = logits.log_softmax(-1).gather(2, answers[:, :, None])[:, :, 0]
    weights = batch["advantages"][:, None] * batch["completion_mask"]
    return -(chosen * weights).sum() / batch["num_items_in_batch"]
