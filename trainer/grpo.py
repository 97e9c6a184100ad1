"""One stage of GRPO with TRL, in this process. The only module that imports TRL; only the worker imports it.

On a CPU rollouts go through `trainer.decoding` and the backward pass through `trainer.compaction`; the same seed gives
the same weights, and a stage that goes on from a checkpoint ends with the weights it would have had. On a GPU vLLM
generates in the same process (colocate); that branch builds its configuration here but has only been run on a machine
without a GPU, so its training loop is as TRL ships it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from datasets import Dataset  # type: ignore[attr-defined]
from trl import GRPOConfig, GRPOTrainer  # type: ignore[attr-defined]
from trl.rewards import get_soft_overlong_punishment  # type: ignore[attr-defined]

from envsim.api import Environment, EnvsimError, Instance
from trainer import course
from trainer.attempts import number
from trainer.compaction import KEYS, compact
from trainer.completions import Keeper
from trainer.draining import Drain
from trainer.reporter import Reporter
from trainer.reward import INSTANCE_COLUMN, reward_functions, reward_weights
from trainer.role_rehearsal import ROLE_LOSS, Rehearsal, rehearsal_of
from trainer.rollouts import Clock, Rollouts
from trainer.spec import GrpoSettings, StageSpec, canonical_hash
from trainer.trained import (
    Trained,
    TrainingInputError,
    lora_config,
    optional,
    shared_arguments,
)
from trainer.tripwires import Watch


class StageTrainer(GRPOTrainer):
    """GRPO whose backward pass skips rows without a gradient where that is exact, and may rehearse roles."""

    def __init__(self, *, compacts: bool, keeper: Keeper, rehearsal: Rehearsal | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._compacts = compacts
        self._keeper = keeper
        self._rehearsal = rehearsal
        self._rehearsed = 0.0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        # The last log of a training run is its summary, and its completions are those of the last step.
        if "train_runtime" not in logs and self.accelerator.is_main_process:
            self._keeper.keep(self.state.global_step, self._completions())
        super().log(logs, start_time)

    def _completions(self) -> dict[str, list[Any]]:
        """The last step's completions of all processes, as TRL gathers them for its own tables."""
        logs: dict[str, Any] = self._logs
        rewards = {name: list(values) for name, values in logs["rewards"].items()}
        return {
            "prompt": ["\n\n".join(message["content"] for message in prompt) for prompt in logs["prompt"]],
            "completion": [completion[-1]["content"] for completion in logs["completion"]],
            **{name: list(values) for name, values in logs["extra"].items()},
            "reward": [
                sum(weight * reward for weight, reward in zip(self.reward_weights.tolist(), row, strict=True))
                for row in zip(*rewards.values(), strict=True)
            ],
            **rewards,
            "advantage": list(logs["advantages"]),
        }

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        loss: torch.Tensor = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        trainer: Any = self
        step = self.state.global_step + 1
        if self._rehearsal is None or not trainer.model.training or not self._rehearsal.due(step):
            return loss
        passes, processes = trainer.current_gradient_accumulation_steps, trainer.accelerator.num_processes
        micro = trainer._step % passes
        # Past the wrapper of several processes, which is ready for one forward pass a backward pass: its hooks hang on
        # the weights, and see the sum of both terms' gradients.
        whole = trainer.accelerator.unwrap_model(model)
        part = micro * processes + trainer.accelerator.process_index
        term = self._rehearsal.term(whole, step, part, passes * processes, processes)
        if term is not None:
            self._rehearsed += float(term.detach())
            loss = loss + self._rehearsal.weight * term
        if micro == passes - 1:
            own = torch.tensor([self._rehearsed], device=trainer.accelerator.device)
            self._metrics["train"][ROLE_LOSS].append(float(trainer.accelerator.gather(own).mean()))
            self._rehearsed = 0.0
        return loss

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        trainer: Any = self
        window_begins = self._step % trainer.args.steps_per_generation == 0
        if self._compacts and window_begins and set(inputs) == KEYS:
            trainer._buffered_inputs = compact(trainer._buffered_inputs, at_least=self._most_rows())
            inputs = trainer._buffered_inputs[0]
        return inputs

    def _most_rows(self) -> int:
        """Rows that carry a gradient in the process that has most: TRL gathers per row, so all must keep as many."""
        trainer: Any = self
        own = sum(int((batch["advantages"] != 0).sum()) for batch in trainer._buffered_inputs)
        if trainer.accelerator.num_processes == 1:
            return own
        counts = trainer.accelerator.gather(torch.tensor([own], device=trainer.accelerator.device))
        return int(counts.max())


