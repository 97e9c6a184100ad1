"""From settings to a run that can start: everything is looked up and checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.designers import check_designer, designer_hash, designer_title
from agents.episodes import episodes
from agents.role_checks import constant_call_errors
from agents.roles import RoleError, load_roles, roles_hash
from agents.rolespec import ExternalModel, RoleSpec
from envsim import registry
from envsim.api import Environment, EnvsimError
from envsim.documents import DocumentError, read_text
from graph.checkpoints import check_url
from graph.settings import RunSettings, SettingsError, explain
from trainer.checkpoint import CheckpointError, check, resolve
from trainer.profile import Profile, ProfileError, load_profile
from trainer.serving.settings import UrlBackend
from trainer.spec import ModelRef
from trainer.tracking import check_trackers

TRIED = 32
"""Instances generated from a person's initial configuration, and role episodes, to see that they can be had."""


@dataclass(frozen=True)
class Planned:
    """What a run is to work with, wherever it is to run. ``designer_sha256`` is None for one that reads nothing."""

    settings: RunSettings
    profile: Profile
    environment: Environment
    roles: dict[str, RoleSpec]
    designer_sha256: str | None


@dataclass(frozen=True)
class Prepared(Planned):
    """What a run works with here. ``identity`` decides what it computes and goes to ``run.yaml``."""

    start: ModelRef
    identity: dict[str, Any]


def prepare(settings: RunSettings) -> Prepared:
    """Resolve every name in the settings. Raises SettingsError in one line for whatever is missing or out of range."""
    planned = plan(settings)
    start = starting_model(planned.profile)
    identity = {
        "settings": settings.model_dump(mode="json"),
        "profile": planned.profile.content(),
        "roles_sha256": roles_hash(planned.roles),
        # Designers that are no more than their settings have none.
        **({} if planned.designer_sha256 is None else {"designer_sha256": planned.designer_sha256}),
        "start_sha256": start.sha256,
    }
    return Prepared(**vars(planned), start=start, identity=identity)


def starting_model(profile: Profile) -> ModelRef:
    """The profile's checkpoint, for the profile's device. Raises SettingsError if this machine lacks either."""
    try:
        start = resolve(profile.model)
        check(start, device=profile.device)
    except CheckpointError as error:
        raise SettingsError(" ".join(str(error).split())) from error
    return start


def plan(settings: RunSettings) -> Planned:
    """All that can be looked up without the model and its device. Raises SettingsError as `prepare` does."""
    try:
        environment = opened(registry.get(settings.environment), settings.editable)
        profile = load_profile(settings.profile)
        roles = load_roles(settings.roles)
        check_backend(profile)
        if settings.tracking is not None:
            profile = profile.model_copy(update={"tracking": settings.tracking})
        check_trackers(profile.tracking)
        if settings.checkpoints is not None:
            check_url(settings.checkpoints)
    except RoleError as error:
        raise SettingsError(f"the roles cannot be used: {'; '.join(error.errors)}") from error
    except (EnvsimError, ProfileError, ValueError) as error:
        raise SettingsError(" ".join(str(error).split())) from error
    if settings.reward is not None:
        profile = profile.model_copy(update={"reward": settings.reward})
    check_set_sizes(profile, environment)
    check_rehearsal(profile, environment)
    check_keys(roles)
    check_initial_config(settings, environment)
    check_tool_calls(settings, profile, environment, roles)
    return Planned(settings, profile, environment, roles, checked_designer(settings, environment))


def opened(environment: Environment, groups: Sequence[str]) -> Environment:
    """The environment with a run's editable groups of knobs. Raises SettingsError naming an unknown group."""
    if not groups:
        return environment
    try:
        return environment.editing(groups)
    except EnvsimError as error:
        raise SettingsError(f"editable: {error}") from error


def check_backend(profile: Profile) -> None:
    """A run asks every checkpoint that it trains."""
    if isinstance(profile.backend, UrlBackend):
        raise SettingsError(
            f"profile {profile.name}: backend.kind is url, and {profile.backend.base_url} answers with one model for "
            "ever; expected vllm, which serves each checkpoint, or transformers; a role may speak by a URL, which "
            "its file says"
        )


