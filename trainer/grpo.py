"""One stage of GRPO with TRL, in this process. The only module that imports TRL; only the worker imports it.

On a CPU rollouts go through `trainer.decoding` and the backward pass through `trainer.compaction`; the same seed gives
the same weights, and a stage that goes on from a checkpoint ends with the weights it would have had. On a GPU vLLM
generates in the same process (colocate); that branch builds its configuration here but has only been run on a machine
without a GPU, so its training loop is as TRL ships it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from datasets import Dataset  # type: ignore[attr-defined]
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]
from trl.rewards import get_soft_overlong_punishment  # type: ignore[attr-defined]

from envsim.api import Environment, EnvsimError, Instance
from envsim.registry import get
from trainer import checkpoint
from trainer.checkpoint import CheckpointError, load
from trainer.compaction import KEYS, compact
from trainer.dataset import DatasetError, read_dataset
from trainer.lengths import check_room
from trainer.reporter import Reporter
from trainer.reward import INSTANCE_COLUMN, reward_functions, reward_weights
from trainer.rollouts import Clock, Rollouts
from trainer.spec import GrpoSettings, StageSpec, canonical_hash
from trainer.trained import Trained, TrainingError, TrainingInputError, lora_config, optional, save_moved
from trainer.tripwires import Watch


class StageTrainer(GRPOTrainer):
    """GRPO whose backward pass skips rows without a gradient where that is exact."""

    def __init__(self, *, compacts: bool, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._compacts = compacts

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        trainer: Any = self
        window_begins = self._step % trainer.args.steps_per_generation == 0
        if self._compacts and window_begins and set(inputs) == KEYS:
            trainer._buffered_inputs = compact(trainer._buffered_inputs)
            inputs = trainer._buffered_inputs[0]
        return inputs


def train(spec: StageSpec, attempt: Path, output: Path, *, resume: Path | None, started: float) -> Trained:
    """Train the stage and save its model to ``output`` in float32.

    Args:
        spec: the stage.
        attempt: directory for checkpoints, metrics and heartbeat.
        output: where the model goes; must not exist.
        resume: a complete checkpoint of the same spec.
        started: wall-clock time at which the process began.

    Raises:
        TrainingInputError: the spec names a model, dataset or environment that is not as it says, too few prompts, or
            tasks of which none can be answered.
        TrainingError: fewer steps than asked for, or weights that did not move.
    """
    torch.set_num_threads(spec.threads)
    set_seed(spec.seed)
    try:
        environment = get(spec.environment)
        instances = read_dataset(environment, spec.dataset)
        rows = training_rows(spec, environment, instances)
        checkpoint.verify(spec.init_model)
        model, tokenizer = load(spec.init_model, device=spec.device)
        warnings = check_room(environment, instances, spec.style, tokenizer, spec.generation.max_new_tokens)
    except (EnvsimError, DatasetError, CheckpointError) as error:
        raise TrainingInputError(str(error)) from error
    if spec.rollouts.kind == "vllm_colocate":
        optional("vllm", "rollouts")
    for warning in warnings:
        print(f"warning: {warning}", flush=True)
    clock = Clock()
    step = None if resume is None else int(resume.name.rpartition("-")[2])
    watch = None if spec.grpo.tripwires is None else Watch(attempt, spec.grpo.tripwires, step)
    in_process = spec.rollouts.kind == "transformers"
    trainer = StageTrainer(
        compacts=in_process and _compacts(spec.grpo),
        model=model,
        args=grpo_config(spec, attempt),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        reward_funcs=[*reward_functions(environment), *_penalties(spec)],
        rollout_func=Rollouts(spec, model, tokenizer, clock) if in_process else None,
        peft_config=lora_config(spec.lora),
        callbacks=[Reporter(attempt, clock, started), *([] if watch is None else [watch])],
    )
    # TRL, and vLLM more so, reseed the process while the trainer is built.
    set_seed(spec.seed, device_specific=True)
    trip = None if watch is None else watch.trip
    if trip is None:
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        trip, reached = None if watch is None else watch.trip, trainer.state.global_step
    else:
        # The last attempt was stopped at this checkpoint and died before it could say so.
        trainer._load_from_checkpoint(str(resume))
        reached = trip.step
    if reached != spec.grpo.steps and trip is None:
        raise TrainingError(
            f"training ended after {reached} steps, expected {spec.grpo.steps}; the dataset has {len(rows)} prompts"
        )
    saving = time.monotonic()
    model = trainer.accelerator.unwrap_model(trainer.model)
    change = save_moved(model, Path(spec.init_model.path), output, steps=reached, tripped=trip)
    clock.saving += time.monotonic() - saving
    return Trained(
        steps=reached,
        weight_change=change,
        resumed_from_step=step,
        tripped=trip,
        warnings=tuple(warnings),
        clock=clock,
    )


def training_rows(spec: StageSpec, environment: Environment, instances: Sequence[Instance]) -> list[dict[str, Any]]:
    """Conversational prompts with their instances as JSON strings.

    Raises:
        TrainingInputError: fewer distinct prompts than one pass of the asked number of steps needs.
    """
    prompts = [environment.prompt(instance, spec.style) for instance in instances]
    distinct = len({canonical_hash(prompt) for prompt in prompts})
    needed = spec.grpo.steps * spec.grpo.batch // spec.grpo.group
    if distinct < needed:
        # TRL would end early, or with no step at all, and only log it; a second pass would not resume exactly.
        raise TrainingInputError(
            f"the dataset has {distinct} distinct prompts, expected at least {needed} = {spec.grpo.steps} steps x "
            f"{spec.grpo.batch} completions / {spec.grpo.group} a prompt; generate more or train fewer steps"
        )
    return [
        {"prompt": prompt, INSTANCE_COLUMN: instance.model_dump_json()}
        for prompt, instance in zip(prompts, instances, strict=True)
    ]


def grpo_config(spec: StageSpec, output: Path) -> Any:
    """TRL's configuration of the stage: one pass, on-policy, untruncated sampling."""
    grpo = spec.grpo
    micro = grpo.micro_batch or grpo.batch
    colocate: dict[str, Any] = {}
    if spec.rollouts.kind == "vllm_colocate":
        colocate = {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": spec.rollouts.gpu_memory_utilization,
            "vllm_max_model_length": spec.rollouts.max_model_length,
            "vllm_enable_sleep_mode": spec.rollouts.sleep,
            # The default drops whole long answers when the two engines' log-probabilities drift apart.
            "vllm_importance_sampling_mode": "token_truncate",
        }
    return GRPOConfig(
        output_dir=str(output),
        max_steps=grpo.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=grpo.batch // micro,
        steps_per_generation=grpo.batch // micro,
        num_generations=grpo.group,
        num_iterations=1,
        learning_rate=grpo.learning_rate,
        lr_scheduler_type=grpo.schedule,
        warmup_steps=grpo.warmup_steps,
        weight_decay=0.0,
        optim="adamw_torch_fused",
        max_grad_norm=grpo.max_grad_norm,
        loss_type=grpo.loss_type,
        scale_rewards=grpo.scale_rewards,
        beta=grpo.beta,
        epsilon=0.2 if grpo.epsilon is None else grpo.epsilon,
        epsilon_high=grpo.epsilon_high,
        importance_sampling_level=grpo.importance_sampling_level,
        mask_truncated_completions=grpo.mask_truncated,
        reward_weights=[*reward_weights(spec.reward), *([] if grpo.overlong is None else [grpo.overlong.weight])],
        max_completion_length=spec.generation.max_new_tokens,
        temperature=spec.generation.temperature,
        # Truncated sampling would bias the importance ratio.
        top_p=1.0,
        top_k=0,
        min_p=None,
        chat_template_kwargs=spec.generation.chat_template_kwargs or None,
        shuffle_dataset=True,
        seed=spec.seed,
        bf16=grpo.bf16,
        gradient_checkpointing=grpo.gradient_checkpointing,
        use_cpu=spec.device == "cpu",
        dataloader_num_workers=0,
        dataloader_pin_memory=spec.device == "cuda",
        save_strategy="steps",
        save_steps=grpo.save_every,
        save_total_limit=2,
        logging_steps=1,
        log_completions=False,
        report_to="none",
        disable_tqdm=True,
        **colocate,
    )


def _compacts(grpo: GrpoSettings) -> bool:
    """Whether `trainer.compaction` is exact: it is for one loss, without a KL term and with every answer in it."""
    by_token = grpo.loss_type == "dapo" and grpo.importance_sampling_level == "token"
    return by_token and grpo.beta == 0 and not grpo.mask_truncated


def _penalties(spec: StageSpec) -> list[Any]:
    """TRL's soft punishment of answers near the limit, if the spec asks for it."""
    overlong = spec.grpo.overlong
    return [] if overlong is None else [get_soft_overlong_punishment(spec.generation.max_new_tokens, overlong.cache)]