def train(
    spec: StageSpec, attempt: Path, output: Path, *, resume: Path | None, started: float, server: str | None = None
) -> Trained:
    """Train the stage and save its model to ``output`` in float32.

    Args:
        spec: the stage.
        attempt: directory for checkpoints, metrics and heartbeat.
        output: where the model goes; must not exist.
        resume: a complete checkpoint of the same spec.
        started: wall-clock time at which the process began.
        server: URL of the vLLM server that generates, for rollouts of that kind.

    Raises:
        TrainingInputError: the spec names a model, dataset or environment that is not as it says, too few prompts, or
            tasks of which none can be answered.
        TrainingError: fewer steps than asked for, or weights that did not move.
    """
    environment, instances = course.opened(spec)
    rows = training_rows(spec, environment, instances)
    model, tokenizer, warnings = course.loaded(spec, environment, instances)
    rehearsal = rehearsal_of(spec, model, tokenizer)
    if spec.rollouts.kind != "transformers":
        optional("vllm", "rollouts")
    if (spec.rollouts.kind == "vllm_server") != (server is not None):
        raise TrainingInputError(
            f"rollouts are {spec.rollouts.kind} and the server is {server}; start it by a launcher"
        )
    clock = Clock()
    keeper = Keeper(attempt.parent, spec.completions_mib)
    step = None if resume is None else number(resume)
    watch = None if spec.grpo.tripwires is None else Watch(attempt, spec.grpo.tripwires, step)
    in_process = spec.rollouts.kind == "transformers"
    config = grpo_config(spec, attempt, server)
    window = sampling_window(config)
    if resume is not None and number(resume) % window:
        raise TrainingInputError(f"{resume} lies inside a window of {window} steps; expected one on its border")
    drain = Drain(window)
    trainer = StageTrainer(
        compacts=in_process and _compacts(spec.grpo),
        keeper=keeper,
        rehearsal=rehearsal,
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        reward_funcs=[*reward_functions(environment), *_penalties(spec)],
        rollout_func=Rollouts(spec, model, tokenizer, clock) if in_process else None,
        peft_config=lora_config(spec.lora),
        callbacks=[Reporter(attempt, clock, started, keeper), *([] if watch is None else [watch]), drain],
    )
    # TRL, and vLLM more so, reseed the process while the trainer is built.
    set_seed(spec.seed, device_specific=True)
    return course.run(trainer, spec, output, resume=resume, watch=watch, drain=drain, clock=clock, warnings=warnings)


def training_rows(spec: StageSpec, environment: Environment, instances: Sequence[Instance]) -> list[dict[str, Any]]:
    """Conversational prompts with their instances as JSON strings.

    Raises:
        TrainingInputError: fewer distinct prompts than one pass of the asked number of steps needs, or a task that has
            none in this style.
    """
    try:
        prompts = [environment.prompt(instance, spec.style) for instance in instances]
    except EnvsimError as error:
        raise TrainingInputError(str(error)) from error
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


def grpo_config(spec: StageSpec, output: Path, server: str | None = None) -> Any:
    """TRL's configuration of the stage: one pass, on-policy, untruncated sampling."""
    grpo = spec.grpo
    accumulation = grpo.batch // (spec.micro_batch * spec.processes)
    engine: dict[str, Any] = {}
    if spec.rollouts.kind == "vllm_colocate":
        engine = {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": spec.rollouts.gpu_memory_utilization,
            "vllm_max_model_length": spec.rollouts.max_model_length,
            "vllm_enable_sleep_mode": spec.rollouts.sleep,
        }
    elif spec.rollouts.kind == "vllm_server":
        engine = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server}
    if engine:
        # The default drops whole long answers when the two engines' log-probabilities drift apart.
        engine["vllm_importance_sampling_mode"] = "token_truncate"
    return GRPOConfig(
        **shared_arguments(spec, grpo, output),
        per_device_train_batch_size=spec.micro_batch,
        gradient_accumulation_steps=accumulation,
        steps_per_generation=accumulation,
        num_generations=grpo.group,
        num_iterations=1,
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
        log_completions=False,
        # Every weight takes part in every step; looking for those that do not costs a pass over the graph.
        ddp_find_unused_parameters=None if spec.processes == 1 else False,
        **engine,
    )


def sampling_window(config: Any) -> int:
    """Optimizer steps between two fresh samplings; checkpoints lie on its multiples.

    Raises:
        TrainingInputError: they would not.
    """
    window = max(1, config.steps_per_generation * config.num_iterations // config.gradient_accumulation_steps)
    if config.save_steps % window:
        raise TrainingInputError(
            f"grpo.save_every is {config.save_steps}, expected a multiple of {window}, the steps that one sampling "
            "serves: a stage that went on from inside would sample early and end with other weights"
        )
    return int(window)


def _compacts(grpo: GrpoSettings) -> bool:
    """Whether `trainer.compaction` is exact: it is for one loss, without a KL term and with every answer in it."""
    by_token = grpo.loss_type == "dapo" and grpo.importance_sampling_level == "token"
    return by_token and grpo.beta == 0 and not grpo.mask_truncated


def _penalties(spec: StageSpec) -> list[Any]:
    """TRL's soft punishment of answers near the limit, if the spec asks for it."""
    overlong = spec.grpo.overlong
    return [] if overlong is None else [get_soft_overlong_punishment(spec.generation.max_new_tokens, overlong.cache)]