def check_set_sizes(profile: Profile, environment: Environment) -> None:
    """Every cell of a set must be evaluated, or there is no evidence of it."""
    cells = environment.cells()
    for name in ("anchor", "validation", "test"):
        n = getattr(profile.evaluation, name)
        if 0 < n < len(cells):
            raise SettingsError(
                f"profile {profile.name}: evaluation.{name} = {n}, expected at least {len(cells)}, one for each of "
                f"{', '.join(cells)}, or 0 for the whole set"
            )


def check_rehearsal(profile: Profile, environment: Environment) -> None:
    """Role episodes are the seedling's tables: nobody has the right words for prose, and they name a lake's knobs."""
    if profile.role_rehearsal is None:
        return
    if profile.style != "compact":
        raise SettingsError(
            f"profile {profile.name}: role_rehearsal with style {profile.style}, expected style compact, the only one "
            "that agents.episodes writes; leave role_rehearsal out"
        )
    try:
        for _ in episodes(environment, TRIED, 0, 0.0):
            pass
    except ValueError as error:
        raise SettingsError(
            f"profile {profile.name}: role_rehearsal, and the compact prompts do not fit the environment "
            f"{environment.name!r}: {error}; leave role_rehearsal out"
        ) from error


def check_keys(roles: Mapping[str, RoleSpec]) -> None:
    """The keys of external models are read when a role first speaks, long after the run began."""
    for name, role in roles.items():
        file = role.model.api_key_file if isinstance(role.model, ExternalModel) else None
        if file is None:
            continue
        try:
            key = read_text(Path(file)).strip()
        except DocumentError as error:
            raise SettingsError(f"role {name}: model.api_key_file: {error}") from error
        if not key:
            raise SettingsError(f"role {name}: model.api_key_file: {file} is empty, expected a key")


def check_tool_calls(
    settings: RunSettings, profile: Profile, environment: Environment, roles: Mapping[str, RoleSpec]
) -> None:
    """What roles have called before they speak is the same in every stage, so it is held against the run now."""
    config, samples = initial_config(settings, environment), profile.probe.samples
    errors = [
        f"role {name}: {line}"
        for name, role in roles.items()
        for line in constant_call_errors(role, environment, config, samples)
    ]
    if errors:
        raise SettingsError("; ".join(errors))


def check_initial_config(settings: RunSettings, environment: Environment) -> None:
    """A person's configuration is tried before anything is written: it must validate and its instances must be had."""
    if settings.initial_config is None:
        return
    try:
        config = initial_config(settings, environment)
        environment.generate(config, TRIED, settings.seed)
    except ValidationError as error:
        raise SettingsError(explain(error, environment.config_model, "initial_config")) from error
    except EnvsimError as error:
        raise SettingsError(f"initial_config: {' '.join(str(error).split())}") from error


def checked_designer(settings: RunSettings, environment: Environment) -> str | None:
    """The hash of what decides the designer's proposals beside the settings. Raises SettingsError if the designer
    cannot do its part in every stage of the run."""
    try:
        config = initial_config(settings, environment)
        check_designer(settings.designer, environment, config, settings.stages)
        return designer_hash(settings.designer)
    except (EnvsimError, ValueError) as error:
        raise SettingsError(" ".join(str(error).split())) from error


def initial_config(settings: RunSettings, environment: Environment) -> Any:
    """What stage 000 trains on. Raises ValidationError for a person's configuration that is none."""
    if settings.initial_config is None:
        return environment.default_config()
    return environment.config_model.model_validate(settings.initial_config)


def default_run_dir(settings: RunSettings, now: datetime) -> Path:
    name = Path(settings.profile).stem
    return Path("runs") / f"{now:%Y%m%d-%H%M%S}-{name}-{designer_title(settings.designer)}-s{settings.seed}"
