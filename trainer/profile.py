"""Profiles: what changes with the size of the model. Same code, other numbers.

``load_profile("seedling")`` reads a shipped file; a path reads one's own. Unknown keys are errors that name the nearest
known one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from envsim.api import Style
from envsim.documents import DocumentError, parse_yaml, read_text
from trainer.consistency import contradiction
from trainer.launch.presets import unworkable
from trainer.launch.settings import LaunchSettings
from trainer.serving.settings import AnyBackend, TransformersBackend, UrlBackend, VllmBackend, usual
from trainer.spec import (
    COMPLETIONS_MIB,
    MAX_THREADS,
    MAX_TOKENS,
    DataRef,
    Frozen,
    GenerationSettings,
    GrpoSettings,
    LoraSettings,
    ModelRef,
    Ranks,
    RewardWeights,
    RoleRehearsal,
    RolloutSettings,
    StageSpec,
    Trackers,
    TransformersRollouts,
    VllmColocate,
    VllmServer,
    absent,
    short,
)
from trainer.training_settings import RehearsalSettings, SelectionSettings, SftSettings

_BY_KIND: dict[tuple[Any, Any], type[BaseModel]] = {
    ("rollouts", "transformers"): TransformersRollouts,
    ("rollouts", "vllm_colocate"): VllmColocate,
    ("rollouts", "vllm_server"): VllmServer,
    ("backend", "transformers"): TransformersBackend,
    ("backend", "vllm"): VllmBackend,
    ("backend", "url"): UrlBackend,
}


class ProfileError(ValueError):
    """A profile is missing or does not say what a profile must."""


class StageBounds(Frozen):
    """Within what the trainer role may set a stage's budget."""

    min_steps: int = Field(gt=0)
    max_steps: int = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_steps > self.max_steps:
            raise ValueError(f"min_steps {self.min_steps} exceeds max_steps {self.max_steps}")
        return self


class EvaluationSettings(Frozen):
    """How many instances of each set are evaluated; 0 = the whole set."""

    batch_size: int = Field(128, gt=0)
    anchor: int = Field(0, ge=0)
    validation: int = Field(0, ge=0)
    test: int = Field(0, ge=0)


class ProbeSettings(Frozen):
    """How many tasks of a proposed configuration the current policy tries, and how often."""

    tasks: int = Field(64, gt=0)
    samples: int = Field(8, gt=1)
    temperature: float = Field(1.0, gt=0)


class RoleGeneration(Frozen):
    """How much the same checkpoint may say as a role; a role's file sets its temperature."""

    max_new_tokens: int = Field(gt=0, le=MAX_TOKENS)


class Profile(Frozen):
    """One model on one kind of machine."""

    name: str
    model: str
    """A source for `trainer.checkpoint.resolve`."""
    style: Style
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(2, gt=0, le=MAX_THREADS)
    grpo: GrpoSettings
    bounds: StageBounds
    generation: GenerationSettings
    roles: RoleGeneration
    reward: RewardWeights = RewardWeights()
    evaluation: EvaluationSettings = EvaluationSettings()
    probe: ProbeSettings = ProbeSettings()
    rollouts: RolloutSettings = Field(TransformersRollouts(), discriminator="kind")
    backend: AnyBackend = Field(TransformersBackend(), exclude_if=usual)
    """Who answers outside training: where checkpoints are evaluated, probed and asked as roles."""
    lora: LoraSettings | None = None
    selection: SelectionSettings | None = Field(None, exclude_if=absent)
    """None = a stage trains on its tasks as they are drawn."""
    sft: SftSettings | None = Field(None, exclude_if=absent)
    """The numbers of a supervised warm start, for `python -m trainer.warm_start`."""
    role_rehearsal: RehearsalSettings | None = Field(None, exclude_if=absent)
    """How a run's stages keep what the model knows of the roles; None = they learn from their tasks alone."""
    completions_mib: float = Field(COMPLETIONS_MIB, ge=0, exclude_if=lambda mib: mib == COMPLETIONS_MIB)
    """How much of a stage's completions is kept as Parquet; 0 = none."""
    tracking: Trackers = Field(["tensorboard"], exclude_if=lambda names: names == ["tensorboard"])
    """tensorboard, wandb, trackio; a run's own setting goes before it."""
    launch: LaunchSettings | None = Field(None, exclude_if=absent)
    """None = one process of this machine."""

    @model_validator(mode="after")
    def _steps_in_bounds(self) -> Self:
        if not self.bounds.min_steps <= self.grpo.steps <= self.bounds.max_steps:
            raise ValueError(
                f"grpo.steps {self.grpo.steps} lies outside bounds {self.bounds.min_steps}..{self.bounds.max_steps}"
            )
        return self

    @model_validator(mode="after")
    def _every_stage_rehearses(self) -> Self:
        if self.role_rehearsal is not None and self.role_rehearsal.every > self.bounds.min_steps:
            raise ValueError(
                f"role_rehearsal.every {self.role_rehearsal.every} exceeds bounds.min_steps {self.bounds.min_steps}: a "
                "stage of so few steps would rehearse nothing"
            )
        return self

    @model_validator(mode="after")
    def _can_be_trained(self) -> Self:
        if (why := contradiction(self.grpo, self.generation, self.rollouts, self.device, self.reward)) is not None:
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _can_be_launched(self) -> Self:
        ranks = self.ranks()
        if ranks is None:
            if self.rollouts.kind == "vllm_server":
                raise ValueError("rollouts vllm_server need launch.preset server, got no preset; add it")
            return self
        lora = self.lora is not None
        why = unworkable(ranks, self.grpo, device=self.device, rollouts=self.rollouts.kind, lora=lora)
        if why is not None:
            raise ValueError(why)
        return self

    def content(self) -> dict[str, Any]:
        """What of it decides what is computed: all but the place, so that a run may go on elsewhere."""
        ranks = self.ranks()
        own = self.model_dump(mode="json", exclude={"launch", "backend"})
        if not usual(self.backend):
            own["backend"] = self.backend.content()
        return own if ranks is None else {**own, "ranks": ranks.model_dump(mode="json")}

    def ranks(self) -> Ranks | None:
        """How the processes of a stage share its work; None for one plain process."""
        return None if self.launch is None else self.launch.ranks()


