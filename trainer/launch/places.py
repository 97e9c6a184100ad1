"""The launcher that a profile's ``launch:`` section names, and what an evaluation is there."""

from __future__ import annotations

from trainer.launch.contract import Launcher, LaunchError
from trainer.launch.settings import LaunchSettings, RaySettings
from trainer.launch.shard import EvaluationPlan
from trainer.launch.warm import WarmLauncher
from trainer.profile import Profile
from trainer.spec import ModelRef


def launcher(settings: LaunchSettings | None) -> Launcher:
    """Raises LaunchError if its package is missing or its cluster cannot be reached."""
    if settings is None:
        return WarmLauncher()
    if settings.where == "local":
        return WarmLauncher(settings.grace_seconds)
    try:
        from trainer.launch.on_ray import RayLauncher  # noqa: PLC0415  an extra, and half a second to import
    except ModuleNotFoundError as error:
        raise LaunchError(f"launching on Ray needs its package: {error}; pip install 'envwright[ray]'") from error

    return RayLauncher(settings.ray or RaySettings(), settings.grace_seconds)


def evaluation_plan(
    profile: Profile,
    *,
    environment: str,
    set_name: str,
    model: ModelRef,
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
) -> EvaluationPlan:
    """An evaluation as a profile makes it."""
    return EvaluationPlan(
        environment=environment,
        style=profile.style,
        set=set_name,
        model=model,
        generation=profile.generation.model_copy(update={"temperature": temperature}),
        samples=samples,
        seed=seed,
        device=profile.device,
        threads=profile.threads,
        batch_size=profile.evaluation.batch_size,
        backend=profile.backend,
    )