def load_profile(name_or_path: str | Path) -> Profile:
    """A shipped profile by name, or a YAML file.

    Raises:
        ProfileError: no such profile, no YAML, or an unknown or wrong value; says which and what was expected.
    """
    source, shipped = str(name_or_path), shipped_profiles()
    try:
        if source in shipped:
            data = parse_yaml(shipped[source], source)
        elif _is(Path.is_file, source):
            data = parse_yaml(read_text(Path(source)), source)
        else:
            raise ProfileError(_unknown(source, shipped))
    except DocumentError as error:
        raise ProfileError(f"profile {error}") from error
    if not isinstance(data, dict):
        holds = "is empty" if data is None else f"holds {short(data)}"
        raise ProfileError(
            f"profile {source} {holds}, expected a mapping with a profile's keys, as in trainer/profiles/seedling.yaml"
        )
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        raise ProfileError(f"profile {source}: {_explain(error)}") from error


def _is(kind: Callable[[Path], bool], source: str) -> bool:
    try:
        return kind(Path(source))
    except (OSError, ValueError):
        # A name too long for the file system, or with a null character.
        return False


def _unknown(source: str, shipped: Iterable[str]) -> str:
    """Why a source that is no shipped profile and no file is refused."""
    known = sorted(shipped)
    if _is(Path.is_dir, source):
        return f"profile {short(source)} is a directory, expected a YAML file or one of {known}"
    if "/" in source or source.endswith((".yaml", ".yml")):
        hint = _hint(Path(source).stem, known)
        return f"profile {short(source)}: no such file{hint}; expected a YAML file or one of {known}"
    return f"no profile {short(source)}{_hint(source, known)}; expected one of {known} or a YAML file"


def shipped_profiles() -> dict[str, str]:
    """Names and texts of the profiles in the package."""
    folder = files("trainer") / "profiles"
    return {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    }


def stage_spec(
    profile: Profile,
    *,
    environment: str,
    stage: int,
    seed: int,
    init_model: ModelRef,
    dataset: DataRef,
    steps: int | None = None,
    learning_rate_scale: float = 1.0,
    episodes: DataRef | None = None,
) -> StageSpec:
    """The stage that a profile makes of a model and a dataset; without ``episodes`` it rehearses no roles.

    Raises:
        ProfileError: ``steps`` lies outside the profile's bounds.
    """
    steps = profile.grpo.steps if steps is None else steps
    if not profile.bounds.min_steps <= steps <= profile.bounds.max_steps:
        raise ProfileError(
            f"a stage of {steps} steps lies outside the bounds {profile.bounds.min_steps}..{profile.bounds.max_steps} "
            f"of profile {profile.name}"
        )
    rate = profile.grpo.learning_rate * learning_rate_scale
    rehearsal = None
    if profile.role_rehearsal is not None and episodes is not None:
        how = profile.role_rehearsal.model_dump(exclude={"episodes"})
        rehearsal = RoleRehearsal(data=episodes, **how)
    return StageSpec(
        environment=environment,
        style=profile.style,
        stage=stage,
        seed=seed,
        init_model=init_model,
        dataset=dataset,
        reward=profile.reward,
        generation=profile.generation,
        grpo=profile.grpo.model_copy(update={"steps": steps, "learning_rate": rate}),
        rollouts=profile.rollouts,
        lora=profile.lora,
        device=profile.device,
        threads=profile.threads,
        completions_mib=profile.completions_mib,
        ranks=profile.ranks(),
        role_rehearsal=rehearsal,
    )


def prompts_needed(grpo: GrpoSettings) -> int:
    """Distinct prompts that one pass over a stage's dataset takes."""
    return grpo.steps * grpo.batch // grpo.group


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        hint = ""
        if item["type"] == "extra_forbidden":
            hint = _hint(str(item["loc"][-1]), _known_keys(item["loc"][:-1]))
        # What is wrong with a mapping as a whole is said by its check; it would not be found in a dump of it.
        whole = item["type"] in {"value_error", "missing"} and isinstance(item["input"], dict)
        given = [where] if whole else [f"{where or 'profile'} = {short(item['input'])}"]
        lines.append(": ".join([*filter(None, given), item["msg"].removeprefix("Value error, ") + hint]))
    return "; ".join(lines)


def _known_keys(path: tuple[Any, ...]) -> list[str]:
    model: Any = Profile
    for part in path:
        if (path[0], part) in _BY_KIND:
            model = _BY_KIND[path[0], part]
        elif part in getattr(model, "model_fields", {}):
            annotation = model.model_fields[part].annotation
            arms = [annotation, *getattr(annotation, "__args__", ())]
            model = next((arm for arm in arms if isinstance(arm, type) and issubclass(arm, BaseModel)), None)
    return list(getattr(model, "model_fields", {}))


def _hint(word: str, known: list[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""
